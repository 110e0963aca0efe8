package decode

import (
	"strconv"
	"strings"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// maxPolicyDepth is how deep policies may nest in load_balancing_policy (gRFC
// A52).
const maxPolicyDepth = 16

// What a cluster may choose as its policy, as a refusal says it.
const supportedLBPolicies = "supported are ROUND_ROBIN, LEAST_REQUEST and RING_HASH"

var supportedPolicies = "supported are " + converterNames() + " of " +
	"envoy.extensions.load_balancing_policies, alone or as the endpoint_picking_policy of its WrrLocality, " +
	"and a TypedStruct of a policy that is there by gRPC's name"

// policyValidator validates the load balancing policy of a Cluster.
type policyValidator struct{ *report }

// policyOf judges the two ways in which a Cluster chooses its policy. That of an
// aggregate is judged as any other, but is not used (gRFC A75).
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

// warnUnusedPolicy warns of a policy that an aggregate is configured with.
func (v policyValidator) warnUnusedPolicy(m *clusterv3.Cluster) {
	const reason = "is ignored: an aggregate uses the load balancing policy of each of its leaves"
	switch m.GetLbPolicy() {
	case clusterv3.Cluster_ROUND_ROBIN, clusterv3.Cluster_CLUSTER_PROVIDED, clusterv3.Cluster_LOAD_BALANCING_POLICY_CONFIG:
	default:
		v.warn("lb_policy", "%s", reason)
	}
	if m.GetLoadBalancingPolicy() != nil {
		v.warn("load_balancing_policy", "%s", reason)
	}
}

// lbPolicy judges lb_policy. Each policy that lbd can run has its arm.
func (v policyValidator) lbPolicy(m *clusterv3.Cluster) resource.Policy {
	switch p := m.GetLbPolicy(); {
	case p == clusterv3.Cluster_ROUND_ROBIN:
		return resource.RoundRobinPolicy()
	case p == clusterv3.Cluster_RING_HASH:
		const field = "ring_hash_lb_config"
		v.xxHash(m)
		v.fields(m.GetRingHashLbConfig(), field)
		return v.ringSizes(m.GetRingHashLbConfig(), field)
	case p == clusterv3.Cluster_LEAST_REQUEST:
		const field = "least_request_lb_config"
		v.fields(m.GetLeastRequestLbConfig(), field)
		return v.choiceCount(m.GetLeastRequestLbConfig().GetChoiceCount(), field)
	case p == clusterv3.Cluster_CLUSTER_PROVIDED && v.byHand && isAggregate(m):
		return resource.RoundRobinPolicy() // Envoy takes no other on an aggregate; it is not used
	default:
		v.refuse("lb_policy", "%s is not supported: %s", p, supportedLBPolicies)
		return resource.Policy{}
	}
}

// xxHash judges the hash function of RING_HASH.
func (v policyValidator) xxHash(m *clusterv3.Cluster) {
	if h := m.GetRingHashLbConfig().GetHashFunction(); h != clusterv3.Cluster_RingHashLbConfig_XX_HASH {
		v.refuse("ring_hash_lb_config.hash_function", "%s is not supported: supported is XX_HASH", h)
	}
}

// overridden judges an lb_policy that load_balancing_policy stands in for. gRPC
// refuses it even so where it is none that gRPC has.
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
		v.refuse("lb_policy", "%s is not supported: %s", p, supportedLBPolicies)
	}
}

// policy returns the first policy of a list that lbd has (gRFC A52); others are
// skipped.
func (v policyValidator) policy(list *clusterv3.LoadBalancingPolicy, field string, depth int) resource.Policy {
	if depth == maxPolicyDepth {
		v.refuse(field, "nests deeper than %d policies", maxPolicyDepth)
		return resource.Policy{}
	}
	var skipped []string
	for i, entry := range list.GetPolicies() {
		config := entry.GetTypedExtensionConfig().GetTypedConfig()
		at := path{{name: "policies", index: i}, {name: "typed_extension_config", index: -1}, {name: "typed_config", index: -1}}
		policy, unknown := v.typedPolicy(config, join(field, at.String()), depth)
		if unknown != "" {
			skipped = append(skipped, unknown)
			continue
		}
		if len(skipped) > 0 {
			v.warn(field, "%s: not supported, and skipped", strings.Join(skipped, ", "))
		}
		return policy
	}
	if len(skipped) == 0 {
		v.refuse(field, "holds no policy: %s", supportedPolicies)
	} else {
		v.refuse(field, "holds no supported policy, only %s: %s", strings.Join(skipped, ", "), supportedPolicies)
	}
	return resource.Policy{}
}

// typedPolicy reads one policy of a list. unknown names one that lbd does not have.
func (v policyValidator) typedPolicy(config *anypb.Any, field string, depth int) (p resource.Policy, unknown string) {
	name := config.MessageName()
	if !v.byHand && config.GetTypeUrl() != typeURLPrefix+string(name) {
		name = "" // gRPC compares whole URLs
	}
	switch name {
	case nameOf(&wrrlocalityv3.WrrLocality{}):
		var m wrrlocalityv3.WrrLocality
		if !v.carries(config, &m, field) {
			return resource.Policy{}, ""
		}
		v.fields(&m, field)
		child := v.policy(m.GetEndpointPickingPolicy(), field+".endpoint_picking_policy", depth+1)
		return resource.Policy{Name: resource.PolicyWRRLocality, Child: &child}, ""
	case nameOf(&xdsv3.TypedStruct{}):
		var m xdsv3.TypedStruct
		return v.structPolicy(config, &m, field)
	case nameOf(&udpav1.TypedStruct{}):
		var m udpav1.TypedStruct
		return v.structPolicy(config, &m, field)
	}
	for _, c := range converters {
		if c.name == name {
			return c.convert(v, config, field), ""
		}
	}
	if short := shortType(config.GetTypeUrl()); short != "" {
		return resource.Policy{}, short
	}
	return resource.Policy{}, strconv.Quote(config.GetTypeUrl())
}
