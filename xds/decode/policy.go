package decode

import (
	"cmp"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// maxPolicyDepth is the limit of nested policies in load_balancing_policy (gRFC A52).
const maxPolicyDepth = 16

// supportedLBPolicies and supportedPolicies are the choices of a cluster, for errors.
const supportedLBPolicies = "supported are ROUND_ROBIN, LEAST_REQUEST and RING_HASH"

var supportedPolicies = ": supported are " + converterNames() + " of " +
	"envoy.extensions.load_balancing_policies, alone or as the endpoint_picking_policy of its WrrLocality, " +
	"and a TypedStruct of a policy that is there by gRPC's name"

type policyValidator struct{ *report }

// policyOf validates the two ways in which a Cluster chooses its policy. That of an
// aggregate is validated too, but is not used (gRFC A75).
func (v policyValidator) policyOf(m *clusterv3.Cluster) resource.Policy {
	p := m.GetLoadBalancingPolicy()
	if v.byHand && isAggregate(m) {
		v.warnUnusedPolicy(m)
	}
	if p == nil {
		return v.lbPolicy(m)
	}
	v.overridden(m)
	return v.policy(p, "load_balancing_policy", 0)
}

func isAggregate(m *clusterv3.Cluster) bool { return m.GetClusterType().GetName() == aggregateName }

func (v policyValidator) warnUnusedPolicy(m *clusterv3.Cluster) {
	const reason = "is ignored: an aggregate uses the load balancing policy of each of its leaves"
	switch m.GetLbPolicy() {
	case clusterv3.Cluster_ROUND_ROBIN, clusterv3.Cluster_CLUSTER_PROVIDED, clusterv3.Cluster_LOAD_BALANCING_POLICY_CONFIG:
	default:
		v.warn("lb_policy", reason)
	}
	if m.GetLoadBalancingPolicy() != nil {
		v.warn("load_balancing_policy", reason)
	}
}

func (v policyValidator) lbPolicy(m *clusterv3.Cluster) resource.Policy {
	switch p := m.GetLbPolicy(); {
	case p == clusterv3.Cluster_RING_HASH:
		const field = "ring_hash_lb_config"
		v.xxHash(m)
		v.fields(m.GetRingHashLbConfig(), field)
		return v.ringSizes(m.GetRingHashLbConfig(), field)
	case p == clusterv3.Cluster_LEAST_REQUEST:
		const field = "least_request_lb_config"
		v.fields(m.GetLeastRequestLbConfig(), field)
		return v.choiceCount(m.GetLeastRequestLbConfig().GetChoiceCount(), field)
	case p == clusterv3.Cluster_ROUND_ROBIN,
		p == clusterv3.Cluster_CLUSTER_PROVIDED && v.byHand && isAggregate(m): // as Envoy demands; it is not used
		return resource.RoundRobinPolicy()
	default:
		v.reject("lb_policy", "%s is not supported: %s", p, supportedLBPolicies)
		return resource.Policy{}
	}
}

func (v policyValidator) xxHash(m *clusterv3.Cluster) {
	if h := m.GetRingHashLbConfig().GetHashFunction(); h != clusterv3.Cluster_RingHashLbConfig_XX_HASH {
		v.reject("ring_hash_lb_config.hash_function", "%s is not supported: supported is XX_HASH", h)
	}
}

// overridden validates an lb_policy that load_balancing_policy overrides. As in gRPC, it
// must be one that gRPC has if it comes from a server.
func (v policyValidator) overridden(m *clusterv3.Cluster) {
	p := m.GetLbPolicy()
	if p != clusterv3.Cluster_ROUND_ROBIN && p != clusterv3.Cluster_LOAD_BALANCING_POLICY_CONFIG {
		v.warnUnapplied(m, "lb_policy", "lb_policy", "%s is not applied: load_balancing_policy counts", p)
	}
	if v.byHand {
		return
	}
	switch p {
	case clusterv3.Cluster_ROUND_ROBIN:
	case clusterv3.Cluster_RING_HASH:
		v.xxHash(m)
	case clusterv3.Cluster_LEAST_REQUEST:
		v.choiceCount(m.GetLeastRequestLbConfig().GetChoiceCount(), "least_request_lb_config")
	default:
		v.reject("lb_policy", "%s is not supported: %s", p, supportedLBPolicies)
	}
}

// firstAvailable returns the first available policy of a list of n; others are skipped
// (gRFC A52). read returns a policy, or the name of one that is not available.
func (v policyValidator) firstAvailable(n int, field, supported string, read func(i int) (p resource.Policy, unavailable string)) resource.Policy {
	var skipped []string
	for i := range n {
		p, unavailable := read(i)
		if unavailable != "" {
			skipped = append(skipped, unavailable)
			continue
		}
		if len(skipped) > 0 {
			v.warn(field, "%s: not supported, and skipped", strings.Join(skipped, ", "))
		}
		return p
	}
	if len(skipped) == 0 {
		v.reject(field, "holds no policy%s", supported)
	} else {
		v.reject(field, "holds no supported policy, only %s%s", strings.Join(skipped, ", "), supported)
	}
	return resource.Policy{}
}

func (v policyValidator) policy(list *clusterv3.LoadBalancingPolicy, field string, depth int) resource.Policy {
	if depth == maxPolicyDepth {
		v.reject(field, "nests deeper than %d policies", maxPolicyDepth)
		return resource.Policy{}
	}
	return v.firstAvailable(len(list.GetPolicies()), field, supportedPolicies, func(i int) (resource.Policy, string) {
		config := list.GetPolicies()[i].GetTypedExtensionConfig().GetTypedConfig()
		return v.typedPolicy(config, element(field+".policies", i)+".typed_extension_config.typed_config", depth)
	})
}

// typedPolicy reads one policy of a list, or returns the name of one that is not available.
func (v policyValidator) typedPolicy(config *anypb.Any, field string, depth int) (p resource.Policy, unavailable string) {
	name := config.MessageName()
	if !v.byHand && config.GetTypeUrl() != typeURLPrefix+string(name) {
		name = "" // gRPC compares whole URLs
	}
	if m := newTypedStruct(name); m != nil {
		return v.structPolicy(config, m, field)
	}
	if m := (&wrrlocalityv3.WrrLocality{}); name == nameOf(m) {
		if !v.carries(config, m, field) {
			return resource.Policy{}, ""
		}
		v.fields(m, field)
		child := v.policy(m.GetEndpointPickingPolicy(), field+".endpoint_picking_policy", depth+1)
		return resource.Policy{Name: resource.PolicyWRRLocality, Child: &child}, ""
	}
	for _, c := range converters {
		if c.name == name {
			return c.convert(v, config, field), ""
		}
	}
	return resource.Policy{}, cmp.Or(shortType(config.GetTypeUrl()), strconv.Quote(config.GetTypeUrl()))
}
