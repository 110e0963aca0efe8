package lb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/overload"
)

// Start dials the addresses as pick_first does.
func (c tcpConnector) Start(addresses []string, report func(Connection)) func() {
	return c.begin(addresses, report).stop
}

// begin is Start, and returns the link.
func (c tcpConnector) begin(addresses []string, report func(Connection)) *tcpLink {
	l := &tcpLink{tcpConnector: c, report: report}
	l.start(addresses)
	return l
}

// tcpLink is one attempt of a tcpConnector, and the connection that results.
type tcpLink struct {
	tcpConnector
	report func(Connection)

	mu      sync.Mutex // guards the next fields
	stopped bool
	cancel  context.CancelFunc // of the attempt; nil for none
	stalled map[string]bool    // addresses that wait for a shortage toward them
	conn    net.Conn           // that is held; nil for none
	// watcher watches conn, with a number; nil if a goroutine does.
	watcher prober
	number  int32

	// Guarded by rechecks.mu.
	left          bool     // it takes part in no check from now on
	recheck       *recheck // in mode tcp once it is connected; in others for one check
	before, after *tcpLink // of the same check
	round         uint32   // the last check of the address that began before the link was connected
	checked       uint32   // the tick of the last check that a report caused, of the last one of the link
}

func (l *tcpLink) stop() {
	l.mu.Lock()
	l.stopped = true
	if l.cancel != nil {
		l.cancel()
	}
	l.unstall()
	conn := l.drop()
	l.mu.Unlock()
	if conn != nil {
		_ = conn.Close()
		l.release()
	}
	l.dialer.rechecks.leave(l)
}

// drop takes the held connection from the link: the caller closes and releases it. It
// returns nil if there is none. The caller holds mu.
func (l *tcpLink) drop() net.Conn {
	conn := l.conn
	if l.watcher != nil && conn != nil {
		l.watcher.Release(l.number, l)
	}
	l.conn, l.watcher = nil, nil
	return conn
}

// begin makes a context that ends with the link. It is canceled already if the link has
// been stopped.
func (l *tcpLink) begin() context.Context {
	ctx, cancel := context.WithCancel(l.dialer.ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		cancel()
	}
	l.cancel = cancel
	return ctx
}

func (l *tcpLink) connected(address string, conn net.Conn) {
	if !l.hold {
		_ = conn.Close()
		l.report(Connection{Address: address})
		l.dialer.rechecks.join(l, address)
		return
	}
	l.mu.Lock()
	stopped := l.stopped
	if !stopped {
		l.conn = conn
	}
	l.mu.Unlock()
	if stopped {
		_ = conn.Close()
		l.release()
		return
	}
	l.report(Connection{Address: address})
	l.watch()
}

// watch has the held connection watched until it is lost or closed.
func (l *tcpLink) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	conn := l.conn
	if conn == nil {
		return // stopped
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if p := l.dialer.prober(); p != nil {
			if l.number, ok = p.Hold(tcp, l); ok {
				l.watcher = p
				return
			}
		}
	}
	if !l.dialer.slots.hold(func() { l.read(conn) }) {
		l.drop()
		_ = conn.Close()
		l.release()
	}
}

// read reads and discards data until the connection is lost or closed.
func (l *tcpLink) read(conn net.Conn) {
	defer context.AfterFunc(l.dialer.ctx, func() { _ = conn.Close() })()
	buf := make([]byte, 64)
	for {
		if _, err := conn.Read(buf); err != nil {
			l.Lost(err)
			return
		}
	}
}

// Lost ends the connection, unless a shortage in lbd is the cause: then it is watched
// again after a pause.
func (l *tcpLink) Lost(err error) {
	l.mu.Lock()
	if l.conn == nil {
		l.mu.Unlock()
		return // stopped
	}
	l.watcher = nil
	if l.dialer.ctx.Err() == nil && l.dialer.overload.ReportIf(err) {
		l.mu.Unlock()
		time.AfterFunc(overload.Pause(overload.RetryPause), l.watch)
		return
	}
	l.mu.Unlock()
	l.fail(fmt.Errorf("connection lost: %w", err))
}

// fail ends the connection.
func (l *tcpLink) fail(err error) {
	if l.hold {
		l.mu.Lock()
		conn := l.drop()
		l.mu.Unlock()
		if conn == nil {
			return // stopped
		}
		_ = conn.Close()
		defer l.release()
	}
	if l.dialer.ctx.Err() == nil {
		l.report(Connection{Err: err})
	}
}

// race is one attempt to connect to an endpoint (gRFC A61, RFC 8305): it dials each
// address [policy.AttemptDelay] after the one before, or when that has failed. The
// first that connects wins, and the others are canceled. The attempt fails when all
// have failed.
//
// Each dial has a slot, so the number of dials is limited, not of endpoints. If slots
// are scarce, an endpoint waits for one address at a time: it takes no more turns, and
// none longer, than if it dialed its addresses one after the other.
type race struct {
	link      *tcpLink
	addresses []string // in the order in which they are dialed

	ctx context.Context // ends when one has won, or with the link

	begun  atomic.Int64 // how many are dialed, were, or wait for a slot
	failed atomic.Int64
	won    atomic.Bool
}

// start begins the race. There must be an address.
func (l *tcpLink) start(addresses []string) {
	r := &race{link: l, addresses: policy.Interleave(addresses, func(a string) string { return a })}
	r.ctx = l.begin()
	r.begin(0)
}

func (r *race) over() bool { return r.ctx.Err() != nil }

// end cancels the rest of the race once an address has connected.
func (r *race) end() {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	r.link.cancel()
	r.link.cancel = nil
	r.link.unstall()
}

// begin queues the dial of address i, once. All addresses before it have begun.
func (r *race) begin(i int) {
	if i == len(r.addresses) || !r.begun.CompareAndSwap(int64(i), int64(i)+1) {
		return
	}
	r.queue(i, i > 0)
}

func (r *race) queue(i int, begun bool) {
	slots, d := r.link.dialer.slots, dial{run: func(limit time.Duration) bool { return r.dial(i, limit) }, over: r.over}
	slots.add(&slots.attempts, r.link.group, d, begun)
}

// dial dials address i. short reports that a shortage in lbd prevented that: the next
// address does not begin then.
func (r *race) dial(i int, limit time.Duration) (short bool) {
	if r.over() {
		return false
	}
	delay := time.AfterFunc(policy.AttemptDelay, func() { r.begin(i + 1) })
	defer delay.Stop()
	address := r.addresses[i]
	conn, err := r.link.attempt(r.ctx, address, limit, func() { delay.Stop() })
	lacking, isShortage := errors.AsType[*shortage](err)
	if !isShortage {
		r.stall(address, false)
	}
	switch {
	case err == nil && !r.won.Swap(true):
		r.end()
		r.link.connected(address, conn)
	case err == nil:
		_ = conn.Close()
		r.link.release()
	case r.over():
	case isShortage:
		if r.link.dialer.report(lacking) {
			return true
		}
		r.wait(i)
	case r.failed.Add(1) == int64(len(r.addresses)):
		r.link.report(Connection{Address: address, Err: err})
	default:
		r.begin(i + 1)
	}
	return false
}
