package decode

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/lbd-dev/lbd/xds/decode/text"
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
		return v.convertedPolicy(ringHash, ringSizes(m.GetRingHashLbConfig(), field), field)
	case p == clusterv3.Cluster_LEAST_REQUEST:
		const field = "least_request_lb_config"
		v.fields(m.GetLeastRequestLbConfig(), field)
		return v.convertedPolicy(leastRequest, choiceCount(m.GetLeastRequestLbConfig().GetChoiceCount(), field), field)
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
		const field = "least_request_lb_config"
		v.convertedPolicy(leastRequest, choiceCount(m.GetLeastRequestLbConfig().GetChoiceCount(), field), field)
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

// typedStruct is either message that carries an extension by name, with its JSON config.
type typedStruct interface {
	proto.Message
	GetTypeUrl() string
	GetValue() *structpb.Struct
}

// newTypedStruct returns a new message of that name, or nil if it is no typedStruct.
func newTypedStruct(name protoreflect.FullName) typedStruct {
	for _, m := range []typedStruct{&xdsv3.TypedStruct{}, &udpav1.TypedStruct{}} {
		if nameOf(m) == name {
			return m
		}
	}
	return nil
}

// structPolicy reads a policy by its gRPC name, which ends the type URL (gRFC A52), or
// returns the name of one that is not available.
func (v policyValidator) structPolicy(config *anypb.Any, m typedStruct, field string) (p resource.Policy, unavailable string) {
	if !v.carries(config, m, field) {
		return resource.Policy{}, ""
	}
	url := m.GetTypeUrl()
	name := resource.PolicyName(url[strings.LastIndexByte(url, '/')+1:])
	if !v.available(name) {
		return resource.Policy{}, "TypedStruct " + strconv.Quote(string(name))
	}
	field += ".value"
	raw, err := json.Marshal(m.GetValue()) // null if it is absent
	if err != nil {
		v.reject(field, "contains NaN, or a Value without a kind")
		return resource.Policy{}, ""
	}
	return v.namedPolicy(name, raw, field), ""
}

func (v policyValidator) available(name resource.PolicyName) bool {
	return name == resource.PolicyWRRLocality || v.Options.policy(name) != nil
}

func (v policyValidator) namedPolicy(name resource.PolicyName, config json.RawMessage, field string) resource.Policy {
	if name == resource.PolicyWRRLocality {
		return v.wrrLocality(config, field)
	}
	return v.configured(name, config, func(member string) string { return within(field, member) })
}

// configured validates a policy's JSON config. at returns the path of a member, or of the
// whole for the empty name; it is empty for what the decoder filled in.
func (v policyValidator) configured(name resource.PolicyName, config json.RawMessage, at func(member string) string) resource.Policy {
	p := resource.Policy{Name: name, Config: string(config)}
	traits := v.Options.policy(name)
	if traits == nil || traits.Judge == nil {
		return p
	}
	var findings []resource.ConfigFinding
	p.Config, findings = traits.Judge(config)
	for _, f := range findings {
		field := at(f.Member)
		switch {
		case f.ByHand && !v.byHand:
		case f.Kind == resource.FindingUnknown:
			v.unknownField(field, func() string { return unknownOf(string(name), text.Closest(f.Member, f.Known)) })
		case f.Kind == resource.FindingInvalid:
			v.reject(field, "%s", f.Text)
		case field != "":
			v.warn(field, "%s", f.Text)
		}
	}
	return p
}

// wrrLocality reads the config of the policy that chooses a locality. As in gRPC, the
// case of a member's name does not count, and null is absent.
func (v policyValidator) wrrLocality(config json.RawMessage, at string) resource.Policy {
	field := join(at, "childPolicy")
	var members map[string]json.RawMessage
	if json.Unmarshal(config, &members) != nil {
		v.reject(at, "is %s: the config of %s must be an object", config, resource.PolicyWRRLocality)
		return resource.Policy{}
	}
	var list []map[string]json.RawMessage
	for _, name := range slices.Sorted(maps.Keys(members)) {
		switch {
		case !strings.EqualFold(name, "childPolicy"):
			v.unknownField(join(at, name), func() string {
				return unknownOf(string(resource.PolicyWRRLocality), text.Closest(name, []string{"childPolicy"}))
			})
		case json.Unmarshal(members[name], &list) != nil:
			v.reject(join(at, name), "is %s: it must be a list of policies, each an object of its name and its config", members[name])
			return resource.Policy{}
		}
	}
	child := v.firstAvailable(len(list), field, "", func(i int) (resource.Policy, string) {
		if len(list[i]) != 1 {
			v.reject(element(field, i), "names %d policies: it must name one", len(list[i]))
			return resource.Policy{}, ""
		}
		name := slices.Collect(maps.Keys(list[i]))[0]
		if !v.available(resource.PolicyName(name)) {
			return resource.Policy{}, strconv.Quote(name)
		}
		return v.namedPolicy(resource.PolicyName(name), list[i][name], element(field, i)+"."+name), ""
	})
	return resource.Policy{Name: resource.PolicyWRRLocality, Child: &child}
}
