package pickfirst_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/pickfirst"
	"github.com/lbd-dev/lbd/lb/policy"
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

func newStage(t testing.TB, steps ...step) *stage {
	return lbtest.NewStage(t, pickfirst.Builder(), pickfirst.Config{}, steps...)
}

// open expects the addresses that have a SubConn, in the order in which they were made.
func open(want string) step {
	return func(s *stage) {
		s.TB.Helper()
		var open []string
		for _, sc := range s.SubConns {
			if !sc.Closed {
				open = append(open, sc.Addresses[0].Addr)
			}
		}
		if got := strings.Join(open, " "); got != want {
			s.TB.Errorf("%q have a SubConn, want %q", got, want)
		}
	}
}

// play runs steps in a bubble, and closes the policy.
func play(t *testing.T, steps ...step) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, steps...)
		s.Check()
		s.Close()
		open("")(s)
	})
}

// shuffled shuffles the endpoints of the next config on, by these draws.
func shuffled(draws ...uint64) step {
	return func(s *stage) {
		s.BalancerConfig, s.Next = pickfirst.Config{ShuffleAddressList: true}, lbtest.Draws(draws...)
	}
}

// fails lets the attempts to connect to addresses fail.
func fails(addresses ...string) step {
	return func(s *stage) {
		for _, a := range addresses {
			says(a, connecting, failure)(s)
		}
	}
}

// passes lets time pass.
func passes(d time.Duration) step { return func(s *stage) { s.Sleep(d) } }

// pick expects what comes of a pick.
func pick(want string, exclude ...string) step {
	return func(s *stage) {
		call := &policy.Call{Exclude: exclude}
		if got := s.Picked(call); got != want {
			s.TB.Errorf("picked %s, want %s", got, want)
		}
	}
}

func TestPickFirst(t *testing.T) {
	const delay = 250 * time.Millisecond // gRFC A61
	tests := []struct {
		name  string
		steps []step
		want  connectivity.State
	}{
		{"the first is tried, alone", []step{config("a", "b"), connected("a"), open("a"), reports(1), pick("queue")}, connecting},
		{"and picked", []step{config("a", "b"), says("a", connecting, ready), pick("a"), reports(2), passes(delay), connected("a")}, ready},
		{"it fails: the next", []step{config("a", "b", "c"), fails("a"), connected("a b"), pick("queue"), says("b", connecting, ready), pick("b"), open("b")}, ready},
		{"it is slow: the next is tried as well", []step{config("a", "b"), says("a", connecting), passes(delay - 1), connected("a"), passes(1), connected("a b"), open("a b")}, connecting},
		{"and each next one", []step{config("a", "b", "c"), passes(2 * delay), connected("a b c"), passes(delay), connected("a b c")}, connecting},
		{"each has its own delay", []step{config("a", "b", "c"), passes(delay - 1), fails("a"), passes(delay - 1), connected("a b"), passes(1), connected("a b c")}, connecting},
		{"the first READY one is picked; the others are shut down", []step{config("a", "b", "c"), passes(2 * delay), says("b", connecting, ready), open("b"), pick("b")}, ready},
		{"and their timer stopped", []step{config("a", "b", "c"), passes(delay), says("b", connecting, ready), passes(10 * delay), open("b"), connected("a b")}, ready},
		{"an earlier one that fails late does not start the next", []step{config("a", "b", "c"), passes(delay), fails("a"), connected("a b"), passes(delay), connected("a b c")}, connecting},

		{"all fail: the last error", []step{config("a", "b"), fails("a", "b"), pick("b refused"), reports(2)}, failure},
		{"not before all have", []step{config("a", "b"), passes(delay), fails("b"), pick("queue"), says("a", connecting, failure), pick("a refused")}, failure},
		{"the only one", []step{config("a"), fails("a"), pick("a refused")}, failure},
		{
			"then each is tried by itself, once its back-off is over",
			[]step{config("a", "b"), fails("a", "b"), connected("a b"), says("b", idle), says("a", idle), connected("a b b a"), pick("b refused")},
			failure,
		},
		{
			"one whose back-off is over already, at once",
			[]step{config("a", "b"), fails("a"), says("a", idle), connected("a b"), fails("b"), connected("a b a")},
			failure,
		},
		{"failed until READY", []step{config("a", "b"), fails("a", "b"), says("a", idle, connecting), says("b", idle, connecting), pick("b refused"), reports(2)}, failure},
		{"READY at last", []step{config("a", "b"), fails("a", "b"), says("a", idle, connecting), says("b", idle, connecting, ready), pick("b"), open("b")}, ready},
		{
			"the error is reported after as many failures as addresses",
			[]step{config("a", "b"), fails("a", "b"), reports(2), says("a", idle), fails("a"), reports(1), pick("b refused"), says("b", idle), fails("b"), reports(2), says("a", idle), fails("a"), reports(1), says("a", idle), fails("a"), reports(2), pick("a refused")},
			failure,
		},
		{
			"without those of the last pass",
			[]step{config("a", "b"), passes(delay), says("a", connecting, ready, idle), pick("queue"), fails("a", "b"), reports(5), says("a", idle), says("b", idle), fails("a"), reports(1), fails("b"), reports(2)},
			failure,
		},

		{"lost: IDLE, and nothing is tried", []step{config("a", "b"), says("a", connecting, ready, idle), passes(time.Hour), connected("a"), reports(3)}, idle},
		{"lost later, without the error of an earlier attempt", []step{config("a"), fails("a"), says("a", idle, connecting, ready, idle), func(s *stage) {
			if n := s.Describe().Endpoints[0]; n.LastErr != nil {
				s.TB.Errorf("last error %v", n.LastErr)
			}
		}}, idle},
		{"until there is a pick", []step{config("a", "b"), says("a", connecting, ready, idle), pick("queue"), connected("a a"), says("a", connecting, ready), pick("a")}, ready},
		{"which begins with the first again", []step{config("a", "b"), fails("a"), says("b", connecting, ready, idle), pick("queue"), connected("a b a"), open("b a")}, connecting},
		{"however many picks there are", []step{config("a"), says("a", connecting, ready, idle), pick("queue"), pick("queue"), connected("a a"), reports(4)}, connecting},
		{"lost before it was READY: IDLE as well", []step{config("a", "b"), passes(delay), says("a", connecting, idle), open("a")}, idle},
		{"lost by a failure: IDLE as well, and the next is tried", []step{config("a", "b"), says("a", connecting, ready, failure), pick("queue"), connected("a b")}, connecting},

		{"another list, with the picked one in it: it stays", []step{config("a", "b"), fails("a"), says("b", connecting, ready), reports(2), config("c", "b"), pick("b"), connected("a b"), reports(1)}, ready},
		{"its value changes: a picker with the new one", []step{config("a"), says("a", connecting, ready), reports(2), config("a'"), reports(2), func(s *stage) {
			call := new(policy.Call)
			if _, err := s.Pick(call); err != nil || call.Endpoint != s.Endpoints["a'"] {
				s.TB.Errorf("picked %v, %v", call.Endpoint, err)
			}
		}}, ready},
		{"it becomes another endpoint's address: the same connection", []step{config("a", "b"), says("a", connecting, ready), config("x+a"), pick("x+a"), connected("a")}, ready},
		{"lost then, the new list's head is tried", []step{config("b"), says("b", connecting, ready), config("c", "b"), says("b", idle), pick("queue"), connected("b c")}, connecting},
		{"another list, without the picked one", []step{config("a"), says("a", connecting, ready), config("b", "c"), pick("queue"), open("b"), connected("a b")}, connecting},
		{"another list while one is tried: from its head on", []step{config("a", "b"), fails("a"), says("b", connecting), config("c", "b"), connected("a b c"), open("b c"), passes(delay), connected("a b c")}, connecting},
		{"the same list while one is tried", []step{config("a", "b"), says("a", connecting), passes(delay / 2), config("a", "b"), connected("a"), passes(delay - 1), connected("a"), passes(1), connected("a b")}, connecting},
		{"one that has failed before waits for its back-off", []step{config("a", "b"), fails("a"), config("a", "c"), connected("a b c"), fails("c"), pick("c refused")}, failure},
		{"all of them", []step{config("a", "b"), fails("a", "b"), config("b", "a"), pick("a refused"), connected("a b"), says("a", idle), connected("a b a")}, failure},
		{"another list for failed ones: what is new is tried, in CONNECTING", []step{config("a"), fails("a"), config("a", "b"), connected("a b"), pick("a refused"), says("b", connecting), pick("queue")}, connecting},
		{"a list without those that were to be tried: they are not", []step{config("a", "b", "c"), fails("a"), config("a"), pick("a refused"), passes(delay), pick("a refused"), connected("a b")}, failure},
		{"the same list for failed ones: their retries are not CONNECTING", []step{config("a", "b"), fails("a", "b"), says("a", idle), config("b", "a"), says("a", connecting), pick("b refused")}, failure},
		{"another list for an IDLE one: nothing is tried", []step{config("a"), says("a", connecting, ready, idle), config("b"), open(""), connected("a"), pick("queue"), connected("a b")}, connecting},

		{"several addresses of one endpoint are tried one by one", []step{config("a+b", "c"), fails("a"), connected("a b"), says("b", connecting, ready), pick("a+b")}, ready},
		{"an address that is there twice is tried once", []step{config("a", "b+a", "b"), fails("a", "b"), connected("a b"), pick("b refused")}, failure},
		{"families take turns, the first one's first", []step{config("10.0.0.1:1", "10.0.0.2:1", "[::1]:1", "db:1", "[::ffff:10.0.0.3]:1", "[::2]:1"), passes(time.Minute), connected("10.0.0.1:1 [::1]:1 db:1 10.0.0.2:1 [::2]:1 [::ffff:10.0.0.3]:1")}, connecting},
		{"IPv6 first", []step{config("[::1]:1", "[::2]:1", "[::3]:1", "10.0.0.1:1"), passes(time.Minute), connected("[::1]:1 10.0.0.1:1 [::2]:1 [::3]:1")}, connecting},
		{"names first", []step{config("db:1", "db:2", "10.0.0.1:1"), passes(time.Minute), connected("db:1 10.0.0.1:1 db:2")}, connecting},

		{"excluded", []step{config("a+x", "b"), says("a", connecting, ready), pick("the endpoint that all picks go to is excluded", "a"), pick("the endpoint that all picks go to is excluded", "x"), pick("a+x", "b")}, ready},

		{"none at all", []step{config(), pick("no usable endpoints")}, failure},
		{"none left", []step{config("a"), says("a", connecting, ready), config(), open(""), pick("no usable endpoints")}, failure},
		{"none left while one is tried", []step{config("a", "b"), config(), open(""), passes(delay), connected("a")}, failure},
		{"none, and then one: earlier failures are forgotten", []step{config(), config("a"), pick("queue"), connected("a")}, connecting},
		{"no config is needed", []step{bare, connected("a")}, connecting},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			play(t, append(tt.steps, func(s *stage) {
				if got := s.State(); got != tt.want {
					t.Errorf("is %v, want %v", got, tt.want)
				}
			})...)
		})
	}
}

func bare(s *stage) {
	s.Config(policy.Child{Endpoints: []*resource.Endpoint{{}, {Addresses: []string{"a"}}}})
}

// TestClosedIgnoresPicks: a late pick of an IDLE picker connects nothing.
func TestClosedIgnoresPicks(t *testing.T) {
	play(t, config("a"), says("a", connecting, ready, idle), func(s *stage) {
		idler := s.Picker()
		s.Batch(s.Root().Close)
		if _, err := idler.Pick(balancer.PickInfo{Ctx: t.Context()}); !errors.Is(err, balancer.ErrNoSubConnAvailable) {
			t.Errorf("err %v after Close", err)
		}
		s.Batch(func() {}) // what it posted has happened
	}, open(""))
}

// TestIdlePickOfOldPicker: a late pick of a picker that was replaced begins nothing.
func TestIdlePickOfOldPicker(t *testing.T) {
	play(t, config("a"), says("a", connecting, ready, idle), func(s *stage) {
		old := s.Picker()
		config()(s)
		config("a")(s)
		says("a", connecting, ready)(s)
		_, _ = old.Pick(balancer.PickInfo{Ctx: t.Context()}) // it queues
		s.Batch(func() {})
	}, connected("a a"), pick("a"))
}

// TestShuffle: the draws say in which order endpoints are tried; an endpoint's
// addresses stay together.
func TestShuffle(t *testing.T) {
	tests := []struct {
		draws []uint64 // for a, b+x and c; the higher the earlier
		want  string
	}{
		{[]uint64{3 << 62, 2 << 62, 1 << 62}, "a b x c"},
		{[]uint64{1 << 62, 2 << 62, 3 << 62}, "c b x a"},
		{[]uint64{2 << 62, 3 << 62, 1 << 62}, "b x a c"},
		{[]uint64{1 << 62, 1 << 62, 1 << 62}, "a b x c"},
		{[]uint64{0, 2 << 62, 1 << 62}, "b x c a"},
	}
	for _, tt := range tests {
		play(t, shuffled(tt.draws...), config("a", "b+x", "c"), passes(time.Minute), connected(tt.want))
	}
}

// TestShuffleKeepsWhatServes: another order is no reason to connect.
func TestShuffleKeepsWhatServes(t *testing.T) {
	play(t, shuffled(3<<62, 1<<62, 1<<62, 3<<62), config("a", "b"), says("a", connecting, ready),
		config("a", "b"), pick("a"), connected("a"),
		says("a", idle), pick("queue"), connected("a b")) // as it was shuffled last
}

// TestShuffleWeighs: the first is one of weight w with a chance of w in all
// weights, over localities and within them.
func TestShuffleWeighs(t *testing.T) {
	child, shares := lbtest.Weighted()
	child.Config = pickfirst.Config{ShuffleAddressList: true}
	const runs = 20_000
	counts := make(map[string]float64)
	synctest.Test(t, func(t *testing.T) { // no attempt begins because time passes
		s := newStage(t)
		defer s.Close()
		s.Next = rand.New(rand.NewPCG(1, 2)).Uint64
		for range runs {
			s.Tree.Config(child)
			counts[s.Connected[len(s.Connected)-1]]++
			config()(s) // the next begins from nothing
		}
	})
	for name, want := range shares {
		if got := counts[name] / runs; got < want*0.9 || got > want*1.1 {
			t.Errorf("%s is first in %v of the runs, want about %v", name, got, want)
		}
	}
}
