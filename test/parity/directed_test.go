package parity_test

import (
	"context"
	"fmt"
	"slices"
)

// asks is the number of times that each request is made on each side.
const asks = 400

// answers are the results of a request on one side, by the chosen cluster, or by the kind
// of failure if there is none.
type answers struct {
	clusters map[string]*poll
	failures map[kind]int
}

func (s *hostingScenario) askAll(ctx context.Context, ask func(context.Context, *request) directed, r *request) answers {
	a := answers{make(map[string]*poll), make(map[kind]int)}
	for range asks {
		d := ask(ctx, r)
		if d.cluster == "" {
			a.failures[either(s.good.failure, d.kind)]++
			continue
		}
		p := a.clusters[d.cluster]
		if p == nil {
			p = &poll{kinds: make(map[kind]int), counts: make(map[string]int)}
			a.clusters[d.cluster] = p
		}
		p.picks++
		p.kinds[d.kind]++
		if d.kind == picked {
			p.counts[d.address]++
			d.done()
		}
	}
	return a
}

// directed compares where a request goes, on each side with what the resources
// demand and on both with each other.
func (s *hostingScenario) directed(ctx context.Context, r *request, up map[string]bool) (found []string) {
	differ := func(format string, args ...any) {
		found = append(found, fmt.Sprintf("%s %v: ", r.path, r.headers)+fmt.Sprintf(format, args...))
	}
	leads := []led{{chance: 1, failure: s.good.failure}}
	if s.good.failure == "" {
		leads = s.good.host.leads(r)
	}
	byGRPC, byLBD := s.askAll(ctx, s.grpc.ask, r), s.askAll(ctx, s.lbd.ask, r)
	for side, a := range map[string]answers{"grpc-go": byGRPC, "lbd": byLBD} {
		for _, l := range leads {
			n := a.failures[l.failure]
			if l.cluster != "" {
				n = a.clusters[l.cluster].total()
			}
			if implausible(n, asks, chanceOf(l), len(leads)+1) {
				differ("%s leads %d of %d to %q %s; demanded is %.4f of them", side, n, asks, l.cluster, l.failure, l.chance)
			}
		}
		for cluster, p := range a.clusters {
			if !slices.ContainsFunc(leads, func(l led) bool { return l.cluster == cluster }) {
				differ("%s leads %d of %d to cluster %q, where no route does", side, p.picks, asks, cluster)
			}
		}
		for failure, n := range a.failures {
			if !slices.ContainsFunc(leads, func(l led) bool { return l.failure == failure && l.cluster == "" }) {
				differ("%s fails %d of %d: %s", side, n, asks, failure)
			}
		}
	}
	for _, l := range leads {
		g, o := byGRPC.clusters[l.cluster], byLBD.clusters[l.cluster]
		if l.cluster == "" || g == nil || o == nil {
			continue
		}
		for _, text := range s.fromCluster(l, g, o, up) {
			differ("%s: %s", l.cluster, text)
		}
	}
	return found
}

// chanceOf is that of a way to go, and never nothing: grpc-go takes one request of
// a million more than a fraction says.
func chanceOf(l led) float64 { return max(l.chance, 1e-6) }

// total is the number of picks; none of no poll.
func (p *poll) total() int {
	if p == nil {
		return 0
	}
	return p.picks
}

// fewest is how many picks each side must have for what their failures are like
// to be no matter of chance.
const fewest = 50

// fromCluster compares what came of the picks that went to a cluster.
func (s *hostingScenario) fromCluster(l led, g, o *poll, up map[string]bool) []string {
	d, failures := s.good.demand(l.cluster, up)
	if failures != nil {
		var found []string
		for side, p := range map[string]*poll{"grpc-go": g, "lbd": o} {
			if p.failedBy(failures) != p.picks && !(p == g && s.grpc.revived(l.cluster)) {
				found = append(found, fmt.Sprintf("%s answers %v; demanded is %q", side, p.kinds, failures))
			}
		}
		return found
	}
	if d.untried && s.renamed {
		return nil
	}
	if d.apart {
		g = o // lbd alone is held against the demand
	}
	c := &comparison{demand: d, named: s.net.named}
	drawn := d.policy.hashes && l.hashing == byChance // some may choose endpoints that are not connected
	if !drawn && g.picks >= fewest && o.picks >= fewest && (d.ready || !d.skips) {
		c.gaveUpAlike(g, o)
	}
	if d.untried {
		return c.found
	}
	c.proportions("grpc-go", g)
	c.proportions("lbd", o)
	if d.policy.hashes && !drawn {
		c.hashed(l, g, o)
	}
	return c.found
}

// failedBy counts the picks that failed by one of some kinds.
func (p *poll) failedBy(failures []kind) (n int) {
	for k, of := range p.kinds {
		if slices.ContainsFunc(failures, func(failure kind) bool { return either(failure, k) == failure }) {
			n += of
		}
	}
	return n
}

// hashed: what a request is hashed by leads to one endpoint on each side; to the
// same, unless it is the channel's.
func (c *comparison) hashed(l led, g, o *poll) {
	keys := c.demand.keys()
	a, b := c.names(among(g.counts, keys)), c.names(among(o.counts, keys))
	if len(a) == 0 || len(b) == 0 {
		return // drops took all of a few picks
	}
	if len(a) > 1 || len(b) > 1 {
		c.differ("grpc-go picks %v %s, lbd %v; demanded is one", a, l.hashing, b)
	}
	if l.hashing == byRequest && !slices.Equal(a, b) {
		c.differ("grpc-go picks %v %s, lbd %v", a, l.hashing, b)
	}
}
