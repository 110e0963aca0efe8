// Package priority is gRPC's priority policy: fail-over from one child to the next
// (gRFC A27, A56).
//
// Between batches, the child in use is the first that is READY or IDLE, or CONNECTING
// with its init timer running; else the last. Children above it are started, and have
// failed or exceeded their time. Children below it are deactivated: they get no picks,
// and are closed after [RetentionTime] unless they are needed before.
package priority

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/few"
)

const (
	// InitTimeout limits the time that a child is CONNECTING before the next one
	// starts. Time in which a shortage in lbd prevents it from connecting does not
	// count.
	InitTimeout = 10 * time.Second
	// RetentionTime is how long a deactivated child keeps its connections.
	RetentionTime = 15 * time.Minute
)

var errNoPriorities = errors.New("no locality in any priority: the assignment is empty")

// Builder returns the builder of priority policies, whose config is a
// *[policy.PriorityConfig].
func Builder() policy.Builder {
	return policy.NewBuilder(policy.Priority, func(conn *policy.Conn) policy.Policy {
		b := &priority{used: -1, reportedNumber: -1}
		b.Init(conn, policy.Priority, b)
		return b
	})
}

// priority belongs to the owner.
type priority struct {
	policy.Base

	cluster        string
	aggregate      bool                    // the children are leaves
	children       few.Map[string, *child] // those of order, by name
	order          []*child
	inUse          *child
	used           int       // inUse's place in order when it was chosen; -1 for none
	since          time.Time // when another place was chosen
	reportedNumber int       // the number of the priority in use, as in the last event; -1 for none
	cause          *cause    // of an aggregate: why that changes with this batch

	updated bool // a config has come since the last sync: the next Report syncs
}

func (b *priority) Update(given policy.Child) error {
	cfg, ok := given.Config.(*policy.PriorityConfig)
	if !ok {
		return fmt.Errorf("%s: config is a %T", policy.Priority, given.Config)
	}
	b.cluster = cfg.Cluster
	// First the children apply their parts: one that fails and one that becomes READY
	// are seen together.
	b.updated = true
	b.Mark()
	named := make(map[string]bool, len(cfg.Children))
	was := b.order
	b.order = make([]*child, len(cfg.Children))
	number := cfg.First
	for i, part := range cfg.Children {
		named[part.Name] = true
		c := b.children.Get(part.Name)
		if c == nil {
			c = &child{Conn: b.Conn, parent: b, name: part.Name, inner: -1, state: connecting, latest: connecting}
			below := b.Child(c)
			below.CaptureEvents(c.captureEvent)
			c.policy = policy.NewSwitch(below)
			b.children.Set(part.Name, c)
		}
		b.aggregate = part.Leaf != nil
		b.Stale = b.Stale || c.number != number
		c.number = number
		c.update(part)
		number += c.priorities()
		b.order[i] = c
	}
	for _, c := range was {
		if !named[c.name] {
			b.children.Delete(c.name)
			c.discard()
		}
	}
	b.Stale = b.Stale || !slices.Equal(was, b.order)
	return nil
}

// childChanged handles a new state of c. from is the one before.
func (b *priority) childChanged(c *child, from connectivity.State) {
	switch c.state.ConnectivityState {
	case connectivity.Ready, connectivity.Idle:
		c.failed = false
		c.stopInitTimer()
	case connectivity.TransientFailure:
		c.failed = true
		c.stopInitTimer()
	case connectivity.Connecting:
		// A child that left READY or IDLE gets its time again, unless it has failed or
		// its time is running.
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

// sync restores the invariants of the package; for an update at the end of the batch.
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

// last is the place of the child that is in use if none is usable: the last that is
// not skipped, or -1.
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
	case b.numberInUse() != b.reportedNumber:
		b.since = time.Now()
		b.reportSwitch(b.numberInUse(), cause{reason, b.detail(was, place, reason)})
	}
	if c != nil {
		c.start()
	}
}

// numberInUse is the number of the priority in use; -1 for none.
func (b *priority) numberInUse() int {
	if b.inUse == nil {
		return -1
	}
	return b.inUse.numberInUse()
}

// detail explains the change from child was to the one at place.
func (b *priority) detail(was *child, place int, reason policy.SwitchReason) string {
	switch {
	case place < 0 && b.aggregate:
		return "every leaf is skipped"
	case place < 0:
		return "the config has no priorities"
	case b.reportedNumber < 0:
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

func (b *priority) Close() {
	b.Base.Close()
	for _, c := range b.order {
		c.discard()
	}
}

// Use gives reports to the priorities that are built, in their order.
func (b *priority) Use(list []*policy.Usage) {
	for _, c := range b.order {
		if c.builtAs != "" {
			c.policy.Use(list)
		}
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

// Summarize counts the endpoints of each priority, in an aggregate of all leaves.
// Those of a priority that is not started are IDLE.
func (b *priority) Summarize() policy.Summary {
	s := policy.Summary{State: b.Reported, Priority: b.numberInUse()}
	for _, c := range b.order {
		s.Priorities = append(s.Priorities, c.census()...)
	}
	return s
}

// census counts the child's endpoints by priority.
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
