package resource

import (
	"math"
	"time"

	weightedv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/client_side_weighted_round_robin/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	ringhashv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// least_request's choice_count (gRFC A48).
const (
	defaultChoiceCount = 2
	maxChoiceCount     = 10
)

// leastRequestProto judges least_request's config. gRPC takes a zero in it as
// absent, though neither in lb_policy's nor in the JSON of the policy.
func (v *verdict) leastRequestProto(m *leastrequestv3.LeastRequest, field string) Policy {
	v.fields(m, field)
	field += ".choice_count"
	count := m.GetChoiceCount().GetValue()
	if count == 0 {
		count = defaultChoiceCount
		if m.GetChoiceCount() != nil {
			v.warnByHand(field, "is 0, which means the default here, as in gRPC: taken as %d", count)
		}
	}
	return v.leastRequest(count, field)
}

// leastRequest judges least_request's choice_count, which stands at a path.
func (v *verdict) leastRequest(count uint32, field string) Policy {
	if count < 2 {
		v.refuse(field, "is %d: it must be at least 2", count)
	}
	if count > maxChoiceCount {
		v.warnByHand(field, "is %d: taken as %d, the most that are drawn", count, maxChoiceCount)
		count = maxChoiceCount
	}
	return Policy{Name: PolicyLeastRequest, LeastRequest: &LeastRequest{ChoiceCount: count}}
}

// ring_hash's sizes (gRFC A42). A maximum of 0 means less than an absent one
// does.
const (
	defaultMinRingSize = 1024
	zeroMaxRingSize    = RingSizeCap
	maxRingSize        = 8 << 20
)

// ringHashProto judges ring_hash's config.
func (v *verdict) ringHashProto(m *ringhashv3.RingHash, field string) Policy {
	v.fields(m, field)
	switch h := m.GetHashFunction(); {
	case h == ringhashv3.RingHash_XX_HASH:
	case h == ringhashv3.RingHash_DEFAULT_HASH && v.byHand:
		v.warn(field+".hash_function", "is %s, which gRPC rejects from a management server: taken as XX_HASH, as Envoy does; write hash_function: XX_HASH", h)
	default:
		v.refuse(field+".hash_function", "%s is not supported: supported is XX_HASH", h)
	}
	return v.ringSizes(m, field)
}

// ringSized is either of the two messages that configure ring_hash.
type ringSized interface {
	GetMinimumRingSize() *wrapperspb.UInt64Value
	GetMaximumRingSize() *wrapperspb.UInt64Value
}

func (v *verdict) ringSizes(m ringSized, field string) Policy {
	least := ringSize{field + ".minimum_ring_size", defaultMinRingSize}
	if n := m.GetMinimumRingSize(); n != nil {
		least.entries = n.GetValue()
	}
	most := ringSize{field + ".maximum_ring_size", maxRingSize}
	if n := m.GetMaximumRingSize(); n != nil {
		most.entries = n.GetValue()
		v.capped(most)
	}
	return v.ringHash(least, most)
}

// ringSize is a size of a ring, with where it stands.
type ringSize struct {
	field   string
	entries uint64
}

// ringHash judges ring_hash's sizes as they are configured, 0 as the default,
// and holds them to what gRPC builds.
func (v *verdict) ringHash(least, most ringSize) Policy {
	v.capped(least)
	if least.entries == 0 {
		least.entries = defaultMinRingSize
	}
	if most.entries == 0 {
		most.entries = zeroMaxRingSize
	}
	for _, size := range []ringSize{least, most} {
		if size.entries > maxRingSize {
			v.refuse(size.field, "is %d: it must be at most %d", size.entries, maxRingSize)
		}
	}
	if least.entries > most.entries {
		v.refuse(least.field, "is %d, more than the maximum, %d", least.entries, most.entries)
	}
	return Policy{Name: PolicyRingHash, RingHash: &RingHash{MinSize: min(least.entries, RingSizeCap), MaxSize: min(most.entries, RingSizeCap)}}
}

// capped warns of a size that no ring has.
func (v *verdict) capped(size ringSize) {
	if size.entries > RingSizeCap {
		v.warnByHand(size.field, "is %d: taken as %d, the most entries that a ring has", size.entries, RingSizeCap)
	}
}

// defaultWeightedRoundRobin is weighted_round_robin's config where nothing is
// configured (gRFC A58).
var defaultWeightedRoundRobin = WeightedRoundRobin{
	BlackoutPeriod:          10 * time.Second,
	WeightExpirationPeriod:  3 * time.Minute,
	WeightUpdatePeriod:      time.Second,
	ErrorUtilizationPenalty: 1,
}

// minWeightUpdatePeriod is the shortest that gRPC updates weights in.
const minWeightUpdatePeriod = 100 * time.Millisecond

// weightedProto judges client_side_weighted_round_robin's config. gRPC takes a
// zero in it as absent, though not in the JSON of the policy.
func (v *verdict) weightedProto(m *weightedv3.ClientSideWeightedRoundRobin, field string) Policy {
	v.fields(m, field)
	if m.GetEnableOobLoadReport().GetValue() {
		v.warnUnapplied(m, "enable_oob_load_report", field+".enable_oob_load_report", noOutOfBand)
	}
	at := func(name string) string { return join(field, name) }
	c := defaultWeightedRoundRobin
	for _, d := range []struct {
		name  string
		value *durationpb.Duration
		into  *time.Duration
	}{
		{"blackout_period", m.GetBlackoutPeriod(), &c.BlackoutPeriod},
		{"weight_expiration_period", m.GetWeightExpirationPeriod(), &c.WeightExpirationPeriod},
		{"weight_update_period", m.GetWeightUpdatePeriod(), &c.WeightUpdatePeriod},
	} {
		if d.value == nil {
			continue
		}
		if err := d.value.CheckValid(); err != nil && v.byHand {
			v.refuse(at(d.name), "is no duration: %s", plain(err))
		} else if period := d.value.AsDuration(); period != 0 {
			*d.into = period
		} else {
			v.warnByHand(at(d.name), "is 0s, which means the default here, as in gRPC: taken as %s", *d.into)
		}
	}
	const penalty = "error_utilization_penalty"
	switch n := float64(m.GetErrorUtilizationPenalty().GetValue()); {
	case m.GetErrorUtilizationPenalty() == nil:
	case math.IsNaN(n) || math.IsInf(n, 0):
		v.refuse(at(penalty), "is %v: it must be a finite number", n)
	case n == 0:
		v.warnByHand(at(penalty), "is 0, which means the default here, as in gRPC: taken as %v", c.ErrorUtilizationPenalty)
	default:
		c.ErrorUtilizationPenalty = n
	}
	return v.weighted(c, at)
}

// noOutOfBand is why a field is not applied that asks endpoints for their loads.
const noOutOfBand = "is not applied: loads are those that are reported with the outcomes of picks"

// outOfBand warns of loads that are not asked for.
func (v *verdict) outOfBand(field string) {
	v.warn(field, noOutOfBand)
}

// weighted judges weighted_round_robin's config. at is the path of a field.
func (v *verdict) weighted(c WeightedRoundRobin, at func(name string) string) Policy {
	if v.byHand { // gRPC takes any
		for _, d := range []struct {
			name  string
			value time.Duration
		}{
			{"blackout_period", c.BlackoutPeriod},
			{"weight_expiration_period", c.WeightExpirationPeriod},
			{"weight_update_period", c.WeightUpdatePeriod},
		} {
			if d.value < 0 {
				v.refuse(at(d.name), "is negative")
			}
		}
	}
	if c.ErrorUtilizationPenalty < 0 {
		v.refuse(at("error_utilization_penalty"), "is %v: it must not be negative", c.ErrorUtilizationPenalty)
	}
	if c.WeightUpdatePeriod < minWeightUpdatePeriod {
		v.warnByHand(at("weight_update_period"), "is %s: taken as %s, the shortest there is", c.WeightUpdatePeriod, minWeightUpdatePeriod)
		c.WeightUpdatePeriod = minWeightUpdatePeriod
	}
	return Policy{Name: PolicyWeightedRoundRobin, WeightedRoundRobin: &c}
}
