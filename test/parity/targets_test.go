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

	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// hostingScenario compares both sides on a target of one management server.
type hostingScenario struct {
	*run

	draw       *hostingDrawing
	management *management
	grpc       *grpcTarget
	lbd        *lbdTarget

	good    lastGood
	version int
	failed  bool // the target had no routes in an earlier step
	renamed bool // as in scenario
}

// runHostingScenario runs the nth scenario of a seed.
func runHostingScenario(t *testing.T, seed uint64, n int, m *management, server *grpc.Server) {
	s := &hostingScenario{run: newRun(t, "t", seed, n, server), management: m}
	s.draw = &hostingDrawing{drawing: &drawing{Rand: rand.New(rand.NewPCG(seed, 1<<32+uint64(n))), net: s.net, max: hostingBounds}}
	s.draw.beginHosting(s.name)
	target := s.draw.hosting.target
	var err error
	if s.grpc, err = newGRPCTarget(bootstrapOf(m.address, s.name, keepDeleted), target, insecure.NewCredentials()); err != nil {
		t.Fatal(err)
	}
	defer s.grpc.close()
	s.lbd, err = newLBDTarget(t.Context(), bootstrapOf(m.address, lbdNode(s.name), keepDeleted), target, t.TempDir())
	must(t, err)
	defer s.lbd.close()
	s.steps(t, 2+s.draw.IntN(4), func() string { return s.draw.stepHosting(&s.good) }, s.step, s.draw.hosting.resources)
}

// step applies the drawn network and target to both sides, and compares them once both
// are quiet.
func (s *hostingScenario) step(ctx context.Context, version int) ([]string, error) {
	s.version = version
	if _, err := s.settleNet(); err != nil {
		return nil, err
	}
	r := s.draw.hosting.resources()
	v := strconv.Itoa(version)
	if err := s.management.serve(ctx, s.name, v, r); err != nil {
		return nil, err
	}
	for _, node := range s.nodes() {
		if _, err := s.management.wait(ctx, node, resourcev3.ListenerType, v); err != nil {
			return nil, err
		}
	}
	before := s.good
	s.failed = s.failed || before.failure != ""
	s.renamed = s.renamed || slices.ContainsFunc(r.assignments, ambiguous)
	return retry(func() (found []string, saw string, err error) {
		s.good = before
		return s.compare(ctx, r)
	})
}

func (s *hostingScenario) nodes() [2]string { return [2]string{s.name, lbdNode(s.name)} }

// compare waits until both sides are quiet, and returns the differences and what it saw.
func (s *hostingScenario) compare(ctx context.Context, r resources) (found []string, saw string, err error) {
	up := s.net.up()
	at, err := s.settled(ctx, r, up)
	if err != nil && ctx.Err() != nil {
		return nil, "", err
	}
	if err != nil {
		found, at.saw = append(found, err.Error()), notSettled
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

// clusterRest is the state of a cluster's trees.
type clusterRest struct {
	rest

	untried bool // by the demand
	apart   bool // by the demand: grpc-go has another state
	revived bool // grpc-go serves although its config was rejected
	asleep  bool // hardly a pick wakes it: its state depends on earlier steps
}

// hostingRest is the state of both sides.
type hostingRest struct {
	clusters map[string]clusterRest
	saw      string
}

// settled waits until both sides have answered all responses, have the right state of
// every endpoint, and are quiet.
func (s *hostingScenario) settled(ctx context.Context, r resources, up map[string]bool) (at hostingRest, err error) {
	before := s.good
	err = s.settle(func() (saw string, expected bool, wrong, err error) {
		s.good = before
		byGRPC, _ := s.rejections()
		s.good.take(s.draw.hosting, r, byGRPC)
		at, expected, wrong, err = s.look(ctx, up)
		if wrong == nil && err == nil {
			wrong = s.touch(ctx)
		}
		return at.saw, expected, wrong, err
	})
	return at, err
}

// look returns the state of both sides, whether it is as demanded, and why it is not
// final.
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
		wrong = errors.Join(wrong, s.wrongFailure(ctx))
	} else {
		want = slices.Sorted(slices.Values(s.good.roots()))
	}
	byGRPC := s.grpc.clusters()
	byLBD, err := s.lbd.clusters()
	if err != nil {
		return at, false, nil, err
	}
	if s.failed { // grpc-go may then keep clusters that routes no longer use
		byGRPC = slices.DeleteFunc(byGRPC, func(name string) bool { return !slices.Contains(want, name) })
	}
	if !slices.Equal(byGRPC, want) || !slices.Equal(byLBD, want) {
		wrong = errors.Join(wrong, fmt.Errorf("grpc-go has %q, lbd %q; demanded is %q", byGRPC, byLBD, want))
	}
	fmt.Fprint(&saw, byGRPC, byLBD)
	for _, name := range want {
		d, failures := s.good.demand(name, up)
		g := s.grpc.look(name)
		l, err := s.lbd.look(ctx, name)
		if err != nil {
			return at, false, nil, err
		}
		fmt.Fprint(&saw, name, g.saw, l.saw)
		is := clusterRest{rest: rest{grpc: g.state, lbd: l.state}, revived: s.grpc.revived(name)}
		demanded := connectivity.TransientFailure
		if failures == nil {
			if wrong = errors.Join(wrong, d.wrongState("lbd", l, up, s.net)); !d.apart {
				wrong = errors.Join(wrong, d.wrongState("grpc-go", g, up, s.net))
			}
			is.untried, is.apart, is.asleep = d.untried, d.apart, d.policy.lazy() && !s.reached(name)
			if d.ready {
				demanded = connectivity.Ready
			}
		}
		expected = expected && (is.asleep || (g.state == demanded || is.revived || is.apart) && l.state == demanded)
		at.clusters[name] = is
	}
	at.saw = saw.String()
	return at, expected, wrong, nil
}

// wrongFailure returns an error if a side fails requests for another reason than
// demanded: a missing resource is awaited first.
func (s *hostingScenario) wrongFailure(ctx context.Context) error {
	r := s.draw.requests[0]
	g, l := s.grpc.ask(ctx, r).kind, s.lbd.ask(ctx, r).kind
	if demanded := s.good.failure; either(demanded, g) != demanded || either(demanded, l) != demanded {
		return fmt.Errorf("grpc-go answers %q, lbd %q; demanded is %q", g, l, demanded)
	}
	return nil
}

// reached reports whether requests go to a cluster often.
func (s *hostingScenario) reached(cluster string) bool {
	return slices.ContainsFunc(s.draw.requests, func(r *request) bool {
		return slices.ContainsFunc(s.good.host.leads(r), func(l led) bool { return l.cluster == cluster && l.chance > 0.2 })
	})
}

// touches is the number of times that each request is made at each look, for the
// endpoints of lazy policies to connect.
const touches = 4

// touch makes the requests if a policy is lazy. The error is that a pick waits.
func (s *hostingScenario) touch(ctx context.Context) (err error) {
	lazy := func(p chosen) bool { return p.lbPolicy != nil && p.lazy() }
	if s.good.failure != "" || !slices.ContainsFunc(slices.Collect(maps.Values(s.good.policies)), lazy) {
		return nil
	}
	for _, r := range s.draw.requests {
		for range touches {
			for _, d := range []directed{s.grpc.ask(ctx, r), s.lbd.ask(ctx, r)} {
				switch d.kind {
				case picked:
					d.done()
				case queued:
					err = errChanging
				}
			}
		}
	}
	return err
}
