package resource

import (
	"strings"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// maxPolicyDepth is how deep policies may nest in load_balancing_policy (gRFC
// A52).
const maxPolicyDepth = 16

// supportedPolicies are what load_balancing_policy may choose, as a refusal
// says it.
const supportedPolicies = "supported are envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin, " +
	"alone or as the endpoint_picking_policy of envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality"

// policyOf judges the two ways in which a Cluster chooses its policy.
func (v *verdict) policyOf(m *clusterv3.Cluster) Policy {
	p := m.GetLoadBalancingPolicy()
	if p == nil {
		return v.lbPolicy(m.GetLbPolicy())
	}
	v.overridden(m)
	return v.policy(p, "load_balancing_policy", 0)
}

// lbPolicy judges lb_policy. Each policy that lbd can run has its arm.
func (v *verdict) lbPolicy(p clusterv3.Cluster_LbPolicy) Policy {
	switch p {
	case clusterv3.Cluster_ROUND_ROBIN:
		return RoundRobinPolicy()
	default:
		v.refuse("lb_policy", "%s is not supported: supported is ROUND_ROBIN", p)
		return Policy{}
	}
}

// overridden judges an lb_policy that load_balancing_policy stands in for. gRPC
// refuses it even so where it is none that gRPC has.
func (v *verdict) overridden(m *clusterv3.Cluster) {
	p := m.GetLbPolicy()
	if v.byHand {
		if p != clusterv3.Cluster_ROUND_ROBIN && p != clusterv3.Cluster_LOAD_BALANCING_POLICY_CONFIG {
			v.warn("lb_policy", "%s is not applied: load_balancing_policy counts", p)
		}
		return
	}
	switch p {
	case clusterv3.Cluster_ROUND_ROBIN:
	case clusterv3.Cluster_RING_HASH:
		if h := m.GetRingHashLbConfig().GetHashFunction(); h != clusterv3.Cluster_RingHashLbConfig_XX_HASH {
			v.refuse("ring_hash_lb_config.hash_function", "%s is not supported: supported is XX_HASH", h)
		}
	case clusterv3.Cluster_LEAST_REQUEST:
		if c := m.GetLeastRequestLbConfig().GetChoiceCount(); c != nil && c.GetValue() < 2 {
			v.refuse("least_request_lb_config.choice_count", "is %d: it must be at least 2", c.GetValue())
		}
	default:
		v.refuse("lb_policy", "%s is not supported", p)
	}
}

// policy returns the first policy of a list that lbd has (gRFC A52); others are
// skipped.
func (v *verdict) policy(list *clusterv3.LoadBalancingPolicy, field string, depth int) Policy {
	if depth == maxPolicyDepth {
		v.refuse(field, "nests deeper than %d policies", maxPolicyDepth)
		return Policy{}
	}
	var skipped []string
	for i, entry := range list.GetPolicies() {
		config := entry.GetTypedExtensionConfig().GetTypedConfig()
		at := path{{name: "policies", index: i}, {name: "typed_extension_config", index: -1}, {name: "typed_config", index: -1}}
		policy, known := v.typedPolicy(config, join(field, at.String()), depth)
		if !known {
			skipped = append(skipped, shortType(config.GetTypeUrl()))
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
	return Policy{}
}

// typedPolicy reads one policy of a list. known is false for one that lbd does
// not have. Each policy that lbd can run has its arm.
func (v *verdict) typedPolicy(config *anypb.Any, field string, depth int) (p Policy, known bool) {
	switch config.MessageName() {
	case nameOf(&wrrlocalityv3.WrrLocality{}):
		var m wrrlocalityv3.WrrLocality
		if !v.carries(config, &m, field) {
			return Policy{}, true
		}
		child := v.policy(m.GetEndpointPickingPolicy(), field+".endpoint_picking_policy", depth+1)
		return Policy{Name: PolicyWRRLocality, Child: &child}, true
	case nameOf(&roundrobinv3.RoundRobin{}):
		return Policy{Name: PolicyRoundRobin}, true
	case nameOf(&xdsv3.TypedStruct{}):
		var m xdsv3.TypedStruct
		return v.namedPolicy(config, &m, field)
	case nameOf(&udpav1.TypedStruct{}):
		var m udpav1.TypedStruct
		return v.namedPolicy(config, &m, field)
	default:
		return Policy{}, false
	}
}

// typedStruct is either of the two messages that carry a policy by gRPC's name.
type typedStruct interface {
	proto.Message
	GetTypeUrl() string
}

// namedPolicy reads a policy by gRPC's name for it.
func (v *verdict) namedPolicy(config *anypb.Any, m typedStruct, field string) (p Policy, known bool) {
	if !v.carries(config, m, field) {
		return Policy{}, true
	}
	url := m.GetTypeUrl()
	switch name := PolicyName(url[strings.LastIndexByte(url, '/')+1:]); name {
	case PolicyRoundRobin:
		return Policy{Name: name}, true
	default:
		return Policy{}, false
	}
}

// carries reads what an Any carries into m.
func (v *verdict) carries(a *anypb.Any, m proto.Message, field string) bool {
	if err := proto.Unmarshal(a.GetValue(), m); err != nil {
		v.refuse(field, "cannot be read as %s: %s", nameOf(m), plain(err))
		return false
	}
	return true
}

func nameOf(m proto.Message) protoreflect.FullName {
	return m.ProtoReflect().Descriptor().FullName()
}
