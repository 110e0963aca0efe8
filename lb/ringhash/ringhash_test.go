package ringhash_test

import (
	"errors"
	"fmt"
	"strings"
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

// stage is a ring_hash whose endpoints are named by their address, and have one
// entry each on the ring. Of a to d the ring is b a c d; the order of their keys
// is that of the alphabet.
type stage struct {
	t         testing.TB
	tree      *lbtest.Tree
	endpoints map[string]*resource.Endpoint
	next      uint64 // what is drawn
}

type step func(s *stage)

func newStage(t testing.TB, steps ...step) *stage {
	s := &stage{t: t, tree: lbtest.NewTree(t, ringhash.Builder()), endpoints: map[string]*resource.Endpoint{}}
	s.tree.Draw = func() uint64 { return s.next }
	for _, step := range steps {
		step(s)
	}
	return s
}

// config gives the endpoints, in a ring of one entry for each. A name that was
// given before is the same value; one with "'" is a new value of the same
// address. Several addresses of one endpoint are joined with "+".
func config(names ...string) step {
	return func(s *stage) {
		s.t.Helper()
		sized(uint64(max(1, len(names))), names...)(s)
	}
}

// sized is config with a ring of another size.
func sized(size uint64, names ...string) step {
	return func(s *stage) {
		s.t.Helper()
		child := policy.Child{Config: ringhash.Config{MinSize: size, MaxSize: 4096}}
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
			s.tree.Batch(func() { sc.Says(state, errorOf(address, state)) })
		}
	}
}

// together lets several connections be in a state in one batch.
func together(state connectivity.State, addresses ...string) step {
	return func(s *stage) {
		s.t.Helper()
		s.tree.Batch(func() {
			for _, a := range addresses {
				s.tree.SubConn(a).Says(state, errorOf(a, state))
			}
		})
	}
}

func errorOf(address string, state connectivity.State) error {
	if state == failure {
		return fmt.Errorf("%s refused", address)
	}
	return nil
}

// fallsOn is the hash of an endpoint's only entry.
func fallsOn(address string) uint64 { return xxhash.Sum64String(address + "_0") }

// pick picks with a hash that falls on an endpoint, without those in exclude,
// and asserts what comes of it.
func pick(address, want string, exclude ...string) step {
	return func(s *stage) {
		s.t.Helper()
		s.pick(&policy.Call{Hash: fallsOn(address), HasHash: true, Exclude: exclude}, want)
	}
}

// pickAny picks without a hash; what is drawn falls on an endpoint.
func pickAny(address, want string, exclude ...string) step {
	return func(s *stage) {
		s.t.Helper()
		s.next = fallsOn(address)
		s.pick(&policy.Call{Hash: ^s.next, Exclude: exclude}, want)
	}
}

func (s *stage) pick(call *policy.Call, want string) {
	s.t.Helper()
	res, err := s.tree.Pick(call)
	s.tree.Batch(func() {}) // what it posted has happened
	var got string
	switch {
	case errors.Is(err, balancer.ErrNoSubConnAvailable):
		got = "queue"
	case err != nil:
		got = err.Error()
	default:
		got = strings.Join(call.Endpoint.Addresses, "+")
		if res.SubConn != s.tree.SubConn(call.Endpoint.Addresses[0]) {
			s.t.Errorf("the endpoint is %v, the SubConn %v", call.Endpoint, res.SubConn)
		}
	}
	if got != want {
		s.t.Errorf("picked %s, want %s", got, want)
	}
}

// connected asserts which endpoints were asked to connect so far, in order.
func connected(want string) step {
	return func(s *stage) {
		s.t.Helper()
		if got := strings.Join(s.tree.Connected, " "); got != want {
			s.t.Errorf("asked %q to connect, want %q", got, want)
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

func TestRingHash(t *testing.T) {
	tests := []struct {
		name  string
		steps []step
		want  connectivity.State
	}{
		{"nothing connects unasked", []step{config("a", "b"), reports(1), connected("")}, idle},
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
		{"a picks that falls on one that connects waits", []step{config("a", "b"), says("a", connecting), pick("a", "queue"), connected("")}, connecting},

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
			s.tree.Batch(func() {
				s.tree.SubConn("a").Says(failure, errorOf("a", failure))
				s.tree.SubConn("b").Says(connecting, nil)
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
			"a failed one that goes on trying is no news until it fails again",
			[]step{config("a", "b"), says("b", ready), says("a", failure), reports(3), says("a", idle, connecting), reports(1), says("a", failure), reports(2)},
			ready,
		},
		{"nothing changed", []step{config("a", "b"), says("a", ready), reports(2), config("a", "b"), reports(1)}, ready},
		{"another size: another ring, no other connection", []step{config("a", "b"), together(ready, "a", "b"), reports(2), sized(7, "a", "b"), reports(2), connected("")}, ready},
		{
			"another value: a picker that tells it",
			[]step{config("a", "b"), together(ready, "a", "b"), reports(2), config("a'", "b"), reports(2), func(s *stage) {
				call := &policy.Call{Hash: fallsOn("a"), HasHash: true}
				if _, err := s.tree.Pick(call); err != nil || call.Endpoint != s.endpoints["a'"] {
					s.t.Errorf("picked %v, %v", call.Endpoint, err)
				}
			}},
			ready,
		},
		{
			"another hash key: another place",
			[]step{
				config("a", "b"), together(ready, "a", "b"), pick("d", "b"),
				func(s *stage) {
					s.endpoints["a'"] = &resource.Endpoint{Addresses: []string{"a"}, Weight: 1, HashKey: "d"}
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
		{"the resolver fails before there is an endpoint", []step{config(), resolverError, pick("a", "no such name")}, failure},
		{"the resolver fails later", []step{config("a"), says("a", ready), resolverError, pick("a", "a")}, ready},
		{"ExitIdle connects nothing", []step{config("a"), func(s *stage) { s.tree.Batch(s.tree.Root().ExitIdle) }, connected("")}, idle},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, tt.steps...)
			if got := s.tree.State(); got != tt.want {
				t.Errorf("is %v, want %v", got, tt.want)
			}
			s.check()
		})
	}
}

func resolverError(s *stage) {
	s.tree.Batch(func() { s.tree.Root().ResolverError(errors.New("no such name")) })
}

// check holds the description and the census against the SubConns.
func (s *stage) check() {
	s.t.Helper()
	n := s.tree.Describe()
	if n.State != s.tree.State() || n.Policy != ringhash.Name || (n.Err != nil) != (n.State == failure) {
		s.t.Errorf("describes %s in %v with error %v, reported is %v", n.Policy, n.State, n.Err, s.tree.State())
	}
	if err := policy.FailureOf(s.tree.Reports[len(s.tree.Reports)-1]); !errors.Is(err, n.Err) {
		s.t.Errorf("the picker's failure is %v, want %v", err, n.Err)
	}
	var want policy.Census
	for _, e := range n.Endpoints {
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
	if got := s.tree.Summarize(); got.Census != want || got.State != s.tree.State() {
		s.t.Errorf("summary %+v, want %+v", got, want)
	}
}

func TestConfigOfAnotherPolicy(t *testing.T) {
	s := newStage(t)
	if err := s.tree.Update(policy.Child{}); err == nil || !strings.Contains(err.Error(), ringhash.Name) {
		t.Errorf("err %v, want one that names the policy", err)
	}
}

// TestLateWords: what was asked of a policy that is closed, or of an endpoint that
// is removed, comes to nothing.
func TestLateWords(t *testing.T) {
	s := newStage(t, config("a", "b"), says("b", ready))
	old := s.tree.Picker()
	gone := s.tree.SubConn("a")
	config("b")(s)
	s.tree.Reports = nil
	call := &policy.Call{Context: t.Context(), Hash: fallsOn("a"), HasHash: true}
	if _, err := old.Pick(balancer.PickInfo{Ctx: call}); !errors.Is(err, balancer.ErrNoSubConnAvailable) {
		t.Errorf("err %v of an old picker, want it to queue", err)
	}
	s.tree.Batch(func() { gone.Says(ready, nil) })
	if len(s.tree.Reports) != 0 || gone.Connects != 0 {
		t.Error("a removed endpoint was heard, or connected")
	}
	s.tree.Close()
	for _, sc := range s.tree.SubConns {
		if !sc.Closed {
			t.Errorf("%s is not shut down", sc.Addresses[0].Addr)
		}
	}
	if _, err := old.Pick(balancer.PickInfo{Ctx: call}); !errors.Is(err, balancer.ErrNoSubConnAvailable) {
		t.Errorf("err %v after Close", err)
	}
}
