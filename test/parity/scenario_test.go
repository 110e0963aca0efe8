package parity_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

const (
	// pause is the time between looks at both sides. Both are quiet when nothing
	// has changed for quietLooks, 200 ms; on a busy machine that is longer. A
	// side that is still not in its state after stuckLooks, 1 s, stays there.
	pause      = 20 * time.Millisecond
	quietLooks = 10
	stuckLooks = 50

	// mostLooks, 40 s, have to be enough: lbd's back-off grows with each failure
	// of an endpoint. They are not told in time: a busy machine may stand still.
	mostLooks = 2000

	// attempts are how often what differs is compared while neither side changes,
	// mostAttempts in all; respite is the time between two.
	attempts     = 4
	mostAttempts = 20
	respite      = time.Second

	// youth is how long a connection has to live for lbd, if its loss is not to
	// count as an attempt that failed.
	youth = time.Second
)

// scenario is one run of both sides.
type scenario struct {
	*run

	draw       *drawing
	management *management
	grpc       *grpcSide
	lbd        *lbdSide

	// leaves are the clusters with endpoints as both sides have taken them last.
	leaves []accepted
	policy *lbPolicy
	used   int // the priority, after the last step
	// astray is true once connections may rightly differ, from now on:
	// an endpoint started and another stopped in one step; a locality's name was
	// there at several priorities; a priority went that was not needed; the
	// policy was lazy, or changed.
	astray bool
	// renamed is true once a locality's name was there at several priorities:
	// from then on grpc-go makes priorities anew that lbd keeps.
	renamed bool
}

// runScenario runs the nth scenario of a seed.
func runScenario(t *testing.T, seed uint64, n int, m *management, server *grpc.Server) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	r, err := newRun(fmt.Sprintf("s%d", n), seed, n, server)
	if err != nil {
		t.Fatal(err)
	}
	defer r.net.close()
	s := &scenario{run: r, management: m}
	s.draw = &drawing{Rand: rand.New(rand.NewPCG(seed, uint64(n))), net: r.net, max: bounds{priorities: maxPriorities, localities: 40, upstreams: 120}}
	s.draw.begin(r.name)
	if s.grpc, err = newGRPCSide(r.name, m.address); err != nil {
		t.Fatal(err)
	}
	defer s.grpc.close()
	s.lbd = newLBDSide(r.name, s.draw.target())
	defer s.lbd.close()

	r.steps(t, 2+s.draw.IntN(4), s.draw.step, func(i int) ([]string, error) { return s.step(ctx, i) }, func() []types.Resource {
		r := s.draw.resources()
		return slices.Concat(asResources(r.clusters), asResources(r.assignments))
	})
}

// step brings the network and both sides to the world as drawn, and compares
// them once both are quiet. What differs is looked at again, a few times, and
// as long as either side still changes: on a busy machine grpc-go may not have
// got to the update that it has acknowledged.
func (s *scenario) step(ctx context.Context, version int) ([]string, error) {
	mixed, err := s.settleNet()
	if err != nil {
		return nil, err
	}
	was, before := s.policy, slices.Clone(s.leaves)
	judged, err := s.update(ctx, version)
	if err != nil || len(judged) > 0 {
		return judged, err
	}
	if version == 0 {
		if err = s.grpc.prepare(ctx); err != nil {
			return nil, err
		}
	}
	s.renamed = s.renamed || slices.ContainsFunc(s.leaves, func(l accepted) bool { return ambiguous(l.assignment) })
	s.astray = s.astray || s.renamed || mixed || s.policy.lazy() || was != nil && was != s.policy || s.forsook(before)
	made := [2]map[string]int{make(map[string]int), make(map[string]int)}
	return insist(func() (found []string, saw string, err error) { return s.compare(ctx, made) })
}

// forsook reports whether an update has taken a priority away that was not
// needed: grpc-go keeps its connections.
func (s *scenario) forsook(before []accepted) bool {
	lower := s.used + 1
	for i, l := range before {
		was := sites(l.assignment)
		if forsaken(was, sites(s.leaves[i].assignment), lower) {
			return true
		}
		lower -= max(1, len(was)) // an empty leaf has its place too
	}
	return false
}

// compare waits until both sides are quiet, and says in what they differ, and
// what they were like. made sums the connections made in the step.
func (s *scenario) compare(ctx context.Context, made [2]map[string]int) (found []string, saw string, err error) {
	up := s.net.up()
	c := &compared{named: s.net.named, demand: demandOf(s.leaves, up)}
	s.used = c.demand.priority
	at, err := s.settled(ctx, c.demand, up)
	if err != nil {
		c.differ("%v", err)
	}
	if c.demand.untried && s.renamed {
		return c.found, at.saw, nil // what was tried before is no more the same
	}
	if at.grpc != at.lbd && !(c.demand.untried && at.wouldServe()) {
		c.differ("grpc-go is %v, lbd %v", at.grpc, at.lbd)
	}
	ours, others := s.net.connections(s.grpc.called)
	for i, connected := range []map[string]int{ours, others} {
		for address, n := range connected {
			made[i][address] += n
		}
	}
	before := s.lbd.dropped()
	g, l := take(s.grpc), take(s.lbd)
	c.both(g, l)
	if c.demand.untried {
		return c.found, at.saw, nil
	}
	shares, priority, err := s.lbd.shares(ctx)
	if err != nil {
		return nil, "", err
	}
	c.described(shares, priority)
	c.categories(before, s.lbd.dropped())
	g.hold(s.grpc, int(c.demand.limit))
	l.hold(s.lbd, int(c.demand.limit))
	c.polled(s.grpc, g)
	c.polled(s.lbd, l)
	if !s.astray {
		c.connections(made[0], made[1], at.held[0], at.held[1])
	}
	return c.found, at.saw + fmt.Sprint(made), nil
}

// update sends the resources to both sides, and says in what their verdicts
// differ.
func (s *scenario) update(ctx context.Context, version int) ([]string, error) {
	r := s.draw.resources()
	cds, eds, err := s.management.send(ctx, s.name, version, r)
	if err != nil {
		return nil, err
	}
	refused, err := s.lbd.update(ctx, r)
	if err != nil {
		return nil, err
	}
	if s.leaves == nil {
		s.leaves = make([]accepted, len(s.draw.leaves))
	}
	own := len(r.clusters) - len(r.assignments) // of the aggregate
	for i, m := range r.clusters {
		if refused[m] == nil && i >= own {
			s.leaves[i-own].cluster = m
		}
		if refused[m] == nil && i == 0 {
			s.policy = s.draw.policy()
		}
	}
	for i, m := range r.assignments {
		if refused[m] == nil {
			s.leaves[i].assignment = m
		}
		s.leaves[i].policy = s.policy
	}
	return slices.Concat(judged(r.clusters, cds, refused), judged(r.assignments, eds, refused)), nil
}

// judged compares grpc-go's verdict on resources of a type with lbd's.
func judged[M proto.Message](ms []M, of verdict, refused map[proto.Message]error) []string {
	var reasons []string
	for _, m := range ms {
		if refused[m] != nil {
			reasons = append(reasons, refused[m].Error())
		}
	}
	if (of.nack == "") == (len(reasons) == 0) {
		return nil
	}
	out := []string{fmt.Sprintf("grpc-go says %q, lbd %q of:", of.nack, reasons)}
	for _, m := range ms {
		out = append(out, protojson.Format(m))
	}
	return out
}

// rest is what both sides are like.
type rest struct {
	grpc, lbd connectivity.State
	held      [2][]string // the addresses that each is connected to
	saw       string
}

// wouldServe reports whether each side is READY or would be by a pick. Where no
// pick comes through, that is a matter of what it was connected to before.
func (r rest) wouldServe() bool {
	serves := func(s connectivity.State) bool { return s == connectivity.Ready || s == connectivity.Idle }
	return serves(r.grpc) && serves(r.lbd)
}

// settled waits until each side knows of every endpoint whether it can be
// connected to, and nothing has changed for a while: a long while, if a side is
// not in the state that is demanded.
func (s *scenario) settled(ctx context.Context, d *demand, up map[string]bool) (at rest, err error) {
	want := connectivity.TransientFailure
	if d.ready {
		want = connectivity.Ready
	}
	var wrong error
	looks := 0 // that saw the same
	for range mostLooks {
		time.Sleep(pause)
		quiet := true
		if d.policy.lazy() {
			quiet = touch(s.grpc)
			quiet = touch(s.lbd) && quiet
		}
		gState, gStates, gSaw := s.grpc.look()
		lState, lStates, lSaw, err := s.lbd.look(ctx)
		if err != nil {
			return rest{}, err
		}
		wrong = errors.Join(d.lies("grpc-go", gStates, up, s.net), d.lies("lbd", lStates, up, s.net))
		last := at.saw
		at = rest{gState, lState, [2][]string{readyOf(gStates), readyOf(lStates)}, gSaw + lSaw}
		if at.saw != last {
			s.changed = time.Now()
		}
		if !quiet || wrong != nil || at.saw != last {
			looks = 0
			continue
		}
		if looks++; looks >= quietLooks && gState == want && lState == want || looks >= stuckLooks {
			return at, nil
		}
	}
	return at, fmt.Errorf("not quiet after %d looks: %w", mostLooks, cmp.Or(wrong, errChanging))
}

var errChanging = errors.New("something still changes")
