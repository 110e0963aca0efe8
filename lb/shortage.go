package lb

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/lbd-dev/lbd/overload"
)

// shortage is why a dial failed where the fault is lbd's own.
type shortage struct {
	resource overload.Resource
	err      error
}

func (s *shortage) Error() string { return s.err.Error() }

func (s *shortage) Unwrap() error { return s.err }

// report tells the monitor of a shortage, and returns whether any dial may fail for it.
func (d *Dialer) report(s *shortage) (processWide bool) {
	d.overload.Report(s.resource, s.err)
	return overload.State{Resource: s.resource}.ProcessWide()
}

// acquire takes one of the descriptors that connections may hold.
func (d *Dialer) acquire() error {
	n := d.held.Add(1)
	if d.maxHeld == 0 || n <= int64(d.maxHeld) {
		return nil
	}
	d.held.Add(-1)
	return &shortage{
		resource: overload.HeldConnections,
		err:      fmt.Errorf("%d connections to endpoints are held, and the limit on descriptors allows no more: %w", d.maxHeld, syscall.EMFILE),
	}
}

// attempt is dial within the budget of connections that are held. Where it returns a
// connection that the mode keeps, release gives that back.
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

// release gives back what attempt took.
func (l *tcpLink) release() {
	if l.hold {
		l.dialer.held.Add(-1)
	}
}

// stall notes that an address waits because of a shortage toward it, or no longer.
// Init timers of the cluster stand still while any of its addresses waits. A race
// that is over has none.
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
			l.suspend(false)
		}
		return
	}
	if l.stalled == nil {
		l.stalled = make(map[string]bool)
	}
	l.stalled[address] = true
	if len(l.stalled) == 1 {
		l.suspend(true)
	}
}

// unstall notes that no address waits any more, once the race is over. The caller
// holds mu.
func (l *tcpLink) unstall() {
	if len(l.stalled) > 0 {
		l.stalled = nil
		l.suspend(false)
	}
}

// suspend stops the connect timers of the link's root cluster, or resumes them.
func (l *tcpLink) suspend(on bool) {
	switch timers := l.turn.timers; {
	case timers == nil:
	case on:
		timers.suspend(l.root)
	default:
		timers.resume(l.root)
	}
}

// wait lets address i be dialed again after a pause.
func (r *race) wait(i int) {
	r.stall(r.addresses[i], true)
	time.AfterFunc(overload.Pause(overload.RetryPause), func() {
		r.link.dialer.slots.attempt(r.link.turn, r.dialing(i), true)
	})
}
