package decode

import (
	"encoding/json"
	"math"
	"strings"
	"time"

	weightedv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	pickfirstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	ringhashv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// The policies that lb_policy can choose, too.
const (
	leastRequest resource.PolicyName = "least_request_experimental"
	ringHash     resource.PolicyName = "ring_hash_experimental"
)

type converter struct {
	name    protoreflect.FullName
	convert func(v policyValidator, config *anypb.Any, field string) resource.Policy
}

// converters has the endpoint policies with a proto, by their names in gRPC's registry.
var converters = []converter{
	{nameOf(new(roundrobinv3.RoundRobin)), policyValidator.roundRobin},
	converterOf("weighted_round_robin", policyValidator.weighted),
	converterOf(leastRequest, policyValidator.leastRequest),
	converterOf(ringHash, policyValidator.ringHash),
	converterOf("pick_first", policyValidator.pickFirst),
}

// These protos are a part of the table here, so that a new policy changes one file.
func init() { fieldTable += endpointPolicyFields }

const endpointPolicyFields = `envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin
  - slow_start_config locality_lb_config
envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin
  + blackout_period weight_expiration_period weight_update_period error_utilization_penalty
  ? enable_oob_load_report: a warning if it is true: loads are those that are reported with the outcomes of picks
  - oob_reporting_period oob_reporting_config: loads are those that are reported with the outcomes of picks
  - metric_names_for_computing_utilization: the weight is computed from qps, eps, application and CPU utilization
  - slow_start_config
envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest
  + choice_count
  - active_request_bias slow_start_config locality_lb_config enable_full_scan selection_method
envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash
  + hash_function minimum_ring_size maximum_ring_size
  - use_hostname_for_hashing hash_balance_factor consistent_hashing_lb_config locality_weighted_lb_config
envoy.extensions.load_balancing_policies.pick_first.v3.PickFirst
  + shuffle_address_list
`

// converterOf returns the converter that reads a message of type M and converts it to the
// config of a policy.
func converterOf[M any, P interface {
	*M
	proto.Message
}](policy resource.PolicyName, convert func(v policyValidator, m P, field string) converted,
) converter {
	return converter{nameOf(P(new(M))), func(v policyValidator, config *anypb.Any, field string) resource.Policy {
		m := P(new(M))
		if !v.carries(config, m, field) {
			return resource.Policy{}
		}
		v.fields(m, field)
		return v.convertedPolicy(policy, convert(v, m, field), field)
	}}
}

func converterNames() string {
	var names []string
	for _, c := range converters {
		names = append(names, string(c.name.Name()))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// converted is a policy's config, converted from its proto to gRPC's service-config
// form: a member and its path for each field that is set.
type converted struct {
	members map[string]any
	paths   map[string]string
}

func newConverted() converted { return converted{make(map[string]any), make(map[string]string)} }

func (c converted) set(member string, value any, field string) {
	c.members[member], c.paths[member] = value, field
}

func (v policyValidator) convertedPolicy(name resource.PolicyName, c converted, field string) resource.Policy {
	text, err := json.Marshal(c.members)
	if err != nil {
		v.reject(field, "cannot be written as JSON: %s", plain(err))
		return resource.Policy{}
	}
	return v.configured(name, text, func(member string) string { return c.paths[member] })
}

// roundRobin only warns: gRPC does not read the config.
func (v policyValidator) roundRobin(config *anypb.Any, field string) resource.Policy {
	var m roundrobinv3.RoundRobin
	if proto.Unmarshal(config.GetValue(), &m) == nil {
		v.fields(&m, field)
	}
	return resource.Policy{Name: resource.PolicyRoundRobin}
}

// leastRequest converts the config of least_request. As in gRPC, zero means the default
// here, but neither in lb_policy's config nor in the JSON of the policy.
func (v policyValidator) leastRequest(m *leastrequestv3.LeastRequest, field string) converted {
	count := m.GetChoiceCount()
	if count != nil && count.GetValue() == 0 {
		v.warnByHand(field+".choice_count", "0 means the default (2), as in gRPC")
		count = nil
	}
	return choiceCount(count, field)
}

func choiceCount(count *wrapperspb.UInt32Value, field string) converted {
	c := newConverted()
	if count != nil {
		c.set("choiceCount", count.GetValue(), field+".choice_count")
	}
	return c
}

func (v policyValidator) ringHash(m *ringhashv3.RingHash, field string) converted {
	switch h := m.GetHashFunction(); {
	case h == ringhashv3.RingHash_XX_HASH:
	case h == ringhashv3.RingHash_DEFAULT_HASH && v.byHand:
		v.warn(field+".hash_function", "is %s, which gRPC rejects from a management server: taken as XX_HASH, as Envoy does; write hash_function: XX_HASH", h)
	default:
		v.reject(field+".hash_function", "%s is not supported: supported is XX_HASH", h)
	}
	return ringSizes(m, field)
}

// ringSized is either of the two messages that configure ring_hash.
type ringSized interface {
	GetMinimumRingSize() *wrapperspb.UInt64Value
	GetMaximumRingSize() *wrapperspb.UInt64Value
}

// maxRingSize is the default of maximum_ring_size. That of the JSON is smaller.
const maxRingSize = 8 << 20

func ringSizes(m ringSized, field string) converted {
	c := newConverted()
	c.paths["minRingSize"] = field + ".minimum_ring_size" // its default may be more than the maximum
	if n := m.GetMinimumRingSize(); n != nil {
		c.members["minRingSize"] = n.GetValue()
	}
	if n := m.GetMaximumRingSize(); n != nil {
		c.set("maxRingSize", n.GetValue(), field+".maximum_ring_size")
	} else {
		c.members["maxRingSize"] = maxRingSize
	}
	return c
}

func (policyValidator) pickFirst(m *pickfirstv3.PickFirst, field string) converted {
	c := newConverted()
	c.set("shuffleAddressList", m.GetShuffleAddressList(), field+".shuffle_address_list")
	return c
}

// weighted converts the config of client_side_weighted_round_robin. As in gRPC, zero means
// the default here, but not in the JSON of the policy.
func (v policyValidator) weighted(m *weightedv3.ClientSideWeightedRoundRobin, field string) converted {
	if m.GetEnableOobLoadReport().GetValue() {
		v.warnUnapplied(m, "enable_oob_load_report", field+".enable_oob_load_report",
			"is not applied: loads are those that are reported with the outcomes of picks")
	}
	c := newConverted()
	for _, d := range []struct {
		name, member string
		value        *durationpb.Duration
		absent       time.Duration
	}{
		{"blackout_period", "blackoutPeriod", m.GetBlackoutPeriod(), 10 * time.Second},
		{"weight_expiration_period", "weightExpirationPeriod", m.GetWeightExpirationPeriod(), 3 * time.Minute},
		{"weight_update_period", "weightUpdatePeriod", m.GetWeightUpdatePeriod(), time.Second},
	} {
		at := join(field, d.name)
		if d.value == nil {
			continue
		}
		if err := d.value.CheckValid(); err != nil && v.byHand {
			v.reject(at, "is no duration: %s", plain(err))
		} else if period := d.value.AsDuration(); period != 0 {
			text, _ := protojson.Marshal(durationpb.New(period)) // does not fail
			c.set(d.member, json.RawMessage(text), at)
		} else {
			v.warnByHand(at, "0s means the default (%s), as in gRPC", d.absent)
		}
	}
	at := join(field, "error_utilization_penalty")
	switch n := float64(m.GetErrorUtilizationPenalty().GetValue()); {
	case m.GetErrorUtilizationPenalty() == nil:
	case math.IsNaN(n) || math.IsInf(n, 0):
		v.reject(at, "is %v: it must be a finite number", n)
	case n == 0:
		v.warnByHand(at, "0 means the default (1), as in gRPC")
	default:
		c.set("errorUtilizationPenalty", n, at)
	}
	return c
}
