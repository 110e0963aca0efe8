package priority

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

// updateLeaf takes what a config says of the child as a leaf of an aggregate, and
// reports the change where a leaf is skipped from now on, or no longer.
func (c *child) updateLeaf(leaf *policy.Leaf) {
	was := c.skipped()
	c.leaf = leaf
	is := c.skipped()
	if fmt.Sprint(was) != fmt.Sprint(is) {
		c.parent.Stale = true // its reason is in the picker
	}
	switch {
	case is != nil && was == nil:
		c.inner = -1 // its tree fails, and has no priorities
		c.Event(policy.LeafSkipped{Root: c.Root(), Cluster: c.parent.cluster, Leaf: c.name, Err: is})
	case is == nil && was != nil:
		c.Event(policy.LeafRestored{Root: c.Root(), Cluster: c.parent.cluster, Leaf: c.name})
	}
}

// skipped is why the child is a leaf that is skipped (gRFC A74); nil for any other
// child.
func (c *child) skipped() error {
	if c.leaf == nil {
		return nil
	}
	return c.leaf.Err
}

// priorities is how many priorities the child stands for.
func (c *child) priorities() int {
	if c.leaf == nil {
		return 1
	}
	return len(c.leaf.Sizes)
}

// numberInUse is the number of the priority that the child lets picks go to.
func (c *child) numberInUse() int { return max(c.number, c.inner) }

// called names the child in a sentence.
func (c *child) called() string {
	if c.leaf != nil {
		return "leaf " + c.name
	}
	return fmt.Sprintf("priority %d", c.number)
}

// connectivity is the state in which the child is shown as a candidate.
func (c *child) connectivity() connectivity.State {
	if c.skipped() != nil {
		return connectivity.TransientFailure
	}
	return c.state.ConnectivityState
}

// whyLeafInUse says why a leaf, at place, is in use.
func (c *child) whyLeafInUse(place int) string {
	switch {
	case place == 0:
		return "the first leaf"
	case place == c.parent.last() && c.state.ConnectivityState == connectivity.TransientFailure:
		return "the last leaf, and every one before it failed too or is skipped"
	default:
		return "every leaf before it failed, had its time or is skipped"
	}
}

// captureEvent takes the events of what is below the child. The switches within a
// leaf become switches of the aggregate, as long as the leaf is in use: they are
// reported with the batch, once all leaves have settled.
func (c *child) captureEvent(e policy.Event) {
	s, ok := e.(policy.PrioritySwitched)
	if !ok {
		c.Event(e)
		return
	}
	b := c.parent
	c.inner = s.To
	if c == b.inUse && b.cause == nil {
		b.cause = &cause{reason: s.Reason, detail: s.Detail}
	}
	b.Mark()
}

// whyNone says why no child is in use.
func (b *priority) whyNone() string {
	if b.aggregate {
		return "every leaf is skipped"
	}
	return "the config has no priorities"
}

// maxNamedLeaves is how many leaves an error names.
const maxNamedLeaves = 4

// failure is the error of picks while no child is in use.
func (b *priority) failure() error {
	if len(b.order) == 0 {
		return errNoPriorities
	}
	var all []string
	for _, c := range b.order[:min(len(b.order), maxNamedLeaves)] {
		all = append(all, fmt.Sprintf("%s: %v", c.called(), c.skipped()))
	}
	if more := len(b.order) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("every leaf of the aggregate is skipped: %s", strings.Join(all, "; "))
}

// cause is what made the priority in use change.
type cause struct {
	reason policy.SwitchReason
	detail string
}

// reportSwitch reports that picks go to a priority of another number than before.
func (b *priority) reportSwitch(number int, why cause) {
	from := b.told
	b.told = number
	b.Event(policy.PrioritySwitched{
		Root: b.Root(), Cluster: b.cluster, From: from, To: number, Reason: why.reason, Detail: why.detail,
	})
}

// reportLeafSwitch is reportSwitch for an aggregate, at the end of a batch.
func (b *priority) reportLeafSwitch() {
	why := cause{policy.SwitchUpdate, "the config changed"}
	if b.cause != nil {
		why = *b.cause
	}
	b.cause = nil // also that of a switch that another one undid
	if number := b.numberInUse(); b.aggregate && number != b.told {
		b.reportSwitch(number, why)
	}
}
