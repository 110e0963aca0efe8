package parity_test

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
)

// comparison has the differences of one step.
type comparison struct {
	demand *demand
	named  func(string) string
	found  []string // differences
}

func (c *comparison) differ(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

// described holds lbd's description of itself against the demand, exactly.
func (c *comparison) described(shares map[string]*big.Rat, priority int) {
	d := c.demand
	if priority != d.priority {
		c.differ("lbd says that priority %d is in use; demanded is %d", priority, d.priority)
	}
	if d.policy.lazy() {
		return
	}
	demanded := d.shares()
	for _, key := range union(shares, demanded) {
		got, want := shares[key], demanded[key]
		if got == nil {
			got = new(big.Rat)
		}
		if want == nil {
			want = new(big.Rat)
		}
		if got.Cmp(want) != 0 {
			c.differ("lbd says that %s has %s of the picks; demanded is %s", c.named(key), got.RatString(), want.RatString())
		}
	}
}

// polled holds what picks of one side came to against the demand.
func (c *comparison) polled(s side, p *poll) {
	c.proportions(s.name(), p)
	if p.kinds[picked] == 0 {
		return
	}
	if c.demand.policy.turns {
		c.tookTurns(s.name(), p, among(p.counts, c.demand.keys()))
	}
	if p.granted != int(c.demand.limit) {
		c.differ("%s granted %d picks that are held; demanded is %d", s.name(), p.granted, c.demand.limit)
	}
}

// proportions holds the parts that drops and endpoints have of a side's picks
// against the demand.
func (c *comparison) proportions(side string, p *poll) {
	d := c.demand
	n := p.picks - p.kinds[dropped]
	passes, _ := d.passes().Float64()
	if implausible(p.kinds[dropped], p.picks, 1-passes, 1) {
		c.differ("%s dropped %d of %d picks; demanded is %.4f of them", side, p.kinds[dropped], p.picks, 1-passes)
	}
	c.gaveUp(side, p, n)
	if p.kinds[picked] == 0 {
		return
	}
	counts := among(p.counts, d.keys())
	switch {
	case d.policy.hashes:
		c.onlyLive(side, counts)
	case d.policy.one:
		c.onlyLive(side, counts)
		c.oneOfEach(side, counts, n)
	default:
		c.shared(side, counts, n)
	}
}

// shared holds the counts of endpoints against their shares.
func (c *comparison) shared(side string, counts map[string]int, n int) {
	shares := c.demand.shares()
	for _, key := range union(counts, shares) {
		want := 0.0
		if r := shares[key]; r != nil {
			want, _ = r.Float64()
		}
		if implausible(counts[key], n, want, len(shares)) {
			c.differ("%s picked %s %d times of %d; demanded is %.4f of them", side, c.named(key), counts[key], n, want)
		}
	}
}

// onlyLive holds what was picked against what can be.
func (c *comparison) onlyLive(side string, counts map[string]int) {
	shares := c.demand.shares()
	for key, n := range counts {
		if shares[key] == nil {
			c.differ("%s picked %s %d times, which cannot be picked", side, c.named(key), n)
		}
	}
}

// oneOfEach: one endpoint of each group has all of the group's picks.
func (c *comparison) oneOfEach(side string, counts map[string]int, n int) {
	for _, g := range c.demand.groups {
		part, _ := g.part.Float64()
		total, used := 0, 0
		for _, key := range g.keys {
			total += counts[key]
			used += min(1, counts[key])
		}
		if used > 1 || implausible(total, n, part, len(c.demand.groups)) {
			c.differ("%s picked %d of %v, %d times of %d; demanded is one, and %.4f of them",
				side, used, c.namesOf(g.keys), total, n, part)
		}
	}
}

// categories holds lbd's counts of drops by category against the demand.
func (c *comparison) categories(before, after map[string]uint64) {
	passed := 1.0
	for _, d := range c.demand.drops {
		of, _ := d.of.Float64()
		want := passed * of
		if !c.demand.ready {
			want = 0
		}
		n := int(after[d.category] - before[d.category])
		if implausible(n, picks, want, len(c.demand.drops)) {
			c.differ("lbd counts %d picks of %d dropped by %s; demanded is %.4f of them", n, picks, d.category, want)
		}
		passed *= 1 - of
	}
}

// gaveUp holds the kinds of what was not picked against the demand, as far as
// it knows them.
func (c *comparison) gaveUp(side string, p *poll, n int) {
	switch d := c.demand; {
	case d.limit == 0:
		if p.kinds[broken] != n {
			c.differ("%s let picks pass a limit of 0: %v", side, p.kinds)
		}
	case d.ready && p.kinds[picked] != n && !d.policy.hashes: // a small ring has no place for some
		c.differ("%s did not answer every pick with an endpoint: %v", side, p.kinds)
	case !d.ready && p.kinds[picked] > 0:
		c.differ("%s picked where nothing is to be picked: %v", side, p.kinds)
	}
}

// tookTurns: endpoints of a group differ by one pick at most, for each picker
// that answered.
func (c *comparison) tookTurns(side string, p *poll, counts map[string]int) {
	for _, g := range c.demand.groups {
		lowest, highest := counts[g.keys[0]], counts[g.keys[0]]
		for _, key := range g.keys {
			lowest, highest = min(lowest, counts[key]), max(highest, counts[key])
		}
		if highest-lowest > p.pickers {
			c.differ("%s picked endpoints that take turns %d to %d times, in %d pickers", side, lowest, highest, p.pickers)
		}
	}
}

// both holds the two sides against each other, in what the demand leaves open.
func (c *comparison) both(g, l *poll) {
	c.gaveUpAlike(g, l)
	// Which of its addresses an endpoint is connected to is a matter of whose
	// back-off ends first, once all of them have failed.
	keys := c.demand.keys()
	if c.demand.policy.hashes {
		for i := range hashes {
			if a, b := among(g.byHash[i], keys), among(l.byHash[i], keys); !slices.Equal(c.names(a), c.names(b)) {
				c.differ("grpc-go picks %v for %q, lbd %v", c.names(a), hashText(i), c.names(b))
			}
		}
		return
	}
	if c.demand.policy.one {
		return
	}
	ofGRPC, ofLBD := among(g.counts, keys), among(l.counts, keys)
	for _, key := range union(ofGRPC, ofLBD) {
		if c.much(key) && (ofGRPC[key] == 0) != (ofLBD[key] == 0) {
			c.differ("grpc-go picks %s %d times, lbd %d times", c.named(key), ofGRPC[key], ofLBD[key])
		}
	}
}

// gaveUpAlike holds the kinds of failures of the two sides against each other.
func (c *comparison) gaveUpAlike(g, l *poll) {
	a, b := g.failures(), l.failures()
	if slices.Contains(b, string(none)) && c.demand.partlyEmpty() {
		b = slices.DeleteFunc(b, func(k string) bool { return k == string(none) })
		if len(b) == 0 {
			return // the others' part of the picks may be small
		}
	}
	if !slices.Equal(a, b) {
		c.differ("grpc-go gives up picks by %q, lbd by %q", a, b)
	}
}

func (c *comparison) names(counts map[string]int) []string {
	return c.namesOf(slices.Sorted(maps.Keys(counts)))
}

func (c *comparison) namesOf(keys []string) []string {
	out := make([]string, len(keys))
	for i, key := range keys {
		out[i] = c.named(key)
	}
	return out
}

// connections compares how often each endpoint was connected to, and which
// connections are held, of priorities too that are not in use. An endpoint with
// several addresses may be connected to twice: the second is tried before the
// first has failed.
func (c *comparison) connections(byGRPC, byLBD map[string]int, heldByGRPC, heldByLBD []string) {
	single := c.demand.single()
	lone := func(held []string) []string {
		return c.namesOf(slices.DeleteFunc(slices.Clone(held), func(a string) bool { return !single[a] }))
	}
	if a, b := lone(heldByGRPC), lone(heldByLBD); !slices.Equal(a, b) {
		c.differ("grpc-go holds the connections %v, lbd %v", a, b)
	}
	for _, address := range union(byGRPC, byLBD) {
		if single[address] && byGRPC[address] != byLBD[address] {
			c.differ("grpc-go connected %d times to %s, lbd %d times", byGRPC[address], c.named(address), byLBD[address])
		}
	}
}

// much reports whether an endpoint has so many picks that none is no chance.
func (c *comparison) much(key string) bool {
	share := c.demand.shares()[key]
	if share == nil {
		return true
	}
	p, _ := share.Float64()
	passes, _ := c.demand.passes().Float64()
	return p*passes*picks > 50
}

func union[V, W any](a map[string]V, b map[string]W) []string {
	all := make(map[string]bool, len(a)+len(b))
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return slices.Sorted(maps.Keys(all))
}
