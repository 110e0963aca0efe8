package ringhash_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/ringhash"
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
	says      = lbtest.Says
	together  = lbtest.Together
	connected = lbtest.Connected
	reports   = lbtest.Reports
)

func newStage(t testing.TB, steps ...step) *stage {
	return lbtest.NewStage(t, ringhash.Builder(), ringhash.Config{MaxSize: 4096}, steps...)
}

// config gives the endpoints, in a ring of one entry for each. Of a to d the ring is
// b a c d; the order of their keys is that of the alphabet.
func config(names ...string) step { return sized(uint64(max(1, len(names))), names...) }

// sized is config with a ring of another size.
func sized(size uint64, names ...string) step {
	return func(s *stage) {
		s.BalancerConfig = ringhash.Config{MinSize: size, MaxSize: 4096}
		lbtest.Endpoints(names...)(s)
	}
}

// fallsOn is the hash of an endpoint's only entry.
func fallsOn(address string) uint64 { return xxhash.Sum64String(address + "_0") }

// pick expects what comes of a pick with a hash that falls on an endpoint, without
// those in exclude.
func pick(address, want string, exclude ...string) step {
	return picks(&policy.Call{Hash: fallsOn(address), HasHash: true, Exclude: exclude}, 0, want)
}

// pickAny is pick without a hash: what is drawn falls on the endpoint.
func pickAny(address, want string, exclude ...string) step {
	return picks(&policy.Call{Hash: ^fallsOn(address), Exclude: exclude}, fallsOn(address), want)
}

func picks(call *policy.Call, drawn uint64, want string) step {
	return func(s *stage) {
		s.Next = lbtest.Draws(drawn)
		if got := s.Picked(call); got != want {
			s.TB.Errorf("picked %s, want %s", got, want)
		}
	}
}

func TestRingHash(t *testing.T) {
	tests := []struct {
		name  string
		steps []step
		want  connectivity.State
	}{
		{"nothing connects without a pick", []step{config("a", "b"), reports(1), connected("")}, idle},
		{"a pick connects the endpoint that it falls on, and waits", []step{config("a", "b", "c", "d"), pick("c", "queue"), connected("c")}, connecting},
		{"once, however many do", []step{config("a", "b"), pick("a", "queue"), pick("a", "queue"), connected("a")}, connecting},
		{"and another's another", []step{config("a", "b"), pick("a", "queue"), pick("b", "queue"), connected("a b")}, connecting},
		{
			"the READY one is picked",
			[]step{config("a", "b", "c", "d"), pick("c", "queue"), says("c", connecting, ready), pick("c", "c"), connected("c")},
			ready,
		},
		{
			"while picks that fall on others wait for those",
			[]step{config("a", "b", "c", "d"), says("c", ready), pick("a", "queue"), pick("d", "queue"), connected("a d"), pick("c", "c")},
			ready,
		},
		{
			"until these are READY: each its own",
			[]step{
				config("a", "b", "c", "d"), together(ready, "a", "b", "c", "d"),
				pick("a", "a"), pick("b", "b"), pick("c", "c"), pick("d", "d"), connected(""),
			},
			ready,
		},
		{"a pick that falls on one that connects waits", []step{config("a", "b"), says("a", connecting), pick("a", "queue"), connected("")}, connecting},

		{
			"one that failed: the next on the ring",
			[]step{config("a", "b", "c", "d"), together(ready, "a", "b", "c", "d"), says("a", idle, connecting, failure), pick("a", "c"), pick("b", "b")},
			ready,
		},
		{
			"and behind the last the first",
			[]step{config("a", "b", "c", "d"), together(ready, "a", "b", "c", "d"), says("d", failure), pick("d", "b")},
			ready,
		},
		{
			"several that failed",
			[]step{config("a", "b", "c", "d"), together(ready, "a", "b", "c", "d"), together(failure, "a", "c"), pick("a", "d"), pick("b", "b")},
			ready,
		},
		{
			"the next is IDLE: connected, and waited for",
			[]step{config("a", "b", "c", "d"), says("b", ready), says("a", failure), pick("a", "queue"), connected("c")},
			ready,
		},
		{
			"the next connects: waited for",
			[]step{config("a", "b", "c", "d"), says("b", ready), says("a", failure), says("c", connecting), pick("a", "queue"), connected("")},
			ready,
		},
		{
			"all failed: the error of the one that it would have been",
			[]step{config("a", "b"), together(failure, "a", "b"), pick("a", "a refused"), pick("b", "b refused")},
			failure,
		},
		{
			"one that failed tries again by itself, and is failed until READY",
			[]step{config("a", "b"), says("b", ready), says("a", failure, idle, connecting), pick("a", "b"), connected("a")},
			ready,
		},
		{
			"then it has its hashes again",
			[]step{config("a", "b"), says("b", ready), says("a", failure, idle, connecting, ready), pick("a", "a")},
			ready,
		},
		{
			"a lost connection is not made again until a pick falls on it",
			[]step{config("a", "b"), together(ready, "a", "b"), says("a", idle), pick("b", "b"), connected(""), pick("a", "queue"), connected("a")},
			ready,
		},
		{
			"again and again",
			[]step{config("a"), pick("a", "queue"), says("a", ready, idle), pick("a", "queue"), says("a", ready, idle), pick("a", "queue"), connected("a a a")},
			connecting,
		},
		{"the only one lost", []step{config("a"), says("a", ready, idle), connected("")}, idle},
		{
			"one that is lost before it was READY is IDLE",
			[]step{config("a", "b"), says("a", connecting, idle), connected(""), pick("a", "queue"), connected("a")},
			connecting,
		},

		{"one failed, and there are others: the first of them is tried", []step{config("b", "c", "a"), says("b", failure), connected("a")}, connecting},
		{"one failed, another connects already", []step{config("a", "b", "c"), says("b", connecting), says("a", failure), connected("")}, connecting},
		{"both in one batch", []step{config("a", "b", "c"), func(s *stage) {
			s.Batch(func() {
				s.SubConn("a").Says(failure, errors.New("a refused"))
				s.SubConn("b").Says(connecting, nil)
			})
		}, connected("")}, connecting},
		{"two failed: a failure, and yet the next is tried", []step{config("a", "b", "c"), together(failure, "a", "b"), connected("c")}, failure},
		{"two failed, one connects: still a failure", []step{config("a", "b", "c"), together(failure, "a", "b"), says("c", connecting)}, failure},
		{
			"where picks that fall on it wait all the same",
			[]step{config("a", "b", "c"), together(failure, "a", "b"), pick("a", "queue"), connected("c")},
			failure,
		},
		{"two failed, one READY", []step{config("a", "b", "c"), together(failure, "a", "b"), says("c", ready)}, ready},
		{"two failed, and one of them READY again", []step{config("a", "b", "c"), together(failure, "a", "b"), says("a", idle, connecting, ready)}, ready},
		{"the only one failed", []step{config("a"), says("a", failure), pick("a", "a refused")}, failure},
		{
			"the one that is tried is removed: the next is",
			[]step{config("a", "b", "c"), says("b", failure), connected("a"), says("a", connecting), config("b", "c"), connected("a c")},
			connecting,
		},
		{"READY and lost while another has failed: it is tried", []step{config("a", "b"), says("b", failure), connected("a"), says("a", ready, idle), connected("a a")}, connecting},

		{"without hash: the READY one from where the draw falls", []step{config("a", "b", "c", "d"), together(ready, "a", "d"), pickAny("d", "d"), pickAny("b", "a")}, ready},
		{"an IDLE one on the way is connected, but not waited for", []step{config("a", "b", "c", "d"), says("d", ready), pickAny("b", "d"), connected("b")}, ready},
		{"one only", []step{config("a", "b", "c", "d"), says("d", ready), pickAny("b", "d"), pickAny("b", "d"), connected("b")}, ready},
		{"none while one connects", []step{config("a", "b", "c", "d"), says("d", ready), says("c", connecting), pickAny("b", "d"), connected("")}, ready},
		{"none behind the READY one", []step{config("a", "b", "c", "d"), says("b", ready), pickAny("b", "b"), connected("")}, ready},
		{"nothing is READY: one is connected, and waited for", []step{config("a", "b", "c", "d"), pickAny("c", "queue"), pickAny("a", "queue"), connected("c")}, connecting},
		{"nothing is READY, one connects: waited for", []step{config("a", "b"), says("a", connecting), pickAny("b", "queue"), connected("")}, connecting},
		{"without hash failed ones are no choice", []step{config("a", "b", "c", "d"), says("d", ready), says("a", failure), pickAny("a", "d"), connected("c")}, ready},
		{"without hash, all failed", []step{config("a", "b"), together(failure, "a", "b"), pickAny("a", "a refused"), pickAny("b", "b refused")}, failure},

		{"excluded: the next", []step{config("a", "b", "c", "d"), together(ready, "a", "b", "c", "d"), pick("a", "c", "a"), pick("a", "d", "a", "c"), pick("d", "b", "d")}, ready},
		{"an additional address is excluded", []step{config("a+x", "b"), together(ready, "a", "b"), pick("a", "b", "x")}, ready},
		{"excluded, and the next is IDLE", []step{config("a", "b", "c", "d"), says("a", ready), pick("a", "queue", "a"), connected("c")}, ready},
		{"an excluded one is not connected", []step{config("a", "b", "c", "d"), pick("a", "queue", "a"), connected("c")}, connecting},
		{"without hash, excluded", []step{config("a", "b", "c", "d"), together(ready, "a", "c"), pickAny("a", "c", "a"), connected("")}, ready},
		{"without hash, an excluded one is not connected", []step{config("a", "b"), says("b", ready), pickAny("a", "b", "a"), connected("")}, ready},
		{"all excluded", []step{config("a", "b"), together(ready, "a", "b"), pick("a", "every endpoint that has not failed is excluded", "a", "b")}, ready},
		{"without hash, all excluded", []step{config("a", "b"), together(ready, "a", "b"), pickAny("a", "every endpoint that has not failed is excluded", "a", "b")}, ready},
		{
			"all that have not failed excluded",
			[]step{config("a", "b"), says("a", ready), says("b", failure), pick("a", "every endpoint that has not failed is excluded", "a")},
			ready,
		},
		{"all failed, some excluded", []step{config("a", "b"), together(failure, "a", "b"), pick("a", "b refused", "a")}, failure},
		{"all failed and excluded", []step{config("a", "b"), together(failure, "a", "b"), pick("a", "every endpoint that has not failed is excluded", "a", "b")}, failure},

		{"coming up together: one picker", []step{config("a", "b", "c"), reports(1), together(ready, "a", "b", "c"), reports(2)}, ready},
		{
			"a failed one that retries is not reported until it fails again",
			[]step{config("a", "b"), says("b", ready), says("a", failure), reports(3), says("a", idle, connecting), reports(1), says("a", failure), reports(2)},
			ready,
		},
		{"nothing changed", []step{config("a", "b"), says("a", ready), reports(2), config("a", "b"), reports(1)}, ready},
		{"another size: another ring, no other connection", []step{config("a", "b"), together(ready, "a", "b"), reports(2), sized(7, "a", "b"), reports(2), connected("")}, ready},
		{
			"another value: a picker with it",
			[]step{config("a", "b"), together(ready, "a", "b"), reports(2), config("a'", "b"), reports(2), func(s *stage) {
				call := &policy.Call{Hash: fallsOn("a"), HasHash: true}
				if _, err := s.Pick(call); err != nil || call.Endpoint != s.Endpoints["a'"] {
					s.TB.Errorf("picked %v, %v", call.Endpoint, err)
				}
			}},
			ready,
		},
		{
			"another hash key: another place",
			[]step{
				config("a", "b"), together(ready, "a", "b"), pick("d", "b"),
				func(s *stage) {
					s.Endpoints["a'"] = &resource.Endpoint{Addresses: []string{"a"}, Weight: 1, HashKey: "d"}
				},
				config("a'", "b"), pick("d", "a"), pick("a", "a"), pick("b", "b"), reports(3),
			},
			ready,
		},
		{
			"an endpoint is added: only hashes between it and the one before are its",
			[]step{config("a", "b", "d"), together(ready, "a", "b", "d"), pick("c", "d"), config("a", "b", "c", "d"), pick("c", "queue"), pick("a", "a"), pick("b", "b"), pick("d", "d")},
			ready,
		},
		{
			"an endpoint is removed: its hashes are the next one's",
			[]step{config("a", "b", "c", "d"), together(ready, "a", "b", "c", "d"), config("a", "b", "d"), pick("c", "d"), pick("a", "a")},
			ready,
		},
		{"the last endpoint is removed", []step{config("a"), says("a", ready), config(), pick("a", "no usable endpoints")}, failure},
		{"none at all", []step{config(), pick("a", "no usable endpoints")}, failure},
		{"none, and then one", []step{config(), config("a")}, idle},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, tt.steps...)
			if got := s.State(); got != tt.want {
				t.Errorf("is %v, want %v", got, tt.want)
			}
			s.Check()
		})
	}
}

// TestLateWords: what was asked of a policy that is closed, or of an endpoint that
// is removed, comes to nothing.
func TestLateWords(t *testing.T) {
	s := newStage(t, config("a", "b"), says("b", ready))
	old := s.Picker()
	gone := s.SubConn("a")
	config("b")(s)
	s.Reports = nil
	call := &policy.Call{Context: t.Context(), Hash: fallsOn("a"), HasHash: true}
	if _, err := old.Pick(balancer.PickInfo{Ctx: call}); !errors.Is(err, balancer.ErrNoSubConnAvailable) {
		t.Errorf("err %v of an old picker, want it to queue", err)
	}
	s.Batch(func() { gone.Says(ready, nil) })
	if len(s.Reports) != 0 || gone.Connects != 0 {
		t.Error("a removed endpoint was notified or connected")
	}
	s.Close()
	if _, err := old.Pick(balancer.PickInfo{Ctx: call}); !errors.Is(err, balancer.ErrNoSubConnAvailable) {
		t.Errorf("err %v after Close", err)
	}
}

// TestTrace: the steps of a pick. The ring is b a c d; b has failed, a is
// READY, c is IDLE and d connects.
func TestTrace(t *testing.T) {
	tests := []struct {
		name    string
		hash    string // falls on; without hash a draw does
		drawn   bool
		exclude string
		want    string
	}{
		{"at once", "a", false, "", "hash on 1 of 4, walked 0: a READY, seat 0 of 4"},
		{"past a failed one", "b", false, "", "hash on 0 of 4, walked 1: a READY, seat 0 of 4"},
		{"drawn", "b", true, "", "draw on 0 of 4, walked 1: a READY, seat 0 of 4"},
		{"drawn, past all that are not READY", "c", true, "", "draw on 2 of 4, walked 3: a READY, seat 0 of 4"},
		{"waits for one that is IDLE", "c", false, "", "hash on 2 of 4, walked 0: c IDLE, seat 2 of 4; queue"},
		{"waits for one that connects", "d", false, "", "hash on 3 of 4, walked 0: d CONNECTING, seat 3 of 4; queue"},
		{"drawn, waits for the first", "b", true, "a", "draw on 0 of 4, walked 2: c IDLE, seat 2 of 4, without 1; queue"},
		{"excluded", "a", false, "a c", "hash on 1 of 4, walked 2: d CONNECTING, seat 3 of 4, without 2; queue"},
		{"nothing left", "a", false, "a b c d", "hash on 1 of 4, walked 4: none, seat -1 of 4, without 4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, config("a", "b", "c", "d"), says("d", connecting), says("b", failure), says("a", ready))
			hash := fallsOn(tt.hash)
			s.Next = lbtest.Draws(hash)
			call := &policy.Call{Hash: hash, HasHash: !tt.drawn, Exclude: strings.Fields(tt.exclude), Trace: new(policy.Trace)}
			_, _ = s.Pick(call)
			if got := describe(t, call, hash); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	s := newStage(t, config("a", "b"), together(failure, "a", "b"))
	call := &policy.Call{Hash: fallsOn("a"), HasHash: true, Trace: new(policy.Trace)}
	_, _ = s.Pick(call)
	if got, want := describe(t, call, call.Hash), "hash on 1 of 2, walked 0: a TRANSIENT_FAILURE, seat 0 of 2; failure a refused"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// describe describes the steps.
func describe(t *testing.T, call *policy.Call, hash uint64) string {
	t.Helper()
	e := lbtest.As[policy.EndpointStep](t, call.Trace.Steps[0])
	walk := lbtest.As[*ringhash.RingWalk](t, e.Detail)
	if e.Policy != ringhash.Name || walk.Hash != fmt.Sprintf("%016x", hash) {
		t.Errorf("trace %+v", e)
	}
	kind, what := "hash", "none"
	if walk.Drawn {
		kind = "draw"
	}
	if e.Endpoint != nil {
		what = fmt.Sprintf("%s %s", e.Endpoint.Addresses[0], walk.State)
	}
	var out strings.Builder
	out.WriteString(fmt.Sprintf("%s on %d of %d, walked %d: %s, seat %d of %d", kind, walk.Entry, walk.Size, walk.Walked, what, e.Index, e.Rotation))
	if e.Excluded > 0 {
		out.WriteString(fmt.Sprintf(", without %d", e.Excluded))
	}
	for _, step := range call.Trace.Steps[1:] {
		switch step := step.(type) {
		case policy.QueueStep:
			out.WriteString("; queue")
		case policy.FailureStep:
			out.WriteString("; failure " + step.Err.Error())
		default:
			out.WriteString(fmt.Sprintf("; %#v", step))
		}
	}
	return out.String()
}

// TestWeighs: an endpoint has as many hashes as its locality's and its own weight
// ask for.
func TestWeighs(t *testing.T) {
	s := newStage(t)
	child, shares := lbtest.Weighted()
	child.Config = ringhash.Config{MinSize: 4096, MaxSize: 4096}
	s.Config(child)
	together(ready, "light0", "light1", "heavy0", "heavy1")(s)
	const picks = 200_000
	counts := make(map[string]float64)
	r := rand.New(rand.NewPCG(1, 2))
	for range picks {
		call := &policy.Call{Hash: r.Uint64(), HasHash: true}
		if _, err := s.Pick(call); err != nil {
			t.Fatal(err)
		}
		counts[call.Endpoint.Addresses[0]]++
	}
	for name, want := range shares {
		if got := counts[name] / picks; got < want*0.9 || got > want*1.1 {
			t.Errorf("%s has %v of the hashes, want about %v", name, got, want)
		}
	}
}

// TestConcurrentAsking: picks of many goroutines ask for one connection once.
func TestConcurrentAsking(t *testing.T) {
	s := newStage(t, config("a", "b", "c"), says("b", ready))
	p := s.Picker()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				call := &policy.Call{Context: t.Context(), Hash: fallsOn("a"), HasHash: true}
				_, _ = p.Pick(balancer.PickInfo{Ctx: call})
			}
		})
	}
	wg.Wait()
	s.Batch(func() {}) // what they posted has happened
	connected("a")(s)
}

// TestShares: an endpoint's share is the part of all hashes that lead to it.
func TestShares(t *testing.T) {
	four := []string{"a", "b", "c", "d"}
	for name, steps := range map[string][]step{
		"all READY":        {sized(64, four...), together(ready, four...)},
		"one on the ring":  {config("a"), says("a", ready)},
		"one entry each":   {config(four...), together(ready, four...)},
		"one failed":       {sized(64, four...), together(failure, "b"), together(ready, "a", "c", "d")},
		"ends of the ring": {config(four...), together(failure, "b", "d"), together(ready, "a", "c")},
		"one not asked":    {sized(64, four...), together(ready, "a", "c", "d")},
		"all failed":       {sized(64, four...), together(failure, four...)},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, steps...)
			n, picker := s.Describe(), s.Picker()
			const picks = 1 << 12
			counts := make(map[*resource.Endpoint]float64)
			for i := range uint64(picks) {
				call := &policy.Call{Context: t.Context(), Hash: i * (math.MaxUint64 / picks), HasHash: true, Trace: new(policy.Trace)}
				_, _ = picker.Pick(balancer.PickInfo{Ctx: call})
				if e := lbtest.As[policy.EndpointStep](t, call.Trace.Steps[0]); lbtest.As[*ringhash.RingWalk](t, e.Detail).State != failure.String() {
					counts[e.Endpoint]++
				}
			}
			for _, e := range n.Endpoints {
				if want := counts[e.Endpoint] / picks; math.Abs(e.Share-want) > 0.02 {
					t.Errorf("%s has the share %v; it has %v of the hashes", e.Endpoint.Addresses[0], e.Share, want)
				}
			}
			if !n.Shares {
				t.Error("no word of shares")
			}
			arcs := n.Arcs()
			for i, a := range arcs { // exactly, at both ends of each arc
				for hash, want := range map[uint64]*resource.Endpoint{a.End: a.Endpoint, a.End + 1: arcs[(i+1)%len(arcs)].Endpoint} {
					call := &policy.Call{Context: t.Context(), Hash: hash, HasHash: true, Trace: new(policy.Trace)}
					_, _ = picker.Pick(balancer.PickInfo{Ctx: call})
					is := lbtest.As[policy.EndpointStep](t, call.Trace.Steps[0])
					if lbtest.As[*ringhash.RingWalk](t, is.Detail).State == failure.String() {
						is.Endpoint = nil
					}
					if is.Endpoint != want {
						t.Fatalf("the hash %x leads to %v, its arc to %v", hash, is.Endpoint, want)
					}
				}
			}
		})
	}
}
