package policy

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/xds/few"
)

// Children runs one child for each key of a policy's config, and aggregates their
// states as gRPC does. A policy embeds it, and calls [Children.Init] first. T is what
// the policy keeps for each child. All of it belongs to the owner.
type Children[K comparable, T any] struct {
	Base
	Order []*ChildPolicy[K, T]

	byKey   few.Map[K, *ChildPolicy[K, T]]
	states  balancer.ConnectivityStateEvaluator
	changed func(c *ChildPolicy[K, T], counted connectivity.State)
}

// ChildPolicy is one child, and the ClientConn of its policy.
type ChildPolicy[K comparable, T any] struct {
	*Switch

	Key   K
	State balancer.State
	// Counted is State as the aggregate counts it: TRANSIENT_FAILURE lasts until READY
	// or IDLE.
	Counted connectivity.State
	// Own belongs to the policy.
	Own T

	parent *Children[K, T]
	kept   bool // used by Keep
}

// Init prepares the Children. changed is called after each change of a child's state,
// with its Counted before.
func (cs *Children[K, T]) Init(conn *Conn, name string, r Reporter, changed func(c *ChildPolicy[K, T], counted connectivity.State)) {
	cs.Base.Init(conn, name, r)
	cs.changed = changed
}

// Child returns the child of a key, or nil.
func (cs *Children[K, T]) Child(key K) *ChildPolicy[K, T] { return cs.byKey.Get(key) }

// Add adds a CONNECTING child. conn makes its Conn. One of the same key is replaced, and
// closed by the next Keep.
func (cs *Children[K, T]) Add(key K, conn func(ClientConn) *Conn) *ChildPolicy[K, T] {
	c := &ChildPolicy[K, T]{
		Key:     key,
		State:   balancer.State{ConnectivityState: connectivity.Connecting, Picker: QueuePicker},
		Counted: connectivity.Connecting,
		parent:  cs,
	}
	c.Switch = NewSwitch(conn(childConn[K, T]{cs.Conn, c}))
	cs.Order = append(cs.Order, c)
	cs.byKey.Set(key, c)
	cs.states.RecordTransition(connectivity.Shutdown, c.Counted)
	return c
}

// Keep makes order the children, closes all others, and reports whether there were
// any.
func (cs *Children[K, T]) Keep(order []*ChildPolicy[K, T]) (closed bool) {
	for _, c := range order {
		c.kept = true
	}
	for _, c := range cs.Order {
		if !c.kept {
			if cs.Child(c.Key) == c {
				cs.byKey.Delete(c.Key)
			}
			cs.states.RecordTransition(c.Counted, connectivity.Shutdown)
			c.Close()
			closed = true
		}
		c.kept = false
	}
	cs.Order = order
	return closed
}

// Aggregate is the state of all children: READY if one is, else CONNECTING, IDLE,
// TRANSIENT_FAILURE.
func (cs *Children[K, T]) Aggregate() connectivity.State { return cs.states.CurrentState() }

type childConn[K comparable, T any] struct {
	*Conn

	child *ChildPolicy[K, T]
}

// UpdateState takes the child's state. It is not called after Close.
func (cc childConn[K, T]) UpdateState(s balancer.State) {
	c := cc.child
	c.State = s
	counted := c.Counted
	if counted != connectivity.TransientFailure || s.ConnectivityState != connectivity.Connecting {
		c.parent.states.RecordTransition(counted, s.ConnectivityState)
		c.Counted = s.ConnectivityState
	}
	c.parent.changed(c, counted)
}

// Use gives reports to the children, in their order.
func (cs *Children[K, T]) Use(list []*Usage) {
	for _, c := range cs.Order {
		c.Use(list)
	}
}

// Close closes every child.
func (cs *Children[K, T]) Close() {
	cs.Base.Close()
	for _, c := range cs.Order {
		c.Close()
	}
}
