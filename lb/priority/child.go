package priority

import (
	"fmt"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

// child is one priority, or one leaf of an aggregate, and the ClientConn of its
// policy.
//
// It is not built, started, or deactivated: built, but ignored. All of it belongs to
// the owner.
type child struct {
	*policy.Conn

	parent *priority
	name   string
	number int // its priority's, or that of a leaf's first
	part   policy.Child
	size   int
	leaf   *policy.Leaf // nil for a priority
	inner  int          // of a leaf: the number of its priority in use; -1 for none

	policy  *policy.Switch
	builtAs string // which policy it runs; empty while not built
	started bool
	state   balancer.State // as started: what counts for the parent
	latest  balancer.State // the last one, even while deactivated
	failed  bool           // TRANSIENT_FAILURE since READY or IDLE

	initTimer   *policy.ConnectTimer
	forgetTimer *policy.Timer
	forgetAt    time.Time
}

var connecting = balancer.State{ConnectivityState: connectivity.Connecting, Picker: policy.QueuePicker}

// update applies the child's part of a config. A child that is not started gets it
// when it starts. If its policy changes, the old one is closed at once, and sync
// starts the new one.
func (c *child) update(part policy.PriorityChild) {
	c.part, c.size = part.Child, part.Size
	c.updateLeaf(part.Leaf)
	if c.builtAs != part.Child.Policy || c.skipped() != nil && !c.started {
		c.discard()
	}
	if c.started {
		_ = c.policy.Update(c.part) // the Switch reports the error as the child's failure
	}
}

// usable reports whether the child can be in use without regard to those below.
func (c *child) usable() bool {
	switch {
	case c.skipped() != nil:
		return false
	case !c.started:
		return true
	case c.state.ConnectivityState == connectivity.Connecting:
		return c.initTimer != nil
	default:
		return c.state.ConnectivityState == connectivity.Ready || c.state.ConnectivityState == connectivity.Idle
	}
}

// start builds or activates the policy, with its last state until it reports another.
func (c *child) start() {
	if c.started {
		return
	}
	c.started, c.builtAs = true, c.part.Policy
	c.forgetTimer.Stop()
	c.forgetTimer, c.forgetAt = nil, time.Time{}
	c.startInitTimer()
	_ = c.policy.Update(c.part) // as in update
	c.setState(c.latest)
}

// UpdateState handles a state of the policy.
func (c *child) UpdateState(s balancer.State) {
	c.latest = s
	if c.started {
		c.setState(s)
	}
}

func (c *child) setState(s balancer.State) {
	from := c.state.ConnectivityState
	c.state = s
	c.parent.childChanged(c, from)
}

// deactivate ignores the child and keeps it for a while.
func (c *child) deactivate() {
	if !c.started {
		return
	}
	c.reset()
	c.forgetAt = time.Now().Add(RetentionTime)
	c.forgetTimer = c.AfterFunc(RetentionTime, c.discard)
}

func (c *child) reset() {
	c.stopInitTimer()
	c.started, c.failed = false, false
	c.state = connecting
}

// discard closes the policy. The child can be started again.
func (c *child) discard() {
	c.reset()
	c.forgetTimer.Stop()
	c.forgetTimer, c.forgetAt = nil, time.Time{}
	c.builtAs, c.latest, c.inner = "", connecting, -1
	c.policy.Close()
	c.parent.Mark() // its endpoints are IDLE now
}

func (c *child) startInitTimer() {
	if c.initTimer != nil {
		return
	}
	c.initTimer = c.AfterConnecting(InitTimeout, func() {
		c.initTimer = nil
		c.parent.sync(policy.SwitchInitTimeout)
		c.parent.Mark()
	})
}

func (c *child) stopInitTimer() {
	c.initTimer.Stop()
	c.initTimer = nil
}

// condition describes the child as a candidate.
func (c *child) condition() string {
	switch {
	case c.skipped() != nil:
		return fmt.Sprintf("skipped: %v", c.skipped())
	case !c.started:
		return "not needed"
	case c.state.ConnectivityState == connectivity.Connecting && c.initTimer == nil:
		return fmt.Sprintf("still CONNECTING after %v", InitTimeout)
	case c.state.ConnectivityState == connectivity.TransientFailure:
		if err := policy.FailureOf(c.state); err != nil {
			return fmt.Sprintf("TRANSIENT_FAILURE: %v", err)
		}
	}
	return c.state.ConnectivityState.String()
}

// why explains why the child, at place, is in use or is not.
func (c *child) why(place int) string {
	switch used := c.parent.used; {
	case c.skipped() != nil:
		return c.condition()
	case c.parent.inUse == nil:
		return "not started yet"
	case place > used:
		return c.parent.inUse.called() + " is in use"
	case place < used:
		return c.condition()
	case c.leaf != nil:
		return c.whyLeafInUse(place)
	case place == 0:
		return "the highest priority"
	case place == len(c.parent.order)-1 && c.state.ConnectivityState == connectivity.TransientFailure:
		return "the last priority, and every higher one failed too"
	default:
		return "every higher priority failed or timed out"
	}
}

func (c *child) describe(place int) policy.PriorityNode {
	n := policy.PriorityNode{
		Name: c.name, InUse: c == c.parent.inUse, Why: c.why(place), Started: c.started,
		FailoverAt: c.initTimer.Deadline(), ForgetAt: c.forgetAt, Skipped: c.skipped(),
	}
	if n.InUse {
		n.InUseSince = c.parent.since
	}
	if c.builtAs != "" {
		n.Child = c.policy.Describe()
	}
	return n
}
