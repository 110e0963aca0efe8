package lbtest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
)

// Tree runs one policy, as the topmost of a tree of its own.
type Tree struct {
	*policy.Tree

	tb    testing.TB
	root  balancer.Balancer
	ended chan struct{} // of the batch that runs now

	// What the policy said and did. The test reads it between batches.

	// Reports are the states that it sent up; no more than one of a batch.
	Reports []balancer.State
	// Events are what it reported since the test looked last; see TakeEvents.
	Events []policy.Event
	// SubConns are those that it made, in order.
	SubConns []*SubConn
	// Connected are the addresses whose SubConns it asked to connect, in order.
	Connected []string

	// Resolves counts the calls of ResolveNow.
	Resolves int

	// RefuseSubConn, where not nil, is asked before a SubConn is made.
	RefuseSubConn func(address string) error

	inBatch int
}

// NewTree builds the policy. Its children come from others. It is closed when
// the test ends; in a synctest bubble close it before.
func NewTree(tb testing.TB, builder balancer.Builder, others ...balancer.Builder) *Tree {
	tb.Helper()
	t := &Tree{tb: tb}
	t.Tree = &policy.Tree{
		Owner:    policy.NewSerializer(t.endBatch),
		Registry: policy.NewRegistry(others...),
		Counters: policy.NewCounters(),
		Draw:     Draws(0),
		Events:   func(e policy.Event) { t.Events = append(t.Events, e) },
	}
	t.root = builder.Build(policy.NewConn(&clientConn{tree: t}, t.Tree), balancer.BuildOptions{})
	tb.Cleanup(t.Close)
	return t
}

// Draws returns a source of chance that gives values in turn, over and over, to
// one goroutine.
func Draws(values ...uint64) func() uint64 {
	i := -1
	return func() uint64 {
		i++
		return values[i%len(values)]
	}
}

// Batch runs f as one batch of the tree's owner and returns when it has ended.
func (t *Tree) Batch(f func()) {
	t.tb.Helper()
	ended := make(chan struct{})
	if !t.Owner.Post(func() {
		t.ended = ended
		f()
	}) {
		t.tb.Fatal("the tree is closed")
	}
	<-ended
}

// Sleep lets time pass on the clock of a synctest bubble, and all that comes of
// it happen.
func (t *Tree) Sleep(d time.Duration) {
	t.tb.Helper()
	t.Batch(func() {}) // what the test has read happened before; the race detector is told so
	time.Sleep(d)
	synctest.Wait()
	t.Batch(func() {})
}

func (t *Tree) endBatch() {
	if t.inBatch > 1 {
		t.tb.Errorf("the policy reported %d times in one batch", t.inBatch)
	}
	t.inBatch = 0
	if t.ended != nil {
		close(t.ended)
		t.ended = nil
	}
}

// Update hands the policy its part of a config, as a batch.
func (t *Tree) Update(c policy.Child) error {
	t.tb.Helper()
	var err error
	t.Batch(func() { err = t.root.UpdateClientConnState(c.State()) })
	return err
}

// Config hands the policy a config that it must take.
func (t *Tree) Config(c policy.Child) {
	t.tb.Helper()
	if err := t.Update(c); err != nil {
		t.tb.Fatalf("update: %v", err)
	}
}

// Root is the policy. It is the owner's to call.
func (t *Tree) Root() balancer.Balancer { return t.root }

// Close closes the policy.
func (t *Tree) Close() { t.Owner.Close(t.root.Close) }

// State is what the policy reported last: IDLE before it did.
func (t *Tree) State() connectivity.State {
	if len(t.Reports) == 0 {
		return connectivity.Idle
	}
	return t.Reports[len(t.Reports)-1].ConnectivityState
}

// Picker is the picker reported last.
func (t *Tree) Picker() balancer.Picker {
	t.tb.Helper()
	if len(t.Reports) == 0 {
		t.tb.Fatal("the policy has not reported yet")
	}
	return t.Reports[len(t.Reports)-1].Picker
}

// Pick lets the last picker pick for call; nil is a call that asks nothing.
func (t *Tree) Pick(call *policy.Call) (balancer.PickResult, error) {
	t.tb.Helper()
	if call == nil {
		call = new(policy.Call)
	}
	if call.Context == nil {
		call.Context = context.Background()
	}
	return t.Picker().Pick(balancer.PickInfo{Ctx: call})
}

// TakeEvents returns the events since it was asked last.
func (t *Tree) TakeEvents() []policy.Event {
	e := t.Events
	t.Events = nil
	return e
}

// Describe is the policy's own description.
func (t *Tree) Describe() policy.Node {
	t.tb.Helper()
	var n policy.Node
	t.Batch(func() { n = policy.DescribeOf(t.root, "", connectivity.Idle) })
	return n
}

// Summarize is the policy's own summary.
func (t *Tree) Summarize() policy.Summary {
	t.tb.Helper()
	var s policy.Summary
	t.Batch(func() { s = policy.SummaryOf(t.root, connectivity.Idle) })
	return s
}

// clientConn is the tree as the policy sees it.
type clientConn struct {
	balancer.ClientConn

	tree *Tree
}

func (c *clientConn) UpdateState(s balancer.State) {
	c.tree.Reports = append(c.tree.Reports, s)
	c.tree.inBatch++
}

func (c *clientConn) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	if len(addrs) == 0 {
		c.tree.tb.Error("a SubConn without address")
	}
	if c.tree.RefuseSubConn != nil {
		if err := c.tree.RefuseSubConn(addrs[0].Addr); err != nil {
			return nil, err
		}
	}
	sc := &SubConn{tree: c.tree, Addresses: addrs, listener: opts.StateListener}
	c.tree.SubConns = append(c.tree.SubConns, sc)
	return sc, nil
}

func (c *clientConn) ResolveNow(resolver.ResolveNowOptions) { c.tree.Resolves++ }

func (c *clientConn) Target() string { return "" }

func (c *clientConn) MetricsRecorder() estats.MetricsRecorder {
	return &estats.UnimplementedMetricsRecorder{}
}

// SubConn is a SubConn in the state that the test says.
type SubConn struct {
	balancer.SubConn

	tree     *Tree
	listener func(balancer.SubConnState)

	Addresses []resolver.Address
	State     connectivity.State // as said last; IDLE at first
	// Connects counts the policy's calls of Connect.
	Connects int
	// Healths are the health listeners that were registered, in order.
	Healths []func(balancer.SubConnState)
	// Closed tells that the policy has shut it down.
	Closed bool
}

// SubConn returns the SubConn of an address, which must be the only one.
func (t *Tree) SubConn(address string) *SubConn {
	t.tb.Helper()
	var found *SubConn
	for _, sc := range t.SubConns {
		if !sc.Closed && sc.Addresses[0].Addr == address {
			if found != nil {
				t.tb.Fatalf("two SubConns for %s", address)
			}
			found = sc
		}
	}
	if found == nil {
		t.tb.Fatalf("no SubConn for %s", address)
	}
	return found
}

// Connect is counted.
func (s *SubConn) Connect() {
	s.Connects++
	s.tree.Connected = append(s.tree.Connected, s.Addresses[0].Addr)
}

// Shutdown tells the listener at the end of the owner's turn.
func (s *SubConn) Shutdown() {
	if s.Closed {
		s.tree.tb.Errorf("SubConn %s is shut down twice", s.Addresses[0].Addr)
	}
	s.Closed = true
	s.tree.Owner.Later(func() { s.listener(balancer.SubConnState{ConnectivityState: connectivity.Shutdown}) })
}

// UpdateAddresses notes them.
func (s *SubConn) UpdateAddresses(addrs []resolver.Address) { s.Addresses = addrs }

// RegisterHealthListener notes it.
func (s *SubConn) RegisterHealthListener(f func(balancer.SubConnState)) {
	s.Healths = append(s.Healths, f)
}

// Ready returns the first address where the state is READY.
func (s *SubConn) Ready() (string, bool) {
	if s.State == connectivity.Ready {
		return s.Addresses[0].Addr, true
	}
	return "", false
}

// Says lets the SubConn be in state, in the batch that runs now. err is why.
func (s *SubConn) Says(state connectivity.State, err error) {
	s.State = state
	s.listener(balancer.SubConnState{ConnectivityState: state, ConnectionError: err})
}

// As returns v as a T, which it must be.
func As[T any](tb testing.TB, v any) T {
	tb.Helper()
	out, ok := v.(T)
	if !ok {
		tb.Fatalf("%#v is a %T, want a %T", v, v, out)
	}
	return out
}
