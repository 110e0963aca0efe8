package lb

import (
	"context"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/lbd-dev/lbd/overload"
)

// shortage is a dial's error if lbd is the cause.
type shortage struct {
	resource overload.Resource
	err      error
}

func (s *shortage) Error() string { return s.err.Error() }

func (s *shortage) Unwrap() error { return s.err }

// report reports a shortage to the monitor, and returns whether it affects any dial.
func (d *Dialer) report(s *shortage) (processWide bool) {
	d.overload.Report(s.resource, s.err)
	return overload.State{Resource: s.resource}.ProcessWide()
}

// acquire takes a descriptor from the budget of held connections.
func (d *Dialer) acquire() error {
	n := d.held.Add(1)
	if d.maxHeld == 0 || n <= int64(d.maxHeld) {
		return nil
	}
	d.held.Add(-1)
	return &shortage{
		resource: overload.HeldConnections,
		err:      fmt.Errorf("limit of connections to endpoints reached (%d), because of the limit on descriptors: %w", d.maxHeld, syscall.EMFILE),
	}
}

// attempt is dial within the budget of held connections. Call release for a connection
// that it returns.
func (l *tcpLink) attempt(ctx context.Context, address string, timeout time.Duration, agreed func()) (net.Conn, error) {
	if l.hold {
		if err := l.dialer.acquire(); err != nil {
			return nil, err
		}
	}
	conn, err := l.dial(ctx, address, timeout, agreed)
	if err != nil {
		l.release()
	}
	return conn, err
}

func (l *tcpLink) release() {
	if l.hold {
		l.dialer.held.Add(-1)
	}
}

// stall notes whether an address waits because of a shortage toward it. While one
// does, the connect timers of its cluster are suspended. A race that is over stalls
// none.
func (r *race) stall(address string, on bool) {
	l := r.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.over() || l.stalled[address] == on {
		return
	}
	if !on {
		delete(l.stalled, address)
		if len(l.stalled) == 0 {
			l.suspend(-1)
		}
		return
	}
	if l.stalled == nil {
		l.stalled = make(map[string]bool)
	}
	l.stalled[address] = true
	if len(l.stalled) == 1 {
		l.suspend(1)
	}
}

// unstall ends all stalls once the race is over. The caller holds mu.
func (l *tcpLink) unstall() {
	if len(l.stalled) > 0 {
		l.stalled = nil
		l.suspend(-1)
	}
}

// suspend suspends the connect timers of the link's root cluster until the sum of all
// n is 0.
func (l *tcpLink) suspend(n int) {
	if l.group.channel != nil {
		l.group.channel.suspend(l.root, n)
	}
}

// wait dials address i again after a pause.
func (r *race) wait(i int) {
	r.stall(r.addresses[i], true)
	time.AfterFunc(overload.Pause(overload.RetryPause), func() { r.queue(i, true) })
}

// overloaded suspends all connect timers of the tree during a shortage that any dial
// may fail for. The monitor calls it.
func (c *Channel) overloaded(states []overload.State) {
	short := slices.ContainsFunc(states, overload.State.ProcessWide)
	switch was := c.short.Swap(short); {
	case short && !was:
		c.suspend("", 1)
	case was && !short:
		c.suspend("", -1)
	}
}

// suspend is [policy.Tree.Suspend], for any goroutine.
func (c *Channel) suspend(root string, n int) { c.owner.Post(func() { c.tree.Suspend(root, n) }) }
