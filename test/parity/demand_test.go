package parity_test

import (
	"cmp"
	"fmt"
	"iter"
	"math/big"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/connectivity"
)

// demand is what picks must be like, by the resources and by which addresses
// accept connections: reasoned from both, with no code of either side.
type demand struct {
	policy *lbPolicy
	// priorities holds, from the highest on, the localities that count: those of
	// the leaves in a row, where there are several.
	priorities [][]*site
	// priority is the one in use; -1 without any.
	priority int
	// ready is true if it has an endpoint that picks can reach.
	ready bool
	// groups are the endpoints among which the policy chooses, with the parts
	// that groups have of all picks that pass.
	groups []group
	// drops are the chances that a pick is dropped by each category, of those
	// that the ones before it let pass.
	drops []chance
	limit uint32
	// apart is true where grpc-go does something else, by a listed difference: it
	// fails an aggregate as a whole of which a leaf cannot be used, and takes the
	// aggregate's policy for its leaves. lbd alone is held against the demand then.
	apart bool
	// skips is true where the last leaf is skipped: the error of failed picks is
	// another leaf's, where grpc-go has that of the last one.
	skips bool
	// untried is true where picks may not get so far as to have an endpoint
	// connected. Nothing is demanded then but that both sides answer alike, and
	// are in the same state as far as that is no matter of what was before.
	untried bool
}

type group struct {
	part *big.Rat
	keys []string
}

// chance is a drop category's.
type chance struct {
	category string
	of       *big.Rat
}

// site is a locality at a priority. Endpoints are known by their first
// addresses.
type site struct {
	zone      string
	weight    uint32
	endpoints []spot
}

// spot is an endpoint that picks may reach.
type spot struct {
	key       string
	addresses []string
}

// accepted is a cluster with endpoints as both sides have taken it.
type accepted struct {
	cluster    *clusterv3.Cluster
	assignment *endpointv3.ClusterLoadAssignment
	policy     *lbPolicy
	// why is why there is none, of a leaf.
	why kind
}

// skipped reports whether an aggregate skips the leaf (gRFC A74).
func (l accepted) skipped() bool { return l.why != "" || l.assignment == nil }

// demandOf takes the leaves of an aggregate, or one cluster alone.
func demandOf(leaves []accepted, up map[string]bool) *demand {
	d := &demand{priority: -1}
	in := leaves[0]
	for _, l := range leaves {
		d.limits(l)
		d.untried = d.untried || d.limit == 0 && l.why == "" && l.policy.lazy()
		d.apart = d.apart || l.why != ""
		d.skips = len(leaves) > 1 && l.skipped()
		priorities := sites(l.assignment)
		if len(priorities) == 0 && len(leaves) > 1 {
			priorities = [][]*site{nil} // an empty leaf has its place too
		}
		for _, sites := range priorities {
			// Where none is ready the last one is in use whose leaf is not skipped.
			if !d.ready && !d.skips {
				d.priority, in = len(d.priorities), l
				d.policy = l.policy
				d.use(sites, up)
			}
			d.priorities = append(d.priorities, sites)
		}
	}
	d.limits(in)
	if d.policy == nil { // all leaves are skipped
		d.policy = cmp.Or(in.policy, lbPolicies[0])
	}
	return d
}

// limits takes the limits of a cluster.
func (d *demand) limits(l accepted) {
	d.drops, d.limit = dropsOf(l.assignment), 1024
	for _, t := range l.cluster.GetCircuitBreakers().GetThresholds() {
		if t.GetPriority() == corev3.RoutingPriority_DEFAULT {
			if t.GetMaxRequests() != nil {
				d.limit = t.GetMaxRequests().GetValue()
			}
			break
		}
	}
}

// sites are the localities that have a weight, by priority. An assignment
// without any has one priority without endpoints.
func sites(a *endpointv3.ClusterLoadAssignment) [][]*site {
	var out [][]*site
	for _, g := range a.GetEndpoints() {
		if g.GetLoadBalancingWeight().GetValue() == 0 {
			continue
		}
		s := &site{zone: g.GetLocality().GetZone(), weight: g.GetLoadBalancingWeight().GetValue()}
		for _, e := range g.GetLbEndpoints() {
			if h := e.GetHealthStatus(); h != corev3.HealthStatus_UNKNOWN && h != corev3.HealthStatus_HEALTHY {
				continue
			}
			sp := spot{addresses: []string{address(e.GetEndpoint().GetAddress())}}
			sp.key = sp.addresses[0]
			for _, more := range e.GetEndpoint().GetAdditionalAddresses() {
				sp.addresses = append(sp.addresses, address(more.GetAddress()))
			}
			s.endpoints = append(s.endpoints, sp)
		}
		for int(g.GetPriority()) >= len(out) {
			out = append(out, nil)
		}
		out[g.GetPriority()] = append(out[g.GetPriority()], s)
	}
	return out
}

// prioritiesMoved reports whether an update splits, merges or removes a priority of an
// assignment, from the nth on.
func prioritiesMoved(was, is [][]*site, n int) bool {
	for _, p := range was[min(max(n, 0), len(was)):] {
		heirs := sharing(p, is)
		if len(heirs) != 1 || len(sharing(heirs[0], was)) != 1 {
			return true
		}
	}
	return false
}

// sharing lists the priorities that have a locality in common with one.
func sharing(p []*site, all [][]*site) [][]*site {
	return slices.DeleteFunc(slices.Clone(all), func(other []*site) bool {
		return !slices.ContainsFunc(other, func(s *site) bool {
			return slices.ContainsFunc(p, func(t *site) bool { return s.zone == t.zone })
		})
	})
}

func address(a *corev3.Address) string {
	return fmt.Sprintf("%s:%d", a.GetSocketAddress().GetAddress(), a.GetSocketAddress().GetPortValue())
}

// use takes one priority as the one in use.
func (d *demand) use(sites []*site, up map[string]bool) {
	if d.policy.alone {
		all := &site{weight: 1}
		for _, s := range sites {
			all.endpoints = append(all.endpoints, s.endpoints...)
		}
		sites = []*site{all}
	}
	var total int64
	for _, s := range sites {
		g := group{part: big.NewRat(int64(s.weight), 1)}
		for _, sp := range s.endpoints {
			if sp.live(up) {
				g.keys = append(g.keys, sp.key)
			}
		}
		if len(g.keys) > 0 {
			d.groups = append(d.groups, g)
			total += int64(s.weight)
		}
	}
	d.ready = len(d.groups) > 0
	for _, g := range d.groups {
		g.part.Quo(g.part, big.NewRat(total, 1))
	}
}

// shares are the parts of the picks that endpoints get, where no hash decides.
func (d *demand) shares() map[string]*big.Rat {
	shares := make(map[string]*big.Rat)
	for _, g := range d.groups {
		for _, key := range g.keys {
			shares[key] = new(big.Rat).Mul(g.part, big.NewRat(1, int64(len(g.keys))))
		}
	}
	return shares
}

func (s spot) live(up map[string]bool) bool {
	return slices.ContainsFunc(s.addresses, func(a string) bool { return up[a] })
}

// spots returns the endpoints of all priorities.
func (d *demand) spots() iter.Seq[spot] {
	return func(yield func(spot) bool) {
		for _, s := range slices.Concat(d.priorities...) {
			for _, sp := range s.endpoints {
				if !yield(sp) {
					return
				}
			}
		}
	}
}

// wrongState returns an error if a side's state of an endpoint is not the real one.
func (d *demand) wrongState(side string, v view, up map[string]bool, net *upstreams) error {
	for sp := range d.spots() {
		connected, failed := false, false
		for _, a := range sp.addresses {
			state, known := v.states[a]
			if known && state == connectivity.Ready {
				if !up[a] {
					return fmt.Errorf("%s still takes %s for connected", side, net.named(a))
				}
				connected = true
				break
			}
			failed = failed || known && state != connectivity.Idle && !d.policy.one
		}
		if !connected && failed && sp.live(up) {
			return fmt.Errorf("%s is not connected to %s", side, net.named(sp.key))
		}
	}
	return nil
}

// partlyEmpty reports whether some locality of the priority in use, but not all,
// has no endpoint that picks may reach.
func (d *demand) partlyEmpty() bool {
	if d.priority < 0 {
		return false
	}
	empty := func(s *site) bool { return len(s.endpoints) == 0 }
	sites := d.priorities[d.priority]
	return slices.ContainsFunc(sites, empty) && len(slices.DeleteFunc(slices.Clone(sites), empty)) > 0
}

// keys returns, for each address, the first address of its endpoint.
func (d *demand) keys() map[string]string {
	m := make(map[string]string)
	for sp := range d.spots() {
		for _, a := range sp.addresses {
			m[a] = sp.key
		}
	}
	return m
}

// single has the addresses of endpoints with one address.
func (d *demand) single() map[string]bool {
	m := make(map[string]bool)
	for sp := range d.spots() {
		m[sp.key] = len(sp.addresses) == 1
	}
	return m
}

func dropsOf(a *endpointv3.ClusterLoadAssignment) []chance {
	var out []chance
	for _, o := range a.GetPolicy().GetDropOverloads() {
		denominator := int64(100)
		switch o.GetDropPercentage().GetDenominator() {
		case typev3.FractionalPercent_TEN_THOUSAND:
			denominator = 10_000
		case typev3.FractionalPercent_MILLION:
			denominator = 1_000_000
		}
		out = append(out, chance{o.GetCategory(), big.NewRat(min(int64(o.GetDropPercentage().GetNumerator()), denominator), denominator)})
	}
	return out
}

// passes is the chance that a pick is not dropped.
func (d *demand) passes() *big.Rat {
	p := big.NewRat(1, 1)
	if !d.ready {
		return p
	}
	for _, c := range d.drops {
		p.Mul(p, new(big.Rat).Sub(big.NewRat(1, 1), c.of))
	}
	return p
}

func TestPrioritiesMoved(t *testing.T) {
	// "a b | c" is a and b in the highest priority, c below it.
	read := func(text string) [][]*site {
		var out [][]*site
		for p := range strings.SplitSeq(text, "|") {
			var sites []*site
			for zone := range strings.FieldsSeq(p) {
				sites = append(sites, &site{zone: zone})
			}
			out = append(out, sites)
		}
		return out
	}
	for _, tt := range []struct {
		was, is string
		from    int
		want    bool
	}{
		{"a | b", "a | b", 0, false},
		{"a | b", "b | a", 0, false},
		{"a | b", "a | b c | d", 0, false},
		{"a | b c", "a | b", 0, false},
		{"a | b", "a", 1, true},
		{"a | b", "a", 2, false},
		{"a | b", "b", 1, false},
		{"a | b | c", "a | b c", 1, true},
		{"a | b c", "a | b | c", 1, true},
		{"a | b", "a", -1, true},
		{"a", "a", 5, false},
	} {
		if got := prioritiesMoved(read(tt.was), read(tt.is), tt.from); got != tt.want {
			t.Errorf("%q, then %q: %t from %d on, want %t", tt.was, tt.is, got, tt.from, tt.want)
		}
	}
}
