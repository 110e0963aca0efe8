package pickfirst_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/lbtest"
	"github.com/lbd-dev/lbd/lb/pickfirst"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	idle       = connectivity.Idle
	connecting = connectivity.Connecting
	ready      = connectivity.Ready
	failure    = connectivity.TransientFailure
)

// stage is a pick_first whose endpoints are named by their address. Several
// addresses of one endpoint are joined with "+".
type stage struct {
	t         testing.TB
	tree      *lbtest.Tree
	endpoints map[string]*resource.Endpoint
	shuffle   bool
}

type step func(s *stage)

func newStage(t testing.TB, steps ...step) *stage {
	s := &stage{t: t, tree: lbtest.NewTree(t, pickfirst.Builder()), endpoints: map[string]*resource.Endpoint{}}
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
		child := policy.Child{Config: pickfirst.Config{ShuffleAddressList: s.shuffle}}
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

// fails lets the attempts to connect to addresses fail.
func fails(addresses ...string) step {
	return func(s *stage) {
		s.t.Helper()
		for _, a := range addresses {
			says(a, connecting, failure)(s)
		}
	}
}

// passes lets time pass.
func passes(d time.Duration) step { return func(s *stage) { s.t.Helper(); s.tree.Sleep(d) } }

// connected asserts which addresses were asked to connect so far, in order.
func connected(want string) step {
	return func(s *stage) {
		s.t.Helper()
		if got := strings.Join(s.tree.Connected, " "); got != want {
			s.t.Errorf("asked %q to connect, want %q", got, want)
		}
	}
}

// alive asserts which addresses have a SubConn.
func alive(want string) step {
	return func(s *stage) {
		s.t.Helper()
		var got []string
		for _, sc := range s.tree.SubConns {
			if !sc.Closed {
				got = append(got, sc.Addresses[0].Addr)
			}
			if len(sc.Addresses) != 1 {
				s.t.Errorf("a SubConn has the addresses %v, want one", sc.Addresses)
			}
		}
		if got := strings.Join(got, " "); got != want {
			s.t.Errorf("%q have a SubConn, want %q", got, want)
		}
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

// pick asserts what comes of a pick.
func pick(want string, exclude ...string) step {
	return func(s *stage) {
		s.t.Helper()
		call := &policy.Call{Exclude: exclude}
		res, err := s.tree.Pick(call)
		s.tree.Batch(func() {}) // what it posted has happened
		var got string
		switch {
		case errors.Is(err, balancer.ErrNoSubConnAvailable):
			got = "queue"
		case err != nil:
			got = err.Error()
		default:
			got = lbtest.As[*lbtest.SubConn](s.t, res.SubConn).Addresses[0].Addr
			if !slices.Contains(call.Endpoint.Addresses, got) {
				s.t.Errorf("the endpoint is %v, want that of %s", call.Endpoint, got)
			}
		}
		if got != want {
			s.t.Errorf("picked %s, want %s", got, want)
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
		{"the first is tried, alone", []step{config("a", "b"), connected("a"), alive("a"), reports(1), pick("queue")}, connecting},
		{"and picked", []step{config("a", "b"), says("a", connecting, ready), pick("a"), reports(2), passes(delay), connected("a")}, ready},
		{"it fails: the next", []step{config("a", "b", "c"), fails("a"), connected("a b"), pick("queue"), says("b", connecting, ready), pick("b"), alive("b")}, ready},
		{"it takes its time: the next beside it", []step{config("a", "b"), says("a", connecting), passes(delay - 1), connected("a"), passes(1), connected("a b"), alive("a b")}, connecting},
		{"and each next one", []step{config("a", "b", "c"), passes(2 * delay), connected("a b c"), passes(delay), connected("a b c")}, connecting},
		{"the time begins anew with each", []step{config("a", "b", "c"), passes(delay - 1), fails("a"), passes(delay - 1), connected("a b"), passes(1), connected("a b c")}, connecting},
		{"who is READY first is picked; the others are let go", []step{config("a", "b", "c"), passes(2 * delay), says("b", connecting, ready), alive("b"), pick("b")}, ready},
		{"with them their timer", []step{config("a", "b", "c"), passes(delay), says("b", connecting, ready), passes(10 * delay), alive("b"), connected("a b")}, ready},
		{"an earlier one that fails late hurries nobody", []step{config("a", "b", "c"), passes(delay), fails("a"), connected("a b"), passes(delay), connected("a b c")}, connecting},

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
		{"READY at last", []step{config("a", "b"), fails("a", "b"), says("a", idle, connecting), says("b", idle, connecting, ready), pick("b"), alive("b")}, ready},
		{
			"the error is news when as many have failed as there are",
			[]step{config("a", "b"), fails("a", "b"), reports(2), says("a", idle), fails("a"), reports(1), pick("b refused"), says("b", idle), fails("b"), reports(2), says("a", idle), fails("a"), reports(1), says("a", idle), fails("a"), reports(2), pick("a refused")},
			failure,
		},
		{
			"as there are now: those of the last pass do not count",
			[]step{config("a", "b"), passes(delay), says("a", connecting, ready, idle), pick("queue"), fails("a", "b"), reports(5), says("a", idle), says("b", idle), fails("a"), reports(1), fails("b"), reports(2)},
			failure,
		},

		{"lost: IDLE, and nothing is tried", []step{config("a", "b"), says("a", connecting, ready, idle), passes(time.Hour), connected("a"), reports(3)}, idle},
		{"until there is a pick", []step{config("a", "b"), says("a", connecting, ready, idle), pick("queue"), connected("a a"), says("a", connecting, ready), pick("a")}, ready},
		{"which begins at the head again", []step{config("a", "b"), fails("a"), says("b", connecting, ready, idle), pick("queue"), connected("a b a"), alive("b a")}, connecting},
		{"however many picks there are", []step{config("a"), says("a", connecting, ready, idle), pick("queue"), pick("queue"), connected("a a"), reports(4)}, connecting},
		{"or it is told to", []step{config("a"), says("a", connecting, ready, idle), exitIdle, connected("a a")}, connecting},
		{"which means nothing where it is not IDLE", []step{config("a", "b"), says("a", connecting), exitIdle, connected("a"), fails("a", "b"), exitIdle, connected("a b")}, failure},
		{"lost before it was READY: IDLE as well", []step{config("a", "b"), passes(delay), says("a", connecting, idle), alive("a")}, idle},
		{"lost by a failure: IDLE as well, and the next is tried", []step{config("a", "b"), says("a", connecting, ready, failure), pick("queue"), connected("a b")}, connecting},

		{"another list, with the picked one in it: it stays", []step{config("a", "b"), fails("a"), says("b", connecting, ready), reports(2), config("c", "b"), pick("b"), connected("a b"), reports(1)}, ready},
		{"its value changes: a picker that tells the new one", []step{config("a"), says("a", connecting, ready), reports(2), config("a'"), reports(2), func(s *stage) {
			call := new(policy.Call)
			if _, err := s.tree.Pick(call); err != nil || call.Endpoint != s.endpoints["a'"] {
				s.t.Errorf("picked %v, %v", call.Endpoint, err)
			}
		}}, ready},
		{"it becomes another endpoint's address: the same connection", []step{config("a", "b"), says("a", connecting, ready), config("x+a"), pick("a"), connected("a")}, ready},
		{"lost then, the new list's head is tried", []step{config("b"), says("b", connecting, ready), config("c", "b"), says("b", idle), pick("queue"), connected("b c")}, connecting},
		{"another list, without the picked one", []step{config("a"), says("a", connecting, ready), config("b", "c"), pick("queue"), alive("b"), connected("a b")}, connecting},
		{"another list while one is tried: from its head on", []step{config("a", "b"), fails("a"), says("b", connecting), config("c", "b"), connected("a b c"), alive("b c"), passes(delay), connected("a b c")}, connecting},
		{"the same list while one is tried", []step{config("a", "b"), says("a", connecting), passes(delay / 2), config("a", "b"), connected("a"), passes(delay - 1), connected("a"), passes(1), connected("a b")}, connecting},
		{"one that has failed before waits for its back-off", []step{config("a", "b"), fails("a"), config("a", "c"), connected("a b c"), fails("c"), pick("c refused")}, failure},
		{"all of them", []step{config("a", "b"), fails("a", "b"), config("b", "a"), pick("a refused"), connected("a b"), says("a", idle), connected("a b a")}, failure},
		{"another list for failed ones: what is new is tried, and there is hope", []step{config("a"), fails("a"), config("a", "b"), connected("a b"), pick("a refused"), says("b", connecting), pick("queue")}, connecting},
		{"a list without those that were to be tried: they are not", []step{config("a", "b", "c"), fails("a"), config("a"), pick("a refused"), passes(delay), pick("a refused"), connected("a b")}, failure},
		{"the same for failed ones: that these try again is no hope", []step{config("a", "b"), fails("a", "b"), says("a", idle), config("b", "a"), says("a", connecting), pick("b refused")}, failure},
		{"another list for an IDLE one: nothing is tried", []step{config("a"), says("a", connecting, ready, idle), config("b"), alive(""), connected("a"), pick("queue"), connected("a b")}, connecting},

		{"several addresses of one endpoint are tried one by one", []step{config("a+b", "c"), fails("a"), connected("a b"), says("b", connecting, ready), pick("b")}, ready},
		{"an address that is there twice is tried once", []step{config("a", "b+a", "b"), fails("a", "b"), connected("a b"), pick("b refused")}, failure},
		{"families take turns, the first one's first", []step{config("10.0.0.1:1", "10.0.0.2:1", "[::1]:1", "db:1", "[::ffff:10.0.0.3]:1", "[::2]:1"), passes(time.Minute), connected("10.0.0.1:1 [::1]:1 db:1 10.0.0.2:1 [::2]:1 [::ffff:10.0.0.3]:1")}, connecting},
		{"IPv6 first", []step{config("[::1]:1", "[::2]:1", "[::3]:1", "10.0.0.1:1"), passes(time.Minute), connected("[::1]:1 10.0.0.1:1 [::2]:1 [::3]:1")}, connecting},
		{"names first", []step{config("db:1", "db:2", "10.0.0.1:1"), passes(time.Minute), connected("db:1 10.0.0.1:1 db:2")}, connecting},

		{"excluded", []step{config("a+x", "b"), says("a", connecting, ready), pick("the endpoint that all picks go to is excluded", "a"), pick("the endpoint that all picks go to is excluded", "x"), pick("a", "b")}, ready},

		{"none at all", []step{config(), pick("no usable endpoints")}, failure},
		{"none left", []step{config("a"), says("a", connecting, ready), config(), alive(""), pick("no usable endpoints")}, failure},
		{"none left while one is tried", []step{config("a", "b"), config(), alive(""), passes(delay), connected("a")}, failure},
		{"none, and then one: no failed attempt is to be remembered", []step{config(), config("a"), pick("queue"), connected("a")}, connecting},
		{"the resolver fails before there is an endpoint", []step{resolverError, pick("no such name")}, failure},
		{"the resolver fails later", []step{config("a"), says("a", connecting, ready), resolverError, pick("a")}, ready},
		{"the resolver fails while one is tried", []step{config("a"), resolverError, pick("queue")}, connecting},
		{"the resolver fails when all have failed", []step{config("a"), fails("a"), resolverError, pick("no such name")}, failure},
		{"no config is needed", []step{bare, connected("a")}, connecting},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, tt.steps...)
				if got := s.tree.State(); got != tt.want {
					t.Errorf("is %v, want %v", got, tt.want)
				}
				s.check()
				s.tree.Close()
				alive("")(s)
			})
		})
	}
}

func exitIdle(s *stage) { s.tree.Batch(s.tree.Root().ExitIdle) }

func resolverError(s *stage) {
	s.tree.Batch(func() { s.tree.Root().ResolverError(errors.New("no such name")) })
}

func bare(s *stage) {
	s.tree.Config(policy.Child{Endpoints: []resolver.Endpoint{{}, {Addresses: []resolver.Address{{Addr: "a"}}}}})
}

// check holds the description and the census against the SubConns.
func (s *stage) check() {
	s.t.Helper()
	n := s.tree.Describe()
	if n.State != s.tree.State() || n.Policy != pickfirst.Name || (n.Err != nil) != (n.State == failure) {
		s.t.Errorf("describes %s in %v with error %v, reported is %v", n.Policy, n.State, n.Err, s.tree.State())
	}
	states := make(map[string]connectivity.State)
	for _, sc := range s.tree.SubConns {
		if !sc.Closed {
			states[sc.Addresses[0].Addr] = sc.State
		}
	}
	var want policy.Census
	shares := 0.0
	for _, e := range n.Endpoints {
		shares += e.Share
		var c policy.Census
		at := ""
		for _, a := range e.Endpoint.Addresses {
			if state, ok := states[a]; ok {
				c.Count(state, 1)
				if state == ready {
					at = a
				}
			}
		}
		state := idle
		if c.Total() > 0 {
			state = c.Best()
		}
		if e.State != state || e.InRotation != (state == ready) || e.Address != at {
			s.t.Errorf("%s: describes %+v, is %v", e.Endpoint.Addresses, e, state)
		}
		if e.LastErr != nil && state == ready || e.LastErr == nil && state == failure {
			s.t.Errorf("%s: last error %v in %v", e.Endpoint.Addresses, e.LastErr, state)
		}
		want.Count(state, 1)
	}
	if want := map[bool]float64{true: 1}[n.State == ready]; !n.Shares || shares != want {
		s.t.Errorf("shares come to %v: %+v", shares, n)
	}
	if got := s.tree.Summarize(); got.Census != want || got.State != s.tree.State() {
		s.t.Errorf("summary %+v, want %+v", got, want)
	}
}

func TestConfigOfAnotherPolicy(t *testing.T) {
	s := newStage(t)
	err := s.tree.Update(policy.Child{Config: &policy.PriorityConfig{}})
	if err == nil || !strings.Contains(err.Error(), pickfirst.Name) {
		t.Errorf("err %v, want one that names the policy", err)
	}
}

// TestSubConnRefused: an address that can have no SubConn has failed.
func TestSubConnRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		errMode := errors.New("no such connect mode")
		refused := "a"
		s.tree.RefuseSubConn = func(address string) error {
			if strings.Contains(refused, address) {
				return errMode
			}
			return nil
		}
		config("a", "b")(s)
		connected("b")(s)
		fails("b")(s)
		pick("b refused")(s)
		says("b", idle, connecting, failure)(s)
		reports(3)(s)
		refused = "ab"
		config("c")(s)
		config("a")(s)
		if _, err := s.tree.Pick(nil); !errors.Is(err, errMode) || !strings.Contains(err.Error(), "for a") {
			t.Errorf("err %v, want %v and which", err, errMode)
		}
		s.tree.Close()
	})
}

// TestLateWords: what an address that is let go still has to say is not heard.
func TestLateWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, config("a", "b"), passes(policy.AttemptDelay))
		gone := s.tree.SubConn("a")
		says("b", connecting, ready)(s)
		s.tree.Reports = s.tree.Reports[:0]
		s.tree.Batch(func() { gone.Says(ready, nil) })
		s.tree.Batch(func() { gone.Says(idle, nil) })
		if len(s.tree.Reports) != 0 {
			t.Error("it was heard")
		}
		says("b", idle)(s)
		idler := s.tree.Picker()
		s.tree.Batch(s.tree.Root().Close)
		if _, err := idler.Pick(balancer.PickInfo{Ctx: t.Context()}); !errors.Is(err, balancer.ErrNoSubConnAvailable) {
			t.Errorf("err %v after Close", err)
		}
		s.tree.Batch(func() {}) // what it posted has happened
		alive("")(s)
		s.tree.Close()
	})
}

// TestIdlePickOfOldPicker: one that comes late, to a picker that is replaced,
// begins nothing.
func TestIdlePickOfOldPicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, config("a"), says("a", connecting, ready, idle))
		old := s.tree.Picker()
		exitIdle(s)
		says("a", connecting, ready)(s)
		_, _ = old.Pick(balancer.PickInfo{Ctx: t.Context()}) // it queues
		s.tree.Batch(func() {})
		connected("a a")(s)
		pick("a")(s)
		s.tree.Close()
	})
}

func TestForeignPick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, config("a"), says("a", connecting, ready))
		res, err := s.tree.Picker().Pick(balancer.PickInfo{Ctx: t.Context()})
		if err != nil || res.SubConn != s.tree.SubConn("a") || res.Done != nil {
			t.Errorf("picked %v, %v", res, err)
		}
		s.tree.Close()
	})
}

func TestTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, config("a"), says("a", connecting, ready))
		call := &policy.Call{Trace: new(policy.Trace)}
		_, _ = s.tree.Pick(call) // the steps tell
		call.Exclude = []string{"a"}
		call.Endpoint = nil
		_, _ = s.tree.Pick(call)
		says("a", idle)(s)
		_, _ = s.tree.Pick(call)
		want := []policy.Step{
			policy.EndpointStep{Policy: pickfirst.Name, Rotation: 1, Endpoint: s.endpoints["a"]},
			policy.EndpointStep{Policy: pickfirst.Name, Rotation: 1, Index: -1, Excluded: 1},
			policy.QueueStep{},
		}
		if got := fmt.Sprintf("%+v", call.Trace.Steps); got != fmt.Sprintf("%+v", want) {
			t.Errorf("got  %s\nwant %+v", got, want)
		}
		s.tree.Close()
	})
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
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t)
			s.shuffle, s.tree.Draw = true, lbtest.Draws(tt.draws...)
			config("a", "b+x", "c")(s)
			passes(time.Minute)(s)
			connected(tt.want)(s)
			s.check()
			s.tree.Close()
		})
	}
}

// TestShuffleKeepsWhatServes: another order is no reason to connect.
func TestShuffleKeepsWhatServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.shuffle, s.tree.Draw = true, lbtest.Draws(3<<62, 1<<62, 1<<62, 3<<62)
		config("a", "b")(s)
		says("a", connecting, ready)(s)
		config("a", "b")(s)
		pick("a")(s)
		connected("a")(s)
		says("a", idle)(s)
		pick("queue")(s)
		connected("a b")(s) // as it was shuffled last
		s.tree.Close()
	})
}

// TestShuffleWeighs: the first is one of weight w with a chance of w in all
// weights, over localities and within them.
func TestShuffleWeighs(t *testing.T) {
	child := policy.Child{Config: pickfirst.Config{ShuffleAddressList: true}}
	for zone, weight := range map[string]uint32{"light": 1, "heavy": 3} {
		id := resource.Locality{Zone: zone}
		l := &resource.LocalityEndpoints{ID: id, Weight: weight}
		for i, w := range []uint32{1, 4} {
			l.Endpoints = append(l.Endpoints, &resource.Endpoint{Addresses: []string{fmt.Sprint(zone, i)}, Weight: w, Locality: id})
		}
		own := policy.NewLocality(l).Among(4)
		child.Localities = append(child.Localities, own)
		child.Endpoints = append(child.Endpoints, own.Endpoints...)
	}
	const runs = 20_000
	counts := make(map[string]float64)
	synctest.Test(t, func(t *testing.T) { // no attempt begins because time passes
		s := newStage(t)
		defer s.tree.Close()
		s.tree.Draw = rand.New(rand.NewPCG(1, 2)).Uint64
		for range runs {
			s.tree.Config(child)
			counts[s.tree.Connected[len(s.tree.Connected)-1]]++
			config()(s) // the next begins from nothing
		}
	})
	for name, want := range map[string]float64{"light0": 0.05, "light1": 0.2, "heavy0": 0.15, "heavy1": 0.6} {
		if got := counts[name] / runs; got < want*0.9 || got > want*1.1 {
			t.Errorf("%s is first in %v of the runs, want about %v", name, got, want)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	s := newStage(b, config("a", "b"), says("a", connecting, ready))
	p := s.tree.Picker()
	call := &policy.Call{Context: b.Context()}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = p.Pick(balancer.PickInfo{Ctx: call})
	}
}

// BenchmarkAllFail is a first pass through 10,000 addresses, none of which
// connects.
func BenchmarkAllFail(b *testing.B) {
	var names []string
	for i := range 10_000 {
		names = append(names, fmt.Sprint("e", i))
	}
	for b.Loop() {
		s := newStage(b, config(names...))
		err := errors.New("refused")
		s.tree.Batch(func() {
			for i := 0; i < len(s.tree.SubConns); i++ {
				s.tree.SubConns[i].Says(connecting, nil)
				s.tree.SubConns[i].Says(failure, err)
			}
		})
		if s.tree.State() != failure {
			b.Fatal(s.tree.State())
		}
	}
}
