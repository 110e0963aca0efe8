package lbtest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
)

// Tree runs one policy.
type Tree struct {
	*policy.Tree

	TB testing.TB

	root  policy.Policy
	ended chan struct{} // of the batch that runs now

	// What the policy did. The test reads it between batches.

	// Reports are the states that it reported, once at most in each batch.
	Reports []balancer.State
	// Events are those since TakeEvents.
	Events []policy.Event
	// SubConns are those that it made, in order.
	SubConns []*SubConn
	// Connected are the addresses of its calls of Connect, in order.
	Connected []string

	// RefuseSubConn returns an error for SubConns that cannot be made. It may be nil.
	RefuseSubConn func(address string) error

	inBatch int
}

// NewTree builds the policy. others build its children. It is closed when the test
// ends; in a synctest bubble close it before.
func NewTree(tb testing.TB, builder policy.Factory, others ...policy.Factory) *Tree {
	tb.Helper()
	t := &Tree{TB: tb}
	t.Tree = &policy.Tree{
		Owner:    policy.NewSerializer(t.endBatch),
		Registry: policy.NewRegistry(others...),
		Counters: policy.NewCounters(),
		Draw:     Draws(0),
		Events:   func(e policy.Event) { t.Events = append(t.Events, e) },
	}
	t.root = builder.Build(policy.NewConn(&clientConn{tree: t}, t.Tree))
	tb.Cleanup(t.Close)
	return t
}

// Draws returns a source of random numbers that repeats values, for one goroutine.
func Draws(values ...uint64) func() uint64 {
	i := -1
	return func() uint64 {
		i++
		return values[i%len(values)]
	}
}

// Outcomes are all ends of a held pick.
var Outcomes = []policy.Outcome{policy.OutcomeSuccess, policy.OutcomeError, policy.OutcomeCancelled, policy.OutcomeUnreachable, policy.OutcomeExpired}

// Batch runs f as one batch of the owner.
func (t *Tree) Batch(f func()) {
	t.TB.Helper()
	ended := make(chan struct{})
	if !t.Owner.Post(func() {
		t.ended = ended
		f()
	}) {
		t.TB.Fatal("the tree is closed")
	}
	<-ended
}

// Sleep lets time pass on the clock of a synctest bubble.
func (t *Tree) Sleep(d time.Duration) {
	t.TB.Helper()
	t.Batch(func() {}) // for the race detector: what the test has read happened before
	time.Sleep(d)
	synctest.Wait()
	t.Batch(func() {})
}

func (t *Tree) endBatch() {
	if t.inBatch > 1 {
		t.TB.Errorf("the policy reported %d times in one batch", t.inBatch)
	}
	t.inBatch = 0
	if t.ended != nil {
		close(t.ended)
		t.ended = nil
	}
}

// ExpectReports expects a number of reports since the last of those counted before,
// which is included.
func (t *Tree) ExpectReports(want int) {
	t.TB.Helper()
	if got := len(t.Reports); got != want {
		t.TB.Errorf("%d reports, want %d", got, want)
	}
	t.Reports = t.Reports[max(0, len(t.Reports)-1):]
}

// Update applies a part of a config in a batch.
func (t *Tree) Update(c policy.Child) error {
	t.TB.Helper()
	var err error
	t.Batch(func() { err = t.root.Update(c) })
	return err
}

// Config is Update with a part that the policy must accept.
func (t *Tree) Config(c policy.Child) {
	t.TB.Helper()
	if err := t.Update(c); err != nil {
		t.TB.Fatalf("update: %v", err)
	}
}

// Root returns the policy, which only the owner may call.
func (t *Tree) Root() policy.Policy { return t.root }

// Close closes the policy.
func (t *Tree) Close() { t.Owner.Close(t.root.Close) }

// State returns the state reported last; IDLE before the first.
func (t *Tree) State() connectivity.State {
	if len(t.Reports) == 0 {
		return connectivity.Idle
	}
	return t.Reports[len(t.Reports)-1].ConnectivityState
}

// Picker returns the picker reported last.
func (t *Tree) Picker() balancer.Picker {
	t.TB.Helper()
	if len(t.Reports) == 0 {
		t.TB.Fatal("the policy has not reported yet")
	}
	return t.Reports[len(t.Reports)-1].Picker
}

// Pick picks with the last picker. call may be nil.
func (t *Tree) Pick(call *policy.Call) (balancer.PickResult, error) {
	t.TB.Helper()
	if call == nil {
		call = new(policy.Call)
	}
	if call.Context == nil {
		call.Context = context.Background()
	}
	return t.Picker().Pick(balancer.PickInfo{Ctx: call})
}

// Picked returns the SubConn of a pick's result.
func Picked(tb testing.TB, res balancer.PickResult) *SubConn {
	tb.Helper()
	return As[*SubConn](tb, As[*policy.Connection](tb, res.SubConn).SubConn)
}

// TakeEvents returns the events since its last call.
func (t *Tree) TakeEvents() []policy.Event {
	e := t.Events
	t.Events = nil
	return e
}

// Describe returns the policy's description.
func (t *Tree) Describe() policy.Node {
	t.TB.Helper()
	var n policy.Node
	t.Batch(func() { n = t.root.Describe() })
	return n
}

// Summarize returns the policy's summary.
func (t *Tree) Summarize() policy.Summary {
	t.TB.Helper()
	var s policy.Summary
	t.Batch(func() { s = t.root.Summarize() })
	return s
}

type clientConn struct{ tree *Tree }

func (c *clientConn) UpdateState(s balancer.State) {
	c.tree.Reports = append(c.tree.Reports, s)
	c.tree.inBatch++
}

func (c *clientConn) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	if len(addrs) == 0 {
		c.tree.TB.Fatal("a SubConn without address")
	}
	if c.tree.RefuseSubConn != nil {
		if err := c.tree.RefuseSubConn(addrs[0].Addr); err != nil {
			return nil, err
		}
	}
	sc := &SubConn{tree: c.tree, Addresses: addrs}
	sc.Init(sc, addrs, opts.StateListener)
	c.tree.SubConns = append(c.tree.SubConns, sc)
	return sc, nil
}

// SubConn is a SubConn whose state the test sets.
type SubConn struct {
	policy.Connection

	tree *Tree

	Addresses []resolver.Address
	State     connectivity.State // IDLE at first
	// Connects counts the policy's calls of Connect.
	Connects int
	// Rechecks counts the policy's calls of Recheck, which reports false if Unchecked.
	Rechecks  int
	Unchecked bool
	// Healths are the registered health listeners, in order.
	Healths []func(balancer.SubConnState)
	// Closed means that it was shut down.
	Closed bool
}

// SubConn returns the only open SubConn of an address.
func (t *Tree) SubConn(address string) *SubConn {
	t.TB.Helper()
	var found *SubConn
	for _, sc := range t.SubConns {
		if !sc.Closed && sc.Addresses[0].Addr == address {
			if found != nil {
				t.TB.Fatalf("two SubConns for %s", address)
			}
			found = sc
		}
	}
	if found == nil {
		t.TB.Fatalf("no SubConn for %s", address)
	}
	return found
}

// Connect counts the call.
func (s *SubConn) Connect() {
	s.Connects++
	s.tree.Connected = append(s.tree.Connected, s.Addresses[0].Addr)
}

// Recheck counts the call.
func (s *SubConn) Recheck() (checked bool) {
	s.Rechecks++
	return !s.Unchecked
}

// Shutdown calls the listener after the owner's current function.
func (s *SubConn) Shutdown() {
	if s.Closed {
		s.tree.TB.Errorf("SubConn %s is shut down twice", s.Addresses[0].Addr)
	}
	s.Closed = true
	s.show()
	s.tree.Owner.Later(func() { s.Report(balancer.SubConnState{ConnectivityState: connectivity.Shutdown}) })
}

// UpdateAddresses sets Addresses.
func (s *SubConn) UpdateAddresses(addrs []resolver.Address) {
	s.Addresses = addrs
	s.show()
}

// show connects to the first address if the state is READY.
func (s *SubConn) show() {
	if s.State == connectivity.Ready && !s.Closed {
		s.SetConnected(s.Addresses[0].Addr)
	} else {
		s.SetConnected("")
	}
}

// RegisterHealthListener adds it to Healths.
func (s *SubConn) RegisterHealthListener(f func(balancer.SubConnState)) {
	s.Healths = append(s.Healths, f)
}

// Says sets the state and calls the listener. The owner must call it.
func (s *SubConn) Says(state connectivity.State, err error) {
	s.State = state
	s.show()
	s.Report(balancer.SubConnState{ConnectivityState: state, ConnectionError: err})
}

// As asserts that v is a T.
func As[T any](tb testing.TB, v any) T {
	tb.Helper()
	out, ok := v.(T)
	if !ok {
		tb.Fatalf("%#v is a %T, want a %T", v, v, out)
	}
	return out
}
