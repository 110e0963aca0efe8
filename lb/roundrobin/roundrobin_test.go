package roundrobin_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/roundrobin"
	"github.com/lbd-dev/lbd/test/lbtest"
	"github.com/lbd-dev/lbd/xds/resource"
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
	config    = lbtest.Endpoints
	says      = lbtest.Says
	connected = lbtest.Connected
	reports   = lbtest.Reports
)

// newStage has an endpoint b of another weight, which round_robin ignores.
func newStage(t testing.TB, steps ...step) *stage {
	s := lbtest.NewStage(t, roundrobin.Builder(), nil)
	s.Endpoints["b"] = &resource.Endpoint{Addresses: []string{"b"}, Weight: 7}
	for _, step := range steps {
		step(s)
	}
	return s
}

// subConns expects the number of SubConns that were made.
func subConns(want int) step {
	return func(s *stage) {
		s.TB.Helper()
		if got := len(s.SubConns); got != want {
			s.TB.Errorf("%d SubConns were made, want %d", got, want)
		}
	}
}

func together(addresses ...string) step { return lbtest.Together(ready, addresses...) }

// rotation picks twice as often as there are endpoints and returns one turn,
// beginning at the first pick.
func rotation(s *stage, t testing.TB) string {
	var picked []string
	n := max(1, len(s.Describe().Endpoints))
	for range 2 * n {
		picked = append(picked, s.Picked(new(policy.Call)))
	}
	turn := 1 + slices.Index(picked[1:], picked[0])
	if turn == 0 {
		turn = len(picked)
	}
	for i := range picked {
		if picked[i] != picked[i%turn] {
			t.Errorf("no turns: %v", picked)
		}
	}
	return strings.Join(picked[:turn], " ")
}

func TestRoundRobin(t *testing.T) {
	tests := []struct {
		name  string
		steps []step
		want  string
	}{
		{"the READY ones take turns", []step{config("a", "b", "c"), says("a", ready), says("c", ready)}, "READY c a"},
		{"coming up together: one picker", []step{config("a", "b", "c"), reports(1), together("a", "b", "c"), reports(2)}, "READY b c a"},
		{"one failed, one connects: CONNECTING", []step{config("a", "b"), says("a", connecting, failure)}, "CONNECTING queue"},
		{"all failed: the last error", []step{config("a", "b"), says("b", connecting, failure), says("a", connecting, failure)}, "TRANSIENT_FAILURE a refused"},
		{
			"failed until READY, through IDLE and CONNECTING, asked to connect each time",
			[]step{config("a"), says("a", connecting, failure, idle, connecting), connected("a a")},
			"TRANSIENT_FAILURE a refused",
		},
		{
			"each failure's error is reported while all have failed",
			[]step{config("a"), says("a", failure), reports(2), says("a", idle, connecting, failure), reports(2)},
			"TRANSIENT_FAILURE a refused",
		},
		{
			"but not while another is READY",
			[]step{config("a", "b"), says("a", ready), reports(2), says("b", connecting, failure, idle, connecting, failure), reports(1)},
			"READY a",
		},
		{"lost: out of the rotation, and asked to connect", []step{config("a", "b"), together("a", "b"), says("a", idle), connected("a b a")}, "READY b"},
		{"lost, the only one: it connects again", []step{config("a"), says("a", ready, idle)}, "CONNECTING queue"},
		{"lost and back", []step{config("a", "b"), together("a", "b"), says("a", idle, connecting, ready)}, "READY b a"},
		{
			"a failed one and a lost one: CONNECTING",
			[]step{config("a", "b"), says("a", ready), says("b", failure), says("a", idle, connecting)},
			"CONNECTING queue",
		},
		{"the config's order is the rotation's", []step{config("c", "a", "b"), together("a", "b", "c")}, "READY a b c"},
		{
			"another order: another rotation, no other connection",
			[]step{config("a", "b", "c"), together("a", "b", "c"), config("a", "c", "b"), subConns(3)},
			"READY c b a",
		},
		{"an endpoint is added", []step{config("a"), says("a", ready), config("a", "b"), reports(3)}, "READY a"},
		{"an endpoint is removed", []step{config("a", "b"), together("a", "b"), config("b")}, "READY b"},
		{"the READY one is removed", []step{config("a", "b"), says("a", ready), says("b", failure), config("b")}, "TRANSIENT_FAILURE b refused"},
		{"the connecting one is removed: only failures are left", []step{config("a", "b"), says("b", failure), config("b")}, "TRANSIENT_FAILURE b refused"},
		{"a new endpoint among failed ones: CONNECTING", []step{config("a"), says("a", failure), config("a", "b")}, "CONNECTING queue"},
		{"a removed one that comes back is new", []step{config("a", "b"), together("a", "b"), config("b"), config("a", "b"), subConns(3)}, "READY b"},
		{
			"an endpoint's value changes: no other connection, but a new picker with the value",
			[]step{config("a", "b"), together("a", "b"), reports(2), config("a'", "b"), reports(2), subConns(2)},
			"READY b a",
		},
		{
			"a value changes that picks do not see",
			[]step{config("a", "b"), says("a", ready), reports(2), config("a", "b'"), reports(1)},
			"READY a",
		},
		{
			"an endpoint's further addresses change: another connection",
			[]step{config("a"), says("a", ready), config("a+b"), subConns(2)},
			"CONNECTING queue",
		},
		{
			"another order of an endpoint's addresses: the same connection with the new addresses, and a new picker",
			[]step{config("a+b", "c"), together("a", "c"), config("c", "b+a"), subConns(2), connected("a c"), reports(3)},
			"READY b+a c",
		},
		{
			"another order where it failed: it has its back-off",
			[]step{config("a+b"), says("a", failure), reports(2), config("b+a"), subConns(1), connected("a"), reports(1)},
			"TRANSIENT_FAILURE a refused",
		},
		{
			"another order with another address: another connection",
			[]step{config("a+b", "d"), says("a", ready), config("c+a", "d"), subConns(3)},
			"CONNECTING queue",
		},
		{"several addresses are one endpoint", []step{config("a+b", "c"), together("a", "c"), subConns(2)}, "READY c a+b"},
		{"twice the same endpoint is one", []step{config("a", "a", "b"), together("a", "b"), subConns(2)}, "READY b a"},
		{
			"twice the same address with other values: the first counts, and stays",
			[]step{config("a", "a+b", "a'"), says("a", ready), reports(2), config("a", "a+b", "a'"), reports(1), subConns(1)},
			"READY a",
		},
		{"an endpoint without address is left out", []step{addressless, subConns(1)}, "CONNECTING queue"},
		{"nothing changed", []step{config("a", "b"), says("a", ready), reports(2), config("a", "b"), reports(1)}, "READY a"},
		{"none left", []step{config("a"), says("a", ready), config()}, "TRANSIENT_FAILURE no usable endpoints"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, tt.steps...)
			if got := fmt.Sprintf("%v %s", s.State(), rotation(s, t)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			s.Check()
		})
	}
}

func addressless(s *stage) {
	s.Config(policy.Child{Endpoints: []*resource.Endpoint{{}, {Addresses: []string{"a"}}}})
}

// TestRandomStart: each picker begins where its draw says, and so does
// connecting.
func TestRandomStart(t *testing.T) {
	for draw, want := range map[uint64]string{0: "b c a", 1: "c a b", 2: "a b c", 1<<32 + 1: "c a b"} {
		s := newStage(t)
		s.Next = lbtest.Draws(draw)
		config("a", "b", "c")(s)
		together("a", "b", "c")(s)
		if got := rotation(s, t); got != want {
			t.Errorf("draw %d: %s, want %s", draw, got, want)
		}
	}
}

// TestConnectOrder: clients with the same list do not all connect to its head first.
func TestConnectOrder(t *testing.T) {
	for draw, want := range map[uint64]string{0: "a b c d", 1 << 62: "b c d a", 3 << 62: "d a b c", 1<<64 - 1: "d a b c"} {
		newStage(t, func(s *stage) { s.Next = lbtest.Draws(draw) }, config("a", "b", "c", "d"), connected(want))
	}
}

func TestExclude(t *testing.T) {
	tests := []struct {
		exclude  string
		excluded int
		want     string // the endpoints of six picks; "(b)a" is a in place of b
	}{
		{"", 0, "b+x c a b+x c a"},
		{"a", 1, "b+x c (a)c b+x c (a)b+x"},
		{"b", 1, "(b+x)c c a (b+x)a c a"},
		{"x", 1, "(b+x)c c a (b+x)a c a"}, // an additional address
		{"a c", 2, "b+x (c)b+x (a)b+x b+x (c)b+x (a)b+x"},
		{"z", 0, "b+x c a b+x c a"},
		{"a b c", 3, "every READY endpoint is excluded"},
	}
	for _, tt := range tests {
		t.Run(tt.exclude, func(t *testing.T) {
			s := newStage(t)
			s.Next = lbtest.Draws(0)
			config("a", "b+x", "c")(s)
			s.Next = lbtest.Draws(0, 3<<62, 2<<62, 0) // where the turns begin; c, b, a
			together("a", "b", "c")(s)
			var picked []string
			for range 6 {
				call := &policy.Call{Exclude: strings.Fields(tt.exclude), Trace: new(policy.Trace)}
				_, err := s.Pick(call)
				e := lbtest.As[policy.EndpointStep](t, call.Trace.Steps[0])
				if e.Excluded != tt.excluded || e.Rotation != 3 || e.Policy != roundrobin.Name || e.Endpoint != call.Endpoint {
					t.Errorf("trace %+v", e)
				}
				var refusal *policy.Refusal
				if err != nil {
					if !errors.As(err, &refusal) || refusal.Kind != policy.KindAllExcluded || err.Error() != tt.want || e.Index != -1 {
						t.Errorf("err %v with trace %+v, want %s", err, e, tt.want)
					}
					return
				}
				name := strings.Join(call.Endpoint.Addresses, "+")
				if []string{"a", "b+x", "c"}[e.Index] != name {
					t.Errorf("trace %+v for %s", e, name)
				}
				if e.InsteadOf != nil {
					name = "(" + strings.Join(e.InsteadOf.Addresses, "+") + ")" + name
				}
				picked = append(picked, name)
			}
			if got := strings.Join(picked, " "); got != tt.want {
				t.Errorf("picked %s, want %s", got, tt.want)
			}
		})
	}
}
