package parity_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// hostingScenario is one run of both sides, which follow one management server.
type hostingScenario struct {
	*run

	draw       *hostingDrawing
	management *management
	grpc       *grpcTarget
	lbd        *lbdTarget

	good    lastGood
	version int
	failed  bool // that the target had no routes in a step before
	renamed bool // as in scenario
}

// runHostingScenario runs the nth scenario of a seed.
func runHostingScenario(t *testing.T, seed uint64, n int, m *management, server *grpc.Server) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	run, err := newRun(fmt.Sprintf("t%d", n), seed, n, server)
	if err != nil {
		t.Fatal(err)
	}
	defer run.net.close()
	name := run.name
	s := &hostingScenario{run: run, management: m}
	s.draw = &hostingDrawing{drawing: &drawing{Rand: rand.New(rand.NewPCG(seed, 1<<32+uint64(n))), net: run.net, max: hostingBounds}}
	s.draw.beginHosting(name)
	target := s.draw.hosting.target
	if s.grpc, err = newGRPCTarget(bootstrapOf(m.address, name, keepDeleted), target, insecure.NewCredentials()); err != nil {
		t.Fatal(err)
	}
	defer s.grpc.close()
	s.lbd, err = newLBDTarget(ctx, bootstrapOf(m.address, lbdNode(name), keepDeleted), target, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.lbd.close()

	run.steps(t, 2+s.draw.IntN(4), func() string { return s.draw.stepHosting(&s.good) }, func(i int) ([]string, error) {
		s.version = i
		return s.step(ctx)
	}, func() []types.Resource { return slices.Concat(s.draw.hosting.resources().all()...) })
}

// step brings the network and both sides to the target as drawn, and compares them
// as a step of a cluster's scenario does.
func (s *hostingScenario) step(ctx context.Context) ([]string, error) {
	if _, err := s.settleNet(); err != nil {
		return nil, err
	}
	r := s.draw.hosting.resources()
	if err := s.serve(ctx, r); err != nil {
		return nil, err
	}
	before := s.good
	s.failed = s.failed || before.failure != ""
	s.renamed = s.renamed || slices.ContainsFunc(r.assignments, ambiguous)
	return insist(func() (found []string, saw string, err error) {
		s.good = before
		return s.compare(ctx, r)
	})
}

// serve gives both sides the resources, and waits until both have answered to the
// Listener.
func (s *hostingScenario) serve(ctx context.Context, r hosted) error {
	v := strconv.Itoa(s.version)
	if err := s.management.serve(ctx, s.name, v, r); err != nil {
		return err
	}
	for _, node := range s.nodes() {
		if _, err := s.management.wait(ctx, verdictKey{node, resourcev3.ListenerType, v}); err != nil {
			return err
		}
	}
	return nil
}

func (s *hostingScenario) nodes() [2]string { return [2]string{s.name, lbdNode(s.name)} }

// compare waits until both sides are quiet, and says in what they differ, and what
// they were like.
func (s *hostingScenario) compare(ctx context.Context, r hosted) (found []string, saw string, err error) {
	up := s.net.up()
	at, err := s.settled(ctx, r, up)
	if err != nil && ctx.Err() != nil {
		return nil, "", err
	}
	if err != nil {
		found, at.saw = append(found, err.Error()), restless
	}
	found = append(found, s.verdicts()...)
	found = append(found, s.subscriptions()...)
	for name, is := range at.clusters {
		if is.grpc != is.lbd && !is.revived && !is.apart && !is.asleep && !(is.untried && (s.renamed || is.wouldServe())) {
			found = append(found, fmt.Sprintf("%s: grpc-go is %v, lbd %v", name, is.grpc, is.lbd))
		}
	}
	for _, req := range s.draw.requests {
		found = append(found, s.directed(ctx, req, up)...)
	}
	return found, at.saw, nil
}

// clusterRest is what both sides' trees of a cluster are like.
type clusterRest struct {
	rest

	untried bool // by the demand
	apart   bool // by the demand: grpc-go does something else
	revived bool // grpc-go's, although it cannot be used
	asleep  bool // where hardly a pick wakes it, so that what was before counts
}

// hostingRest is what both sides are like.
type hostingRest struct {
	clusters map[string]clusterRest
	saw      string
}

// settled waits until both sides have answered all that they were sent, know of
// every endpoint whether it can be connected to, and nothing has changed for a
// while: a long while, if a side is not in the state that is demanded.
func (s *hostingScenario) settled(ctx context.Context, r hosted, up map[string]bool) (at hostingRest, err error) {
	var wrong error
	looks := 0 // that saw the same
	before := s.good
	for range mostLooks {
		time.Sleep(pause)
		s.good = before
		byGRPC, _ := s.refusals()
		s.good.take(s.draw.hosting, r, byGRPC)
		last := at.saw
		var expected bool
		if at, expected, wrong, err = s.look(ctx, up); err != nil {
			return at, err
		}
		quiet := wrong == nil && s.touch(ctx)
		if at.saw != last {
			s.changed = time.Now()
		}
		if !quiet || wrong != nil || at.saw != last {
			looks = 0
			continue
		}
		if looks++; looks >= quietLooks && expected || looks >= stuckLooks {
			return at, nil
		}
	}
	if wrong == nil {
		wrong = errChanging
	}
	return at, fmt.Errorf("not quiet after %d looks: %w", mostLooks, wrong)
}

// look tells what both sides are like, whether that is what is demanded, and what
// they cannot stay like.
func (s *hostingScenario) look(ctx context.Context, up map[string]bool) (at hostingRest, expected bool, wrong, err error) {
	at.clusters, expected = make(map[string]clusterRest), true
	var saw strings.Builder
	for _, node := range s.nodes() {
		if n := s.management.unanswered(node); n > 0 {
			wrong = errors.Join(wrong, fmt.Errorf("%s has not answered %d responses", node, n))
		}
	}
	want := []string{}
	if s.good.failure != "" {
		wrong = errors.Join(wrong, s.misled(ctx))
	} else {
		want = slices.Sorted(slices.Values(s.good.roots()))
	}
	byGRPC := s.grpc.clusters()
	byLBD, err := s.lbd.clusters()
	if err != nil {
		return at, false, nil, err
	}
	if s.failed { // grpc-go may keep what routes have let go of, then
		byGRPC = slices.DeleteFunc(byGRPC, func(name string) bool { return !slices.Contains(want, name) })
	}
	if !slices.Equal(byGRPC, want) || !slices.Equal(byLBD, want) {
		wrong = errors.Join(wrong, fmt.Errorf("grpc-go has %q, lbd %q; demanded is %q", byGRPC, byLBD, want))
	}
	fmt.Fprint(&saw, byGRPC, byLBD)
	for _, name := range want {
		d, failures := s.good.demand(name, up)
		gState, gStates, gSaw := s.grpc.look(name)
		lState, lStates, lSaw, err := s.lbd.look(ctx, name)
		if err != nil {
			return at, false, nil, err
		}
		fmt.Fprint(&saw, name, gSaw, lSaw)
		is := clusterRest{rest: rest{grpc: gState, lbd: lState}, revived: s.grpc.revived(name)}
		demanded := connectivity.TransientFailure
		if failures == nil {
			if wrong = errors.Join(wrong, d.lies("lbd", lStates, up, s.net)); !d.apart {
				wrong = errors.Join(wrong, d.lies("grpc-go", gStates, up, s.net))
			}
			is.untried, is.apart, is.asleep = d.untried, d.apart, d.policy.lazy() && !s.reached(name)
			if d.ready {
				demanded = connectivity.Ready
			}
		}
		expected = expected && (is.asleep || (gState == demanded || is.revived || is.apart) && lState == demanded)
		at.clusters[name] = is
	}
	at.saw = saw.String()
	return at, expected, wrong, nil
}

// misled tells of a side that refuses requests for another reason than demanded:
// what nobody has is waited for.
func (s *hostingScenario) misled(ctx context.Context) (wrong error) {
	r := s.draw.requests[0]
	g, l := s.grpc.ask(ctx, r).kind, s.lbd.ask(ctx, r).kind
	if demanded := s.good.failure; either(demanded, g) != demanded || either(demanded, l) != demanded {
		wrong = fmt.Errorf("grpc-go answers %q, lbd %q; demanded is %q", g, l, demanded)
	}
	return wrong
}

// reached reports whether requests wake a cluster.
func (s *hostingScenario) reached(cluster string) bool {
	return slices.ContainsFunc(s.draw.requests, func(r *request) bool {
		return slices.ContainsFunc(s.good.host.leads(r), func(l led) bool { return l.cluster == cluster && l.chance > 0.2 })
	})
}

// touches is how often each request is made at each look, where endpoints wait for
// picks to be connected to.
const touches = 4

// touch asks for what wakes endpoints, and reports whether no pick has to wait.
func (s *hostingScenario) touch(ctx context.Context) bool {
	lazy := func(p chosen) bool { return p.lbPolicy != nil && p.lazy() }
	if s.good.failure != "" || !slices.ContainsFunc(slices.Collect(maps.Values(s.good.policies)), lazy) {
		return true
	}
	waits := false
	for _, r := range s.draw.requests {
		for range touches {
			for _, d := range []directed{s.grpc.ask(ctx, r), s.lbd.ask(ctx, r)} {
				if d.kind == picked {
					d.done()
				}
				waits = waits || d.kind == queued
			}
		}
	}
	return !waits
}
