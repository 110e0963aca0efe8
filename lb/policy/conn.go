package policy

import (
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"
)

// Tree is what the policies of one channel share.
type Tree struct {
	Owner    *Serializer
	Registry Registry
	// Foreign returns a policy that Registry lacks, or nil. It may be nil.
	Foreign  func(name string) Factory
	Counters *Counters
	// Draw returns uniform random numbers. Pickers call it from any goroutine.
	Draw func() uint64
	// Events handles events. The owner calls it, and it must not block.
	Events func(Event)

	// Owner only.
	suspended map[string]int // by root; "" for all
	running   map[*ConnectTimer]struct{}
}

// ClientConn is what lbd's policies use of grpc's ClientConn.
type ClientConn interface {
	NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error)
	UpdateState(s balancer.State)
}

// Conn connects a policy to its parent: a ClientConn, and more. Only the owner calls it.
type Conn struct {
	ClientConn

	part    *treePart
	parent  *Conn // nil for the topmost policy's
	depth   int
	touched uint64 // see Touched
}

// treePart is what the policies of a part of a tree share. It is never changed.
type treePart struct {
	*Tree

	events func(Event)
	root   string
}

// NewConn returns the Conn of a tree's topmost policy.
func NewConn(cc ClientConn, tree *Tree) *Conn {
	return &Conn{ClientConn: cc, part: &treePart{Tree: tree, events: tree.Events}}
}

// Child returns the Conn of a child. cc embeds c and overrides what the policy handles
// itself.
func (c *Conn) Child(cc ClientConn) *Conn {
	return &Conn{ClientConn: cc, part: c.part, parent: c, depth: c.depth + 1}
}

// RootChild is Child for a cluster that picks can choose.
func (c *Conn) RootChild(cc ClientConn, cluster string) *Conn {
	child := c.Child(cc)
	child.part = &treePart{c.part.Tree, c.part.events, cluster}
	return child
}

// Root returns the cluster that picks chose: the aggregate for a policy within a leaf.
// It is empty above clusters.
func (c *Conn) Root() string { return c.part.root }

// Mark lets r report at the end of the batch, after everything below it. The policy
// stores pending, and does not change it.
func (c *Conn) Mark(r Reporter, pending *bool) {
	owner := c.part.Owner
	for p := c; p != nil && p.touched != owner.batch; p = p.parent {
		p.touched = owner.batch
	}
	owner.mark(c.depth, r, pending)
}

// Touched returns the number of the last batch with a Mark of this policy or one
// below; 0 if none.
func (c *Conn) Touched() uint64 { return c.touched }

// Post runs f in the tree. Any goroutine may call it.
func (c *Conn) Post(f func()) { c.part.Owner.Post(f) }

// Event reports an event.
func (c *Conn) Event(e Event) { c.part.events(e) }

// CaptureEvents makes f handle the events of c and of children that are built from now
// on.
func (c *Conn) CaptureEvents(f func(Event)) { c.part = &treePart{c.part.Tree, f, c.part.root} }

// Counters returns those of the process.
func (c *Conn) Counters() *Counters { return c.part.Counters }

// Draw returns the tree's source of random numbers.
func (c *Conn) Draw() func() uint64 { return c.part.Draw }

// Builder returns the policy of that name, preferably lbd's, or nil.
func (c *Conn) Builder(name string) Factory {
	if b := c.part.Registry[name]; b != nil || c.part.Foreign == nil {
		return b
	}
	return c.part.Foreign(name)
}

// Timer is a pending call of [Conn.AfterFunc].
type Timer struct {
	timer   *time.Timer
	stopped bool // owner only
}

// Stop cancels the call, even if its time has passed and the owner has not run it yet.
// A nil Timer is stopped.
func (t *Timer) Stop() {
	if t != nil {
		t.stopped = true
		t.timer.Stop()
	}
}

// AfterFunc makes the owner run f after d.
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
type Registry map[string]Factory

// NewRegistry returns the registry of the builders, by their names.
func NewRegistry(builders ...Factory) Registry {
	r := make(Registry, len(builders))
	for _, b := range builders {
		r[b.Name()] = b
	}
	return r
}

// ConnectTimer is a pending call of [Conn.AfterConnecting]. It belongs to the owner.
//
// It is suspended while a shortage in lbd prevents the tree from connecting: that time
// does not count.
type ConnectTimer struct {
	conn  *Conn
	f     func()
	left  time.Duration // as of since; without it while suspended
	since time.Time
	timer *Timer // nil while suspended
}

// AfterConnecting makes the owner run f after d in which the tree could connect.
func (c *Conn) AfterConnecting(d time.Duration, f func()) *ConnectTimer {
	t := &ConnectTimer{conn: c, f: f, left: d}
	tree := c.part.Tree
	if tree.running == nil {
		tree.running = make(map[*ConnectTimer]struct{})
	}
	tree.running[t] = struct{}{}
	t.follow()
	return t
}

// Stop cancels the call, as [Timer.Stop] does. A nil ConnectTimer is stopped.
func (t *ConnectTimer) Stop() {
	if t != nil {
		t.timer.Stop()
		t.conn.part.ended(t)
	}
}

// ended forgets a ConnectTimer.
func (t *Tree) ended(timer *ConnectTimer) {
	if delete(t.running, timer); len(t.running) == 0 {
		t.running = nil
	}
}

// Deadline returns when f will run; zero while suspended, or for a nil timer.
func (t *ConnectTimer) Deadline() time.Time {
	if t == nil || t.timer == nil {
		return time.Time{}
	}
	return t.since.Add(t.left)
}

// follow suspends or resumes the timer, as the tree is.
func (t *ConnectTimer) follow() {
	tree := t.conn.part.Tree
	suspended := tree.suspended[""] > 0 || tree.suspended[t.conn.Root()] > 0
	switch {
	case suspended && t.timer != nil:
		t.timer.Stop()
		t.timer = nil
		t.left = max(0, t.left-time.Since(t.since))
	case !suspended && t.timer == nil:
		t.since = time.Now()
		t.timer = t.conn.AfterFunc(t.left, func() {
			tree.ended(t)
			t.f()
		})
	}
}

// Suspend suspends the connect timers of one root (see [Conn.Root]), or of all if root
// is empty. They resume when the sum of all n is 0. Only the owner may call it.
func (t *Tree) Suspend(root string, n int) {
	if t.suspended == nil {
		t.suspended = make(map[string]int)
	}
	if t.suspended[root] += n; t.suspended[root] == 0 {
		delete(t.suspended, root)
	}
	for timer := range t.running {
		timer.follow()
	}
}
