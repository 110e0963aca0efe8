package leastrequest_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/lbtest"
	"github.com/lbd-dev/lbd/lb/leastrequest"
	"github.com/lbd-dev/lbd/lb/policy"
)

const (
	idle       = connectivity.Idle
	connecting = connectivity.Connecting
	ready      = connectivity.Ready
	failure    = connectivity.TransientFailure
)

type (
	stage = lbtest.Stage
	step  = lbtest.Step
)

var (
	config  = lbtest.Endpoints
	says    = lbtest.Says
	reports = lbtest.Reports
)

func newStage(t testing.TB, steps ...step) *stage {
	return lbtest.NewStage(t, leastrequest.Builder(), leastrequest.Config{ChoiceCount: 2}, steps...)
}

// choices is how many are drawn from the next config on.
func choices(n uint32) step {
	return func(s *stage) { s.BalancerConfig = leastrequest.Config{ChoiceCount: n} }
}

func together(addresses ...string) step { return lbtest.Together(ready, addresses...) }

// holds lets n picks that exclude every other endpoint hold address.
func holds(address string, n int) step {
	return func(s *stage) {
		for range n {
			call := &policy.Call{Hold: true}
			for _, e := range s.Endpoints {
				if e.Addresses[0] != address {
					call.Exclude = append(call.Exclude, e.Addresses[0])
				}
			}
			_ = s.Picked(call)
			s.Held[address] = append(s.Held[address], call.Held())
		}
	}
}

// endOf finishes n of the picks that hold a, with each outcome in turn.
func endOf(n int) step {
	return func(s *stage) {
		for i, h := range s.Held["a"][:n] {
			h.Finish(policy.Outcome(i%4), policy.NoInfo)
		}
		s.Held["a"] = s.Held["a"][n:]
	}
}

// seats are the READY endpoints with what each has in flight, found by drawing
// each place in turn.
func seats(s *stage) string {
	var out []string
	for i, n := 0, 1; i < n; i++ {
		draw(s, i, n)
		call := &policy.Call{Trace: new(policy.Trace)}
		picked := s.Picked(call)
		e, ok := call.Trace.Steps[0].(policy.EndpointStep)
		if !ok {
			return picked
		}
		n = e.Rotation
		compared, _ := e.Detail.(leastrequest.Compared)
		out = append(out, fmt.Sprintf("%s:%d", compared[0].Address, compared[0].InFlight))
	}
	return strings.Join(out, " ")
}

// draw lets pickers draw places of n in turn, over and over.
func draw(s *stage, placesOfN ...int) {
	last := len(placesOfN) - 1
	width := uint64(1<<63) / uint64(placesOfN[last]) * 2
	var values []uint64
	for _, i := range placesOfN[:last] {
		values = append(values, width*uint64(i)+width/2)
	}
	s.Next = lbtest.Draws(values...)
}

// TestLeastRequest has what is special about least_request; round_robin's tests have
// what is common to policies with the same base.
func TestLeastRequest(t *testing.T) {
	tests := []struct {
		name  string
		steps []step
		want  string
	}{
		{"the READY ones are drawn", []step{config("a", "b", "c"), says("a", ready), says("c", ready)}, "READY a:0 c:0"},
		{"none is READY", []step{config("a", "b"), says("a", ready, idle)}, "CONNECTING queue"},
		{"all failed", []step{config("a", "b"), says("b", failure), says("a", failure)}, "TRANSIENT_FAILURE a refused"},
		{"another choice count: a new picker", []step{config("a"), says("a", ready), reports(2), choices(3), config("a"), reports(2)}, "READY a:0"},

		{"held picks are counted", []step{config("a", "b"), together("a", "b"), holds("a", 3), holds("b", 1)}, "READY a:3 b:1"},
		{"until they end, however they do", []step{config("a", "b"), together("a", "b"), holds("a", 5), endOf(4)}, "READY a:1 b:0"},
		{
			"counts outlive pickers",
			[]step{config("a", "b"), together("a", "b"), holds("a", 2), config("a", "b", "c"), says("c", ready), holds("c", 1), endOf(1)},
			"READY a:1 b:0 c:1",
		},
		{
			"and connections: what is in flight has not ended",
			[]step{config("a", "b"), together("a", "b"), holds("a", 2), says("a", idle, connecting), endOf(1), says("a", ready)},
			"READY a:1 b:0",
		},
		{
			"and an endpoint's other values",
			[]step{config("a", "b"), together("a", "b"), holds("a", 2), config("a'", "b")},
			"READY a:2 b:0",
		},
		{
			"but an endpoint that was removed comes back with nothing, and old picks end elsewhere",
			[]step{config("a", "b"), together("a", "b"), holds("a", 2), config("b"), config("a", "b"), says("a", ready), endOf(2)},
			"READY a:0 b:0",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, tt.steps...)
			if got := fmt.Sprintf("%v %s", s.State(), seats(s)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			s.Check()
		})
	}
}
