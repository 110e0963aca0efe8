package lb

import "github.com/lbd-dev/lbd/overload"

// overloaded suspends all connect timers of the tree during a shortage that any dial
// may fail for. The monitor calls it.
func (c *Channel) overloaded(states []overload.State) {
	short := false
	for _, s := range states {
		short = short || s.ProcessWide()
	}
	if c.short.Swap(short) != short {
		c.owner.Post(func() { c.tree.Suspend(c.short.Load()) })
	}
}

// suspend makes the channel the connectTimers of its dials.
func (c *Channel) suspend(root string) { c.owner.Post(func() { c.tree.SuspendRoot(root, 1) }) }

func (c *Channel) resume(root string) { c.owner.Post(func() { c.tree.SuspendRoot(root, -1) }) }
