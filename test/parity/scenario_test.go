package parity_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// scenario compares both sides on one cluster, or one aggregate.
type scenario struct {
	*run

	draw       *drawing
	management *management
	grpc       *grpcSide
	lbd        *lbdSide

	// leaves are the clusters with endpoints, as both sides have accepted them last.
	leaves []accepted
	policy *lbPolicy
	used   int // the priority in use after the last step
	// renamed is true once a locality was in several priorities: grpc-go then recreates
	// priorities that lbd keeps.
	renamed bool

	retained retained
	// reconnected is true once the sides may make different connections: after renamed;
	// after an endpoint started and another stopped in one step; after an unneeded
	// priority was removed; after an unneeded leaf failed over; after the policy was lazy,
	// or changed.
	reconnected bool
}

// runScenario runs the nth scenario of a seed.
func runScenario(t *testing.T, seed uint64, n int, m *management, server *grpc.Server) {
	s := &scenario{run: newRun(t, "s", seed, n, server), management: m}
	s.draw = &drawing{Rand: rand.New(rand.NewPCG(seed, uint64(n))), net: s.net, max: bounds{priorities: maxPriorities, localities: 40, upstreams: 120}}
	s.draw.begin(s.name)
	var err error
	if s.grpc, err = newGRPCSide(s.name, s.draw.target(), m.address); err != nil {
		t.Fatal(err)
	}
	defer s.grpc.close()
	s.lbd = newLBDSide(s.name, s.draw.target())
	defer s.lbd.close()
	s.steps(t, 2+s.draw.IntN(4), s.draw.step, s.step, func() resources { return s.draw.resources(s.name) })
}

// step applies the drawn network and resources to both sides, and compares them once
// both are quiet.
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
	s.reconnected = s.reconnected || s.renamed || mixed || s.policy.lazy() || was != nil && was != s.policy || s.lostPriority(before)
	s.reconnected = s.retained.failsOver(s.leaves, s.net.up()) || s.reconnected
	made := [2]map[string]int{make(map[string]int), make(map[string]int)}
	return retry(func() (found []string, saw string, err error) { return s.compare(ctx, made) })
}

// lostPriority reports whether an update has removed a priority that was not needed:
// grpc-go keeps its connections.
func (s *scenario) lostPriority(before []accepted) bool {
	lower := s.used + 1
	for i, l := range before {
		was := sites(l.assignment)
		if prioritiesMoved(was, sites(s.leaves[i].assignment), lower) {
			return true
		}
		lower -= max(1, len(was)) // an empty leaf counts as a priority
	}
	return false
}

// compare waits until both sides are quiet, and returns the differences and what it saw.
// made sums the connections that were made in the step.
func (s *scenario) compare(ctx context.Context, made [2]map[string]int) (found []string, saw string, err error) {
	up := s.net.up()
	c := &comparison{named: s.net.named, demand: demandOf(s.leaves, up)}
	s.used = c.demand.priority
	at, err := s.settled(ctx, c.demand, up)
	if err != nil {
		c.differ("%v", err)
	}
	if c.demand.untried && s.renamed {
		return c.found, at.saw, nil // the sides may have tried different endpoints
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
	if !s.reconnected {
		c.connections(made[0], made[1], at.held[0], at.held[1])
	}
	return c.found, at.saw + fmt.Sprint(made), nil
}

// update sends the resources to both sides, and compares which they reject.
func (s *scenario) update(ctx context.Context, version int) ([]string, error) {
	r := s.draw.resources(s.name)
	v := strconv.Itoa(version)
	if err := s.management.serve(ctx, s.name, v, r); err != nil {
		return nil, err
	}
	cds, err := s.management.wait(ctx, s.name, resourcev3.ClusterType, v)
	if err != nil {
		return nil, err
	}
	eds, err := s.management.wait(ctx, s.name, resourcev3.EndpointType, v)
	if err != nil {
		return nil, err
	}
	rejected, err := s.lbd.update(ctx, r)
	if err != nil {
		return nil, err
	}
	if s.leaves == nil {
		s.leaves = make([]accepted, len(s.draw.leaves))
	}
	own := len(r.clusters) - len(r.assignments) // of the aggregate
	for i, m := range r.clusters {
		if rejected[m] == nil && i >= own {
			s.leaves[i-own].cluster = m
		}
		if rejected[m] == nil && i == 0 {
			s.policy = s.draw.policy()
		}
	}
	for i, m := range r.assignments {
		if rejected[m] == nil {
			s.leaves[i].assignment = m
		}
		s.leaves[i].policy = s.policy
	}
	return slices.Concat(judged(r.clusters, cds, rejected), judged(r.assignments, eds, rejected)), nil
}

// judged compares grpc-go's verdict on resources of a type with lbd's.
func judged[M proto.Message](ms []M, nack string, rejected map[proto.Message]error) []string {
	var reasons []string
	for _, m := range ms {
		if rejected[m] != nil {
			reasons = append(reasons, rejected[m].Error())
		}
	}
	if (nack == "") == (len(reasons) == 0) {
		return nil
	}
	out := []string{fmt.Sprintf("grpc-go says %q, lbd %q of:", nack, reasons)}
	for _, m := range ms {
		out = append(out, protojson.Format(m))
	}
	return out
}

// rest is the state of both sides.
type rest struct {
	grpc, lbd connectivity.State
	held      [2][]string // the connected addresses of each
	saw       string
}

// wouldServe reports whether each side is READY or would be after a pick. If no pick
// passes, that depends on the earlier connections.
func (r rest) wouldServe() bool {
	serves := func(s connectivity.State) bool { return s == connectivity.Ready || s == connectivity.Idle }
	return serves(r.grpc) && serves(r.lbd)
}

// settled waits until each side has the right state of every endpoint, and is quiet.
func (s *scenario) settled(ctx context.Context, d *demand, up map[string]bool) (at rest, err error) {
	want := connectivity.TransientFailure
	if d.ready {
		want = connectivity.Ready
	}
	err = s.settle(func() (saw string, expected bool, wrong, err error) {
		if d.policy.lazy() {
			for _, side := range []side{s.grpc, s.lbd} {
				wrong = errors.Join(wrong, touch(side))
			}
		}
		g := s.grpc.look(s.draw.target())
		l, err := s.lbd.look(ctx)
		if err != nil {
			return "", false, nil, err
		}
		at = rest{g.state, l.state, [2][]string{readyOf(g.states), readyOf(l.states)}, g.saw + l.saw}
		wrong = errors.Join(wrong, d.wrongState("grpc-go", g, up, s.net), d.wrongState("lbd", l, up, s.net))
		return at.saw, g.state == want && l.state == want, wrong, nil
	})
	return at, err
}
