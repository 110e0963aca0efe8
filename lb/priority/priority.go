// Package priority is gRPC's priority policy: fail-over from one child to the
// next (gRFC A27, A56).
//
// What holds whenever the tree is at rest: the child in use is the first, in
// order, that is READY or IDLE, or still CONNECTING within its init timer, or
// the last. Every child above it is started and has failed, or has had its time.
// Every child below it is deactivated: it reaches nobody, and is closed after
// [RetentionTime] unless it is needed before.
package priority

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

const (
	// InitTimeout is how long a child may be CONNECTING before the next one
	// is started, without the time in which a shortage of lbd's own keeps it from
	// connecting.
	InitTimeout = 10 * time.Second
	// RetentionTime is how long a deactivated child keeps its connections.
	RetentionTime = 15 * time.Minute
)

var errNoPriorities = errors.New("no locality in any priority: the assignment is empty")

// Builder returns the builder of priority policies, whose config is a
// *[policy.PriorityConfig].
func Builder() policy.Builder {
	return policy.NewBuilder(policy.Priority, func(conn *policy.Conn) balancer.Balancer {
		b := &priority{children: make(map[string]*child), used: -1, told: -1}
		b.Init(conn, policy.Priority, b)
		return b
	})
}

// priority belongs to the owner.
type priority struct {
	policy.Base

	cluster   string
	aggregate bool // the children are leaves
	children  map[string]*child
	order     []*child
	inUse     *child
	used      int       // inUse's place in order when it was chosen; -1 for none
	since     time.Time // when another place was chosen
	told      int       // the number of the priority in use, as in the last event; -1 for none
	cause     *cause    // of an aggregate: why told changes with this batch

	updated bool // a config came since the last sync: the next Report syncs
}

func (b *priority) UpdateClientConnState(s balancer.ClientConnState) error {
	cfg, ok := s.BalancerConfig.(*policy.PriorityConfig)
	if !ok {
		return fmt.Errorf("%s: config is a %T", policy.Priority, s.BalancerConfig)
	}
	b.cluster = cfg.Cluster
	// The children answer first, so that one that has just failed and one that
	// has just become READY are seen together.
	b.updated = true
	b.Mark()
	named := make(map[string]bool, len(cfg.Children))
	was := b.order
	b.order = make([]*child, len(cfg.Children))
	number := cfg.First
	for i, part := range cfg.Children {
		named[part.Name] = true
		c := b.children[part.Name]
		if c == nil {
			c = newChild(b, part.Name)
			b.children[part.Name] = c
		}
		b.aggregate = part.Leaf != nil
		b.Stale = b.Stale || c.number != number
		c.number = number
		c.update(part)
		number += c.priorities()
		b.order[i] = c
	}
	for name, c := range b.children {
		if !named[name] {
			delete(b.children, name)
			c.discard()
		}
	}
	b.Stale = b.Stale || !slices.Equal(was, b.order)
	return nil
}

// childChanged takes a child's new state, which c has already noted. from is
// the one before.
func (b *priority) childChanged(c *child, from connectivity.State) {
	switch c.state.ConnectivityState {
	case connectivity.Ready, connectivity.Idle:
		c.failed = false
		c.stopInitTimer()
	case connectivity.TransientFailure:
		c.failed = true
		c.stopInitTimer()
	case connectivity.Connecting:
		// A child that left READY or IDLE gets its time again. One that has
		// failed, or is in the midst of its time, does not.
		if !c.failed && from != connectivity.Connecting {
			c.startInitTimer()
		}
	}
	b.sync(policy.SwitchFailure)
	if c == b.inUse || c.state.ConnectivityState != from {
		b.Stale = true
	}
	b.Mark()
}

// initTimedOut passes over a child that had its time.
func (b *priority) initTimedOut() {
	b.sync(policy.SwitchInitTimeout)
	b.Mark()
}

// sync makes the invariants of the package hold again. In the midst of a config
// update that is left to the end of the batch.
func (b *priority) sync(reason policy.SwitchReason) {
	if b.updated {
		return
	}
	last := b.last()
	for i, c := range b.order {
		if !c.usable() && i != last {
			continue
		}
		for _, lower := range b.order[i+1:] {
			lower.deactivate()
		}
		b.use(c, i, reason)
		return
	}
	for _, c := range b.order { // all are skipped
		c.discard()
	}
	b.use(nil, -1, reason)
}

// last is the place of the child that is in use where no child is usable: the
// last one that is not skipped, -1 without one.
func (b *priority) last() int {
	for i, c := range slices.Backward(b.order) {
		if c.skipped() == nil {
			return i
		}
	}
	return -1
}

func (b *priority) use(c *child, place int, reason policy.SwitchReason) {
	was, from := b.inUse, b.used
	if c != was || place != from {
		b.inUse, b.used, b.Stale = c, place, true
	}
	if reason == policy.SwitchFailure && place < from {
		reason = policy.SwitchRecovered
	}
	switch {
	case b.aggregate:
		if c != was {
			b.since = time.Now()
			b.cause = &cause{reason, b.detail(was, place, reason)}
		}
	case b.numberInUse() != b.told:
		b.since = time.Now()
		b.reportSwitch(b.numberInUse(), cause{reason, b.detail(was, place, reason)})
	}
	if c != nil {
		c.start()
	}
}

// numberInUse is the number of the priority that picks go to, -1 without one.
func (b *priority) numberInUse() int {
	if b.inUse == nil {
		return -1
	}
	return b.inUse.numberInUse()
}

// detail says in words what made the child in use change, from was to the one at
// place.
func (b *priority) detail(was *child, place int, reason policy.SwitchReason) string {
	switch {
	case place < 0:
		return b.whyNone()
	case b.told < 0:
		return b.order[place].called() + " is the first to be used"
	case reason == policy.SwitchInitTimeout:
		return fmt.Sprintf("%s was not READY within %v", b.above(place).called(), InitTimeout)
	case reason == policy.SwitchRecovered:
		return fmt.Sprintf("%s is %v", b.order[place].called(), b.order[place].state.ConnectivityState)
	case reason == policy.SwitchUpdate && was != nil && was.skipped() != nil:
		return fmt.Sprintf("%s: %s", was.called(), was.condition())
	case reason == policy.SwitchUpdate:
		return "the config changed"
	default:
		return fmt.Sprintf("%s: %s", b.above(place).called(), b.above(place).condition())
	}
}

// above is the child that was tried before the one at place.
func (b *priority) above(place int) *child {
	for i := place - 1; i > 0; i-- {
		if b.order[i].skipped() == nil {
			return b.order[i]
		}
	}
	return b.order[0]
}

// Report sends the state of the child in use.
func (b *priority) Report() {
	if b.Closed() {
		return
	}
	if b.updated {
		b.updated = false
		b.sync(policy.SwitchUpdate)
		b.Mark() // what sync has started answers before the state goes up
		return
	}
	b.reportLeafSwitch()
	if b.inUse == nil {
		b.Err = b.failure()
		b.Send(connectivity.TransientFailure, b.Base.Picker)
		return
	}
	b.Err = policy.FailureOf(b.inUse.state)
	b.Send(b.inUse.state.ConnectivityState, b.picker)
}

// ResolverError goes to every child that is started.
func (b *priority) ResolverError(err error) {
	for _, c := range b.order {
		if c.started {
			c.policy.ResolverError(err)
		}
	}
}

// ExitIdle goes to every child that is started.
func (b *priority) ExitIdle() {
	for _, c := range b.order {
		if c.started {
			c.policy.ExitIdle()
		}
	}
}

// Close closes every child.
func (b *priority) Close() {
	b.Base.Close()
	for _, c := range b.children {
		c.discard()
	}
}

// Describe describes every priority, and why it is or is not in use.
func (b *priority) Describe() policy.Node {
	n := b.Base.Describe()
	n.Priorities = make([]policy.PriorityNode, len(b.order))
	for i, c := range b.order {
		n.Priorities[i] = c.describe(i)
	}
	return n
}

// Summarize counts the endpoints of each priority, of an aggregate those of all
// leaves in a row. The endpoints of a priority that is not started are IDLE.
func (b *priority) Summarize() policy.Summary {
	s := policy.Summary{State: b.Reported, Priority: b.numberInUse()}
	for _, c := range b.order {
		s.Priorities = append(s.Priorities, c.census()...)
	}
	return s
}

// census counts the endpoints of the child, by priority.
func (c *child) census() []policy.Census {
	out := make([]policy.Census, c.priorities())
	switch {
	case c.builtAs != "" && c.leaf == nil:
		out[0] = c.policy.Summarize().Census
	case c.builtAs != "":
		copy(out, c.policy.Summarize().Priorities)
	case c.leaf == nil:
		out[0].Idle = c.size
	default:
		for i, size := range c.leaf.Sizes {
			out[i].Idle = size
		}
	}
	return out
}
