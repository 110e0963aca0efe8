package ringhash_test

import (
	"errors"
	"testing"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/lbtest"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/ringhash"
	"github.com/lbd-dev/lbd/xds/resource"
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
			s.Errorf("picked %s, want %s", got, want)
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
					s.Errorf("picked %v, %v", call.Endpoint, err)
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
		{"the resolver fails before there is an endpoint", []step{config(), lbtest.ResolverError, pick("a", "no such name")}, failure},
		{"the resolver fails later", []step{config("a"), says("a", ready), lbtest.ResolverError, pick("a", "a")}, ready},
		{"ExitIdle connects nothing", []step{config("a"), func(s *stage) { s.Batch(s.Root().ExitIdle) }, connected("")}, idle},
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
