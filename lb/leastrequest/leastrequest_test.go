package leastrequest_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/leastrequest"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/test/lbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
			h.Finish(lbtest.Outcomes[i%4], policy.NoInfo)
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
		out = append(out, fmt.Sprintf("%s:%v", compared[0].Address, compared[0].InFlight))
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
		{"but none that excludes all", []step{config("a", "b"), together("a", "b"), holds("z", 1)}, "READY a:0 b:0"},
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

// TestChoice: of what is drawn the one with the fewest in flight is taken, the
// first of several. In flight are a:3 b:1 c:1 d:0.
func TestChoice(t *testing.T) {
	const seated = "dabc"
	tests := []struct {
		choices  uint32
		draws    string
		exclude  string
		want     string
		compared string
	}{
		{2, "a b", "", "b", "a:3 b:1"},
		{2, "b a", "", "b", "b:1 a:3"},
		{2, "d a", "", "d", "d:0 a:3"}, // the first seat
		{2, "b c", "", "b", "b:1 c:1"},
		{2, "c b", "", "c", "c:1 b:1"},
		{2, "a a", "", "a", "a:3 a:3"},
		{2, "a c d", "", "c", "a:3 c:1"}, // no third draw
		{3, "a c d", "", "d", "a:3 c:1 d:0"},
		{10, "a a a a a a a a a b", "", "b", "a:3 a:3 a:3 a:3 a:3 a:3 a:3 a:3 a:3 b:1"},
		{2, "a d b", "d", "b", "a:3 b:1"}, // drawn again
		{2, "b d c d", "b c", "d", "d:0 d:0"},
		{2, "d a b c", "a d", "b", "b:1 c:1"},
		{2, "b", "a b c", "d", "d:0 d:0"}, // too many draws: of those that remain
		{2, "a b", "z", "b", "a:3 b:1"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.choices, tt.draws, "without", tt.exclude), func(t *testing.T) {
			s := newStage(t, choices(tt.choices), config("d", "a", "b", "c"), together("d", "a", "b", "c"), holds("a", 3), holds("b", 1), holds("c", 1))
			var places []int
			for d := range strings.FieldsSeq(tt.draws) {
				places = append(places, strings.Index(seated, d))
			}
			draw(s, append(places, 4)...)
			call := &policy.Call{Exclude: strings.Fields(tt.exclude), Trace: new(policy.Trace)}
			res, err := s.Pick(call)
			if err != nil {
				t.Fatal(err)
			}
			e := lbtest.As[policy.EndpointStep](t, call.Trace.Steps[0])
			var compared []string
			for _, c := range lbtest.As[leastrequest.Compared](t, e.Detail) {
				compared = append(compared, fmt.Sprintf("%s:%v", c.Address, c.InFlight))
			}
			if got := strings.Join(compared, " "); got != tt.compared {
				t.Errorf("compared %s, want %s", got, tt.compared)
			}
			if got := call.Endpoint.Addresses[0]; got != tt.want || lbtest.Picked(t, res) != s.SubConn(got) {
				t.Errorf("picked %s by %v, want %s", got, res.SubConn, tt.want)
			}
			if e.Policy != leastrequest.Name || e.Rotation != 4 || e.Index != strings.Index(seated, tt.want) || e.Endpoint != call.Endpoint {
				t.Errorf("trace %+v", e)
			}
		})
	}
}

// TestConcurrentPicks: nothing is lost of the counts, and they keep the
// endpoints level: of two drawn the fuller one is never taken.
func TestConcurrentPicks(t *testing.T) {
	const pickers, each, endpoints = 8, 500, 4
	s := newStage(t, config("a", "b", "c", "d"), together("a", "b", "c", "d"))
	s.Next = rand.Uint64
	p := s.Picker()
	held := make([][]policy.Held, pickers)
	var wg sync.WaitGroup
	for i := range pickers {
		wg.Go(func() {
			for range each {
				call := &policy.Call{Context: t.Context(), Hold: true}
				if _, err := p.Pick(balancer.PickInfo{Ctx: call}); err != nil {
					t.Error(err)
					return
				}
				held[i] = append(held[i], call.Held())
			}
		})
	}
	wg.Wait()
	sum := 0
	for seat := range strings.FieldsSeq(seats(s)) {
		var n int
		if _, err := fmt.Sscan(seat[2:], &n); err != nil {
			t.Fatal(err)
		}
		sum += n
		if even := pickers * each / endpoints; n < even-even/5 || n > even+even/5 {
			t.Errorf("%s in flight, want about %d", seat, even)
		}
	}
	if sum != pickers*each {
		t.Errorf("%d in flight in all, want %d", sum, pickers*each)
	}
	for i := range pickers {
		wg.Go(func() {
			for _, h := range held[i] {
				h.Finish(policy.OutcomeSuccess, policy.NoInfo)
			}
		})
	}
	wg.Wait()
	if got := seats(s); got != "a:0 b:0 c:0 d:0" {
		t.Errorf("in flight is %s when all have ended", got)
	}
}
