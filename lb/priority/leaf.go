package priority

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

// updateLeaf applies the config of a leaf, and reports whether it is skipped if that
// changes.
func (c *child) updateLeaf(leaf *policy.Leaf) {
	was := c.skipped()
	c.leaf = leaf
	is := c.skipped()
	if fmt.Sprint(was) != fmt.Sprint(is) {
		c.parent.Stale = true // its reason is in the picker
	}
	if (is == nil) == (was == nil) {
		return
	}
	c.Event(policy.LeafChanged{Cluster: c.parent.cluster, Leaf: c.name, Err: is})
	if is != nil {
		c.inner = -1 // its tree fails, and has no priorities
	}
}

// skipped is why a leaf is skipped (gRFC A74), or nil.
func (c *child) skipped() error {
	if c.leaf == nil {
		return nil
	}
	return c.leaf.Err
}

// priorities is the number of priorities of the child.
func (c *child) priorities() int {
	if c.leaf == nil {
		return 1
	}
	return len(c.leaf.Sizes)
}

// numberInUse is the number of the priority in use within the child.
func (c *child) numberInUse() int { return max(c.number, c.inner) }

// called names the child in a sentence.
func (c *child) called() string {
	if c.leaf != nil {
		return "leaf " + c.name
	}
	return fmt.Sprintf("priority %d", c.number)
}

// connectivity is the state of the child as a candidate.
func (c *child) connectivity() connectivity.State {
	if c.skipped() != nil {
		return connectivity.TransientFailure
	}
	return c.state.ConnectivityState
}

// whyLeafInUse explains why a leaf, at place, is in use.
func (c *child) whyLeafInUse(place int) string {
	switch {
	case place == 0:
		return "the first leaf"
	case place == c.parent.last() && c.state.ConnectivityState == connectivity.TransientFailure:
		return "the last leaf, and every one before it failed too or is skipped"
	default:
		return "every leaf before it failed, timed out or is skipped"
	}
}

// captureEvent handles events from below the child. Switches within the leaf in use
// become switches of the aggregate, reported at the end of the batch.
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

// maxNamedLeaves limits the leaves in an error.
const maxNamedLeaves = 4

// failure is the error of picks without a child in use.
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

// cause is why the priority in use changes.
type cause struct {
	reason policy.SwitchReason
	detail string
}

// reportSwitch reports another number of the priority in use.
func (b *priority) reportSwitch(number int, why cause) {
	from := b.reportedNumber
	b.reportedNumber = number
	b.Event(policy.PrioritySwitched{
		Root: b.Root(), Cluster: b.cluster, From: from, To: number, Reason: why.reason, Detail: why.detail,
	})
}

// reportLeafSwitch is reportSwitch for an aggregate.
func (b *priority) reportLeafSwitch() {
	why := cause{policy.SwitchUpdate, "the config changed"}
	if b.cause != nil {
		why = *b.cause
	}
	b.cause = nil // also that of a switch that another one undid
	if number := b.numberInUse(); b.aggregate && number != b.reportedNumber {
		b.reportSwitch(number, why)
	}
}

// picker records the priority in use; of a leaf, the leaf's own picker does.
type picker struct {
	policy.Failed

	child    balancer.Picker
	priority int
	step     policy.Step // a PriorityStep, or a LeafStep
}

func (b *priority) picker(state connectivity.State) balancer.Picker {
	var passed []policy.PassedOver
	for _, c := range b.order[:b.used] {
		passed = append(passed, policy.PassedOver{Priority: c.number, Name: c.name, State: c.connectivity(), Why: c.condition()})
	}
	p := &picker{
		child: b.inUse.state.Picker, Failed: policy.Failed{Err: b.Err}, priority: b.inUse.number,
		step: policy.PriorityStep{Priority: b.inUse.number, State: state, PassedOver: passed},
	}
	if b.aggregate {
		p.step = policy.LeafStep{Leaf: b.inUse.name, State: state, PassedOver: passed}
	}
	return p
}

func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	call := policy.CallOf(info.Ctx)
	call.Priority = p.priority
	if call.Trace != nil {
		call.Trace.Steps = append(call.Trace.Steps, p.step)
	}
	return p.child.Pick(info)
}
