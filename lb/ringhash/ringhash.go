// Package ringhash is gRPC's ring_hash_experimental: requests with the same hash go to
// the same endpoint, and few change theirs when endpoints change (gRFC A42, A61, A76).
package ringhash

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Name is the policy's name in gRPC's registry.
const Name = "ring_hash_experimental"

// Builder returns the builder of ring_hash policies, whose config is a [Config]. They
// weigh endpoints by [policy.WeightsOf].
func Builder() policy.Builder {
	return policy.NewEndpointBuilder(Name, resource.PolicyTraits{
		SharesHold: ": these are the shares of the hashes, and of the picks if all hashes are equally frequent",
	}, readConfig, func(e *endpoints) policy.EndpointPolicy[own] {
		e.Lazy = true
		return &ringHash{endpoints: e}
	})
}

type endpoints = policy.Endpoints[Config, own]

// ringHash connects an endpoint when a pick chooses it, or when others have failed. It
// belongs to the owner.
type ringHash struct {
	*endpoints

	byKey []*member // the order in which endpoints are tried without a pick

	placed Config // what ring is made with
	spots  []spot // what ring is made of
	ring   ring
}

type member = policy.Member[own]

// own is what ring_hash keeps for an endpoint.
type own struct {
	// asked is set by a pick of an IDLE endpoint, and cleared by the owner, which
	// connects it.
	asked atomic.Bool
}

func (b *ringHash) Update(given policy.Child) error {
	err := b.endpoints.Update(given)
	b.place(policy.WeightsOf(given.Localities))
	return err
}

// place makes another ring, unless it would be the same.
func (b *ringHash) place(weights policy.Weights) {
	spots := make([]spot, len(b.Order))
	for i, m := range b.Order {
		spots[i] = spot{key: key(m.Endpoint), weight: weights.Of(m.Endpoint), seat: i}
	}
	b.byKey = slices.Clone(b.Order)
	slices.SortStableFunc(b.byKey, func(a, c *member) int { return cmp.Compare(key(a.Endpoint), key(c.Endpoint)) })
	if b.ring != nil && b.placed == b.Config && slices.Equal(b.spots, spots) {
		return
	}
	b.placed, b.spots, b.Stale = b.Config, spots, true
	b.ring = newRing(spots, b.Config.MinSize, b.Config.MaxSize)
}

// key places an endpoint on the ring (gRFC A76).
func key(e *resource.Endpoint) string { return cmp.Or(e.HashKey, e.Addresses[0]) }

// EndpointChanged makes the policy report if picks see a difference: none while a
// failed endpoint retries.
func (b *ringHash) EndpointChanged(m *member, _, counted connectivity.State) {
	if m.State() == connectivity.TransientFailure {
		b.Err, b.Stale = m.LastErr, true
	}
	b.Stale = b.Stale || m.Counted() != counted
	b.Mark()
}

// connect connects an endpoint that a pick chose.
func (b *ringHash) connect(m *member) {
	m.Own.asked.Store(false)
	if b.Connect(m) {
		b.MarkStale()
	}
}

func (b *ringHash) Report() {
	if b.tryAnother() {
		b.Mark() // what the endpoint answers at once goes up with the rest
		return
	}
	b.Send(b.state(), b.Picker)
}

// state aggregates the endpoints' states. Two failed endpoints are a failure, so that
// the next priority is used; one is not if there are others, because tryAnother
// connects one of them (gRFC A42).
func (b *ringHash) state() connectivity.State {
	c := b.Counted
	if c.Ready == 0 && c.TransientFailure > 1 {
		return connectivity.TransientFailure
	}
	return c.Best()
}

// tryAnother connects an endpoint if others have failed and none is READY or
// CONNECTING: below priority, there may be no picks to do that.
func (b *ringHash) tryAnother() bool {
	c := b.Counted
	if c.TransientFailure == 0 || c.Ready > 0 || c.Connecting > 0 {
		return false
	}
	return slices.ContainsFunc(b.byKey, b.Connect)
}

// Picker returns the picker of any state: each hash has its own endpoint to wait for
// or to fail with.
func (b *ringHash) Picker(state connectivity.State) balancer.Picker {
	if len(b.Order) == 0 {
		return &policy.ErrPicker{Err: b.Err}
	}
	p := &picker{
		ring:       b.ring,
		seats:      make([]seat, len(b.Order)),
		connecting: b.Counted.Connecting > 0,
		draw:       b.Conn.Draw(),
		policy:     b,
	}
	for i, m := range b.Order {
		p.seats[i] = seat{Upstream: m.Upstream, member: m, state: m.Counted(), err: m.LastErr}
	}
	if state == connectivity.TransientFailure {
		p.Err = b.Err
	}
	return p
}

// Shares returns the part of all hashes of each endpoint. Hashes of a failed endpoint
// belong to the next.
func (b *ringHash) Shares() []float64 {
	shares := make([]float64, len(b.Order))
	if b.Counted.TransientFailure == len(shares) {
		return shares
	}
	place := func(e entry) float64 { return float64(e.hash) / (1 << 64) }
	n := len(b.ring)
	arc := 1 - place(b.ring[n-1]) + place(b.ring[0])
	for i := range 2 * n { // the second time round ends the arc that the first left open
		e := b.ring[i%n]
		if 0 < i && i < n {
			arc += place(e) - place(b.ring[i-1])
		}
		if b.Order[e.seat].Counted() != connectivity.TransientFailure {
			shares[e.seat] += arc
			arc = 0
		}
	}
	return shares
}

// Describe adds the arcs of the ring.
func (b *ringHash) Describe() policy.Node {
	n := b.endpoints.Describe()
	if len(b.Order) == 0 {
		return n
	}
	ring, members, failed := b.ring, make([]*resource.Endpoint, len(b.Order)), make([]bool, len(b.Order))
	for i, m := range b.Order {
		members[i], failed[i] = m.Endpoint, m.Counted() == connectivity.TransientFailure
	}
	n.Arcs = func() []policy.Arc { return ring.arcs(members, failed) }
	return n
}

// arcs returns the endpoint of each hash: those of a failed endpoint belong to the next.
func (r ring) arcs(members []*resource.Endpoint, failed []bool) []policy.Arc {
	out := make([]policy.Arc, len(r))
	var next *resource.Endpoint
	for i := 2*len(r) - 1; i >= 0; i-- { // the second time round closes the ring
		e := r[i%len(r)]
		if !failed[e.seat] {
			next = members[e.seat]
		}
		out[i%len(r)] = policy.Arc{End: e.hash, Endpoint: next}
	}
	return out
}

// Config is ring_hash's config (gRFC A42). Both sizes are entries of the ring, sizeCap
// at most.
type Config struct {
	serviceconfig.LoadBalancingConfig

	MinSize, MaxSize uint64
}

const (
	defaultMinSize = 1024
	// maxSize limits what can be configured, and sizeCap the ring.
	maxSize = 8 << 20
	sizeCap = 4096
)

func readConfig(r *policy.ConfigReader) Config {
	const minRingSize, maxRingSize, requestHashHeader = "minRingSize", "maxRingSize", "requestHashHeader"
	var c Config
	header := ""
	r.Read(map[string]any{minRingSize: &c.MinSize, maxRingSize: &c.MaxSize}, map[string]any{requestHashHeader: &header})
	if header != "" {
		judgeHeader(r, strings.ToLower(header), requestHashHeader)
	}
	c.MinSize = cmp.Or(c.MinSize, defaultMinSize)
	c.MaxSize = cmp.Or(c.MaxSize, sizeCap)
	for _, size := range []struct {
		name    string
		entries uint64
	}{{minRingSize, c.MinSize}, {maxRingSize, c.MaxSize}} {
		if size.entries > sizeCap {
			r.WarnByHand(size.name, "is %d: reduced to %d, the maximum", size.entries, sizeCap)
		}
		if size.entries > maxSize {
			r.Invalid(size.name, "is %d: it must be at most %d", size.entries, maxSize)
		}
	}
	if c.MinSize > c.MaxSize {
		r.Invalid(minRingSize, "is %d, more than the maximum, %d", c.MinSize, c.MaxSize)
	}
	c.MinSize, c.MaxSize = min(c.MinSize, sizeCap), min(c.MaxSize, sizeCap)
	return c
}

// judgeHeader validates the header that gRPC would hash (gRFC A76).
func judgeHeader(r *policy.ConfigReader, header, member string) {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	switch {
	case header[0] != ':' && strings.Trim(header, letters) != "":
		r.Invalid(member, "is %q, which cannot name a header", header)
	case strings.HasSuffix(header, "-bin"):
		r.Invalid(member, "is %q: a binary header cannot be hashed", header)
	default:
		r.Warn(member, "is not applied: the hash is the pick's own")
	}
}

// spot is an endpoint to be placed on a ring.
type spot struct {
	key    string
	weight uint32 // at least 1
	seat   int    // its index among the seats of pickers
}

// entry is one point of a ring.
type entry struct {
	hash uint64
	seat int32
}

// ring has the entries in the order of their hashes. It is immutable.
type ring []entry

// newRing places each endpoint on a share of the entries that is proportional to its
// weight (gRFC A42). The ring is large enough to give the endpoint with the lowest
// weight a whole number of entries at minSize, within maxSize. The arithmetic is
// exactly gRPC's, because all clients must have the same ring.
//
// An entry's hash is XXH64 of the endpoint's key, "_" and the number of the entry.
func newRing(spots []spot, minSize, maxSize uint64) ring {
	var sum uint64
	for _, s := range spots {
		sum += uint64(s.weight)
	}
	spots = slices.Clone(spots)
	slices.SortStableFunc(spots, func(a, b spot) int { return cmp.Compare(a.key, b.key) })
	part := func(s spot) float64 { return float64(s.weight) / float64(sum) }
	lightest := 1.0
	for _, s := range spots {
		lightest = min(lightest, part(s))
	}
	scale := min(math.Ceil(lightest*float64(minSize))/lightest, float64(maxSize))

	r := make(ring, 0, int(math.Ceil(scale)))
	var target float64 // how many entries the ring has once this endpoint is placed
	var name []byte
	for _, s := range spots {
		target += scale * part(s)
		name = append(append(name[:0], s.key...), '_')
		stem := len(name)
		for i := int64(0); float64(len(r)) < target; i++ {
			name = strconv.AppendInt(name[:stem], i, 10)
			r = append(r, entry{hash: xxhash.Sum64(name), seat: int32(s.seat)})
		}
	}
	slices.SortStableFunc(r, func(a, b entry) int { return cmp.Compare(a.hash, b.hash) })
	return r
}

// at returns the place of the first entry whose hash is at least h; after the last is
// the first.
func (r ring) at(h uint64) int {
	low, high := 0, len(r)
	for low < high { // by hand: a func called at each step makes the whole pick half as slow again
		if middle := (low + high) / 2; r[middle].hash < h {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == len(r) {
		return 0
	}
	return low
}
