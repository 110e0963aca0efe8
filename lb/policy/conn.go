package policy

import (
	"fmt"
	"time"

	"google.golang.org/grpc/balancer"
)

// Tree is what the policies of one channel share beyond their parents.
type Tree struct {
	Owner    *Serializer
	Registry Registry
	// Foreign returns a policy that Registry has not, or nil; it may be nil.
	Foreign  func(name string) balancer.Builder
	Counters *Counters
	// Draw gives uniform random numbers. Pickers call it from any goroutine.
	Draw func() uint64
	// Events takes what the policies report. It is called by the owner and
	// must not block.
	Events func(Event)

	// Owner only.
	suspended      bool
	suspendedRoots map[string]int
	running        map[*ConnectTimer]struct{}
}

// Conn is a policy's line to its parent: grpc's contract, and what the tree
// gives beyond it. Its methods are the owner's to call.
type Conn struct {
	balancer.ClientConn

	tree    *Tree
	events  func(Event)
	parent  *Conn // nil for the topmost policy's
	root    string
	depth   int
	touched uint64 // see Touched
}

// NewConn returns the Conn of a tree's topmost policy.
func NewConn(cc balancer.ClientConn, tree *Tree) *Conn {
	return &Conn{ClientConn: cc, tree: tree, events: tree.Events}
}

// ConnOf returns the Conn that a builder gets for a ClientConn. lbd's policies run in
// lbd's trees only, so it panics for any other.
func ConnOf(cc balancer.ClientConn) *Conn {
	conn, ok := cc.(*Conn)
	if !ok {
		panic(fmt.Sprintf("policy: built with a %T, which is not part of a tree of lbd's", cc))
	}
	return conn
}

// Child returns the Conn of a child whose calls go to cc, which embeds c and
// overrides what the policy wants to see.
func (c *Conn) Child(cc balancer.ClientConn) *Conn {
	return &Conn{ClientConn: cc, tree: c.tree, events: c.events, parent: c, root: c.root, depth: c.depth + 1}
}

// RootChild is Child for the child that serves one of the clusters that picks
// can choose.
func (c *Conn) RootChild(cc balancer.ClientConn, cluster string) *Conn {
	child := c.Child(cc)
	child.root = cluster
	return child
}

// Root is the cluster, of those that picks can choose, that the policy works
// for: an aggregate's where the policy serves one of its leaves. It is empty for
// cluster_manager itself and for a policy in a tree without one.
func (c *Conn) Root() string { return c.root }

// Mark lets r report at the end of the batch, after everything below it. The
// policy keeps pending, and leaves it alone.
func (c *Conn) Mark(r Reporter, pending *bool) {
	owner := c.tree.Owner
	for p := c; p != nil && p.touched != owner.batch; p = p.parent {
		p.touched = owner.batch
	}
	owner.mark(c.depth, r, pending)
}

// Touched is the number of the last batch in which a policy of c, or one below,
// marked itself; 0 before the first.
func (c *Conn) Touched() uint64 { return c.touched }

// Post runs f in the tree, later. Any goroutine may call it.
func (c *Conn) Post(f func()) { c.tree.Owner.Post(f) }

// Event reports what happened.
func (c *Conn) Event(e Event) { c.events(e) }

// CaptureEvents lets f take the events of c and of what is built below it from
// now on, in place of the tree.
func (c *Conn) CaptureEvents(f func(Event)) { c.events = f }

// Counters are the process's.
func (c *Conn) Counters() *Counters { return c.tree.Counters }

// Draw returns the tree's source of chance.
func (c *Conn) Draw() func() uint64 { return c.tree.Draw }

// Builder returns the policy of that name, lbd's own before another's, or nil.
func (c *Conn) Builder(name string) balancer.Builder {
	if b := c.tree.Registry[name]; b != nil || c.tree.Foreign == nil {
		return b
	}
	return c.tree.Foreign(name)
}

// Timer is a pending call of [Conn.AfterFunc].
type Timer struct {
	timer   *time.Timer
	stopped bool // owner only
}

// Stop cancels the call. Once the owner has stopped a timer its function does
// not run, even if its time had come. A nil Timer is stopped.
func (t *Timer) Stop() {
	if t != nil {
		t.stopped = true
		t.timer.Stop()
	}
}

// AfterFunc lets the owner run f once d has passed.
func (c *Conn) AfterFunc(d time.Duration, f func()) *Timer {
	t := new(Timer)
	t.timer = time.AfterFunc(d, func() {
		c.Post(func() {
			if !t.stopped {
				f()
			}
		})
	})
	return t
}

// Registry holds the policies that configs can name.
type Registry map[string]balancer.Builder

// NewRegistry returns the registry of the builders, by their names.
func NewRegistry(builders ...balancer.Builder) Registry {
	r := make(Registry, len(builders))
	for _, b := range builders {
		r[b.Name()] = b
	}
	return r
}
