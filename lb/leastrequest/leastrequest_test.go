package leastrequest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/lbtest"
	"github.com/lbd-dev/lbd/lb/leastrequest"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	idle       = connectivity.Idle
	connecting = connectivity.Connecting
	ready      = connectivity.Ready
	failure    = connectivity.TransientFailure
)

// stage is a least_request whose endpoints are named by their address. Several
// addresses of one endpoint are joined with "+".
type stage struct {
	t         testing.TB
	tree      *lbtest.Tree
	endpoints map[string]*resource.Endpoint
	choices   uint32
	held      map[string][]policy.Held // by endpoint
	next      func() uint64            // what is drawn
}

type step func(s *stage)

func newStage(t testing.TB, steps ...step) *stage {
	s := &stage{
		t: t, tree: lbtest.NewTree(t, leastrequest.Builder()), choices: 2,
		endpoints: map[string]*resource.Endpoint{}, held: map[string][]policy.Held{}, next: lbtest.Draws(0),
	}
	s.tree.Draw = func() uint64 { return s.next() }
	for _, step := range steps {
		step(s)
	}
	return s
}

// config gives the endpoints. A name that was given before is the same value;
// one with "'" is a new value of the same address.
func config(names ...string) step {
	return func(s *stage) {
		s.t.Helper()
		child := policy.Child{Config: leastrequest.Config{ChoiceCount: s.choices}}
		for _, n := range names {
			if s.endpoints[n] == nil {
				s.endpoints[n] = &resource.Endpoint{Addresses: strings.Split(strings.TrimRight(n, "'"), "+"), Weight: 1}
			}
			child.Endpoints = append(child.Endpoints, policy.ResolverEndpoint(s.endpoints[n]))
		}
		err := s.tree.Update(child)
		if len(names) > 0 && err != nil {
			s.t.Errorf("update: %v", err)
		}
		if len(names) == 0 && !errors.Is(err, balancer.ErrBadResolverState) {
			s.t.Errorf("an update without endpoints: %v, want %v", err, balancer.ErrBadResolverState)
		}
	}
}

// choices is how many are drawn from the next config on.
func choices(n uint32) step { return func(s *stage) { s.choices = n } }

// says lets a connection be in states, one after the other, a batch each.
func says(address string, states ...connectivity.State) step {
	return func(s *stage) {
		s.t.Helper()
		for _, state := range states {
			sc := s.tree.SubConn(address)
			var err error
			if state == failure {
				err = fmt.Errorf("%s refused", address)
			}
			s.tree.Batch(func() { sc.Says(state, err) })
		}
	}
}

// together lets several connections be READY in one batch.
func together(addresses ...string) step {
	return func(s *stage) {
		s.tree.Batch(func() {
			for _, a := range addresses {
				s.tree.SubConn(a).Says(ready, nil)
			}
		})
	}
}

func reports(want int) step {
	return func(s *stage) {
		s.t.Helper()
		if got := len(s.tree.Reports); got != want {
			s.t.Errorf("%d reports, want %d", got, want)
		}
		s.tree.Reports = s.tree.Reports[max(0, len(s.tree.Reports)-1):]
	}
}

// subConns asserts how many were made in all.
func subConns(want int) step {
	return func(s *stage) {
		s.t.Helper()
		if got := len(s.tree.SubConns); got != want {
			s.t.Errorf("%d SubConns were made, want %d", got, want)
		}
	}
}

func connects(address string, want int) step {
	return func(s *stage) {
		s.t.Helper()
		if got := s.tree.SubConn(address).Connects; got != want {
			s.t.Errorf("%s was asked %d times to connect, want %d", address, got, want)
		}
	}
}

// holds lets n picks that exclude every other READY endpoint hold address.
func holds(address string, n int) step {
	return func(s *stage) {
		s.t.Helper()
		for range n {
			call := &policy.Call{Hold: true}
			for _, e := range s.endpoints {
				if e.Addresses[0] != address {
					call.Exclude = append(call.Exclude, e.Addresses[0])
				}
			}
			if _, err := s.tree.Pick(call); err != nil {
				s.t.Fatal(err)
			}
			s.held[address] = append(s.held[address], call.Held())
		}
	}
}

// endOf finishes n of the picks that hold a, with each outcome in turn.
func endOf(n int) step {
	return func(s *stage) {
		for i, h := range s.held["a"][:n] {
			h.Finish(policy.Outcome(i%4), policy.NoInfo)
		}
		s.held["a"] = s.held["a"][n:]
	}
}

// seats are the READY endpoints with what each has in flight, found by drawing
// each place in turn.
func (s *stage) seats() string {
	s.t.Helper()
	var out []string
	for i, n := 0, 1; i < n; i++ {
		s.draws(i, n)
		call := &policy.Call{Trace: new(policy.Trace)}
		_, err := s.tree.Pick(call)
		switch {
		case errors.Is(err, balancer.ErrNoSubConnAvailable):
			return "queue"
		case err != nil:
			return err.Error()
		}
		e := lbtest.As[policy.EndpointStep](s.t, call.Trace.Steps[0])
		n = e.Rotation
		c := lbtest.As[leastrequest.Compared](s.t, e.Detail)[0]
		addresses := []string{c.Address}
		for _, known := range s.endpoints {
			if known.Addresses[0] == c.Address {
				addresses = known.Addresses
			}
		}
		out = append(out, fmt.Sprintf("%s:%d", strings.Join(addresses, "+"), c.InFlight))
	}
	return strings.Join(out, " ")
}

// draws lets pickers draw places of n in turn, over and over.
func (s *stage) draws(placesOfN ...int) {
	last := len(placesOfN) - 1
	width := uint64(1<<63) / uint64(placesOfN[last]) * 2
	var values []uint64
	for _, i := range placesOfN[:last] {
		values = append(values, width*uint64(i)+width/2)
	}
	s.next = lbtest.Draws(values...)
}

func TestLeastRequest(t *testing.T) {
	tests := []struct {
		name  string
		steps []step
		want  string
	}{
		{"all connect", []step{config("a", "b"), connects("a", 1), connects("b", 1), reports(1)}, "CONNECTING queue"},
		{"the READY ones are drawn", []step{config("a", "b", "c"), says("a", ready), says("c", ready)}, "READY a:0 c:0"},
		{"coming up together: one picker", []step{config("a", "b", "c"), reports(1), together("a", "b", "c"), reports(2)}, "READY a:0 b:0 c:0"},
		{"one fails, one connects: there is hope", []step{config("a", "b"), says("a", connecting, failure)}, "CONNECTING queue"},
		{"all failed: the last error", []step{config("a", "b"), says("b", connecting, failure), says("a", connecting, failure)}, "TRANSIENT_FAILURE a refused"},
		{
			"failed until READY, through IDLE and CONNECTING, asked to connect each time",
			[]step{config("a"), says("a", connecting, failure, idle, connecting), connects("a", 2)},
			"TRANSIENT_FAILURE a refused",
		},
		{
			"each failure's error is news while all have failed",
			[]step{config("a"), says("a", failure), reports(2), says("a", idle, connecting, failure), reports(2)},
			"TRANSIENT_FAILURE a refused",
		},
		{
			"but no news while another is READY",
			[]step{config("a", "b"), says("a", ready), reports(2), says("b", connecting, failure, idle, connecting, failure), reports(1)},
			"READY a:0",
		},
		{"lost: not drawn, and asked to connect", []step{config("a", "b"), together("a", "b"), says("a", idle), connects("a", 2)}, "READY b:0"},
		{"lost, the only one: it connects again", []step{config("a"), says("a", ready, idle)}, "CONNECTING queue"},
		{
			"a failed one and a lost one: the lost one may come back",
			[]step{config("a", "b"), says("a", ready), says("b", failure), says("a", idle, connecting)},
			"CONNECTING queue",
		},
		{"an endpoint is removed", []step{config("a", "b"), together("a", "b"), config("b")}, "READY b:0"},
		{"the READY one is removed", []step{config("a", "b"), says("a", ready), says("b", failure), config("b")}, "TRANSIENT_FAILURE b refused"},
		{"a new endpoint among failed ones: there is hope", []step{config("a"), says("a", failure), config("a", "b")}, "CONNECTING queue"},
		{
			"an endpoint's value changes: no other connection, but a new picker",
			[]step{config("a", "b"), together("a", "b"), reports(2), config("a'", "b"), reports(2), subConns(2)},
			"READY a:0 b:0",
		},
		{
			"a value changes that picks do not see",
			[]step{config("a", "b"), says("a", ready), reports(2), config("a", "b'"), reports(1)},
			"READY a:0",
		},
		{"another choice count: a new picker", []step{config("a"), says("a", ready), reports(2), choices(3), config("a"), reports(2)}, "READY a:0"},
		{"an endpoint's further addresses change: another connection", []step{config("a"), says("a", ready), config("a+b"), subConns(2)}, "CONNECTING queue"},
		{"several addresses are one endpoint", []step{config("a+b", "c"), together("a", "c"), subConns(2)}, "READY a+b:0 c:0"},
		{"twice the same endpoint is one", []step{config("a", "a", "b"), together("a", "b"), subConns(2)}, "READY a:0 b:0"},
		{"an endpoint without address is left out", []step{addressless, subConns(1)}, "CONNECTING queue"},
		{"nothing changed", []step{config("a", "b"), says("a", ready), reports(2), config("a", "b"), reports(1)}, "READY a:0"},
		{"none at all", []step{config()}, "TRANSIENT_FAILURE no usable endpoints"},
		{"none left", []step{config("a"), says("a", ready), config()}, "TRANSIENT_FAILURE no usable endpoints"},
		{"none, and then one", []step{config(), config("a"), says("a", ready)}, "READY a:0"},
		{"the resolver fails before there is an endpoint", []step{choiceless, resolverError}, "TRANSIENT_FAILURE no such name"},
		{"the resolver fails later", []step{config("a"), says("a", ready), resolverError}, "READY a:0"},

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
			if got := fmt.Sprintf("%v %s", s.tree.State(), s.seats()); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			s.check()
		})
	}
}

func addressless(s *stage) {
	a := policy.ResolverEndpoint(&resource.Endpoint{Addresses: []string{"a"}})
	s.tree.Config(policy.Child{
		Config:    leastrequest.Config{ChoiceCount: 2},
		Endpoints: []resolver.Endpoint{{}, a},
	})
}

// choiceless is a config that cannot be.
func choiceless(s *stage) {
	if err := s.tree.Update(policy.Child{}); err == nil || !strings.Contains(err.Error(), leastrequest.Name) {
		s.t.Errorf("err %v, want one that names the policy", err)
	}
}

func resolverError(s *stage) {
	s.tree.Batch(func() { s.tree.Root().ResolverError(errors.New("no such name")) })
}

// check holds the description and the census against the SubConns.
func (s *stage) check() {
	s.t.Helper()
	n := s.tree.Describe()
	if n.State != s.tree.State() || n.Policy != leastrequest.Name || (n.Err != nil) != (n.State == failure) {
		s.t.Errorf("describes %s in %v with error %v, reported is %v", n.Policy, n.State, n.Err, s.tree.State())
	}
	var want policy.Census
	shares := 0.0
	for _, e := range n.Endpoints {
		if shares += e.Share; (e.Share > 0) != e.InRotation {
			s.t.Errorf("%s: describes %+v", e.Endpoint.Addresses[0], e)
		}
		sc := s.tree.SubConn(e.Endpoint.Addresses[0])
		if e.State != sc.State || e.InRotation != (sc.State == ready) || (e.Address != "") != (sc.State == ready) {
			s.t.Errorf("%s: describes %+v, is %v", e.Endpoint.Addresses[0], e, sc.State)
		}
		switch sc.State {
		case ready:
			want.Ready++
		case connecting:
			want.Connecting++
		case idle:
			want.Idle++
		case failure:
			want.TransientFailure++
		}
	}
	if !n.Shares || (want.Ready > 0) != (shares > 0.999 && shares < 1.001) {
		s.t.Errorf("shares come to %v: %+v", shares, n)
	}
	got := s.tree.Summarize()
	if got.Census != want || got.Census.Total() != len(n.Endpoints) || got.State != s.tree.State() {
		s.t.Errorf("summary %+v, want %+v", got, want)
	}
	alive := 0
	for _, sc := range s.tree.SubConns {
		if !sc.Closed {
			alive++
		}
	}
	if alive != len(n.Endpoints) {
		s.t.Errorf("%d SubConns for %d endpoints", alive, len(n.Endpoints))
	}
}

// TestSubConnRefused: an endpoint that cannot have a SubConn does not keep the
// others from theirs.
func TestSubConnRefused(t *testing.T) {
	s := newStage(t)
	errMode := errors.New("no such connect mode")
	s.tree.RefuseSubConn = func(address string) error {
		if address == "a" {
			return errMode
		}
		return nil
	}
	child := policy.Child{Config: leastrequest.Config{ChoiceCount: 2}}
	for _, a := range []string{"a", "b"} {
		child.Endpoints = append(child.Endpoints, policy.ResolverEndpoint(&resource.Endpoint{Addresses: []string{a}}))
	}
	if err := s.tree.Update(child); !errors.Is(err, errMode) || !strings.Contains(err.Error(), "a") {
		t.Errorf("err %v, want %v and which", err, errMode)
	}
	says("b", ready)(s)
	if res, err := s.tree.Pick(nil); err != nil || res.SubConn != s.tree.SubConn("b") {
		t.Errorf("picked %v, %v", res, err)
	}
	s.check()
}

// TestConnectOrder: many clients with one list do not all begin at its head.
func TestConnectOrder(t *testing.T) {
	for draw, want := range map[uint64]string{0: "a b c d", 1 << 62: "b c d a", 1<<64 - 1: "d a b c"} {
		s := newStage(t)
		s.tree.Draw = lbtest.Draws(draw)
		config("a", "b", "c", "d")(s)
		if got := strings.Join(s.tree.Connected, " "); got != want {
			t.Errorf("draw %#x: connects %s, want %s", draw, got, want)
		}
	}
}

func TestLateWords(t *testing.T) {
	s := newStage(t, config("a", "b"))
	gone := s.tree.SubConn("a")
	together("a", "b")(s)
	config("b")(s)
	s.tree.Reports = nil
	s.tree.Batch(func() { gone.Says(ready, nil) })
	if len(s.tree.Reports) != 0 {
		t.Error("a removed endpoint's word was heard")
	}
	s.tree.Close()
	for _, sc := range s.tree.SubConns {
		if !sc.Closed {
			t.Errorf("%s is not shut down", sc.Addresses[0].Addr)
		}
	}
}
