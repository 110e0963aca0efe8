package lb

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/overload"
)

// Start dials the addresses as pick_first does.
func (c tcpConnector) Start(addresses []string, report func(Connection)) func() {
	l := &tcpLink{tcpConnector: c, report: report}
	l.start(addresses)
	return l.stop
}

// tcpLink is one attempt of a tcpConnector, and the connection that results.
type tcpLink struct {
	tcpConnector
	report func(Connection)

	mu      sync.Mutex // guards the next fields
	stopped bool
	cancel  context.CancelFunc // of the attempt, or of the connection held; nil for neither
	stalled map[string]bool    // addresses that wait for a shortage toward them

	// Guarded by rechecks.mu.
	left          bool     // it takes part in no check from now on
	recheck       *recheck // in mode tcp once it is connected
	before, after *tcpLink // of the same check
	round         uint32   // the last check of the address that began before the link was connected
}

func (l *tcpLink) stop() {
	l.mu.Lock()
	l.stopped = true
	if l.cancel != nil {
		l.cancel()
	}
	l.unstall()
	l.mu.Unlock()
	l.dialer.rechecks.leave(l)
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
	ctx := l.begin()
	l.report(Connection{Address: address})
	if !l.dialer.slots.hold(func() { l.watch(ctx, conn) }) {
		_ = conn.Close()
		l.release()
	}
}

// watch reads and discards data until the connection is lost or closed.
func (l *tcpLink) watch(ctx context.Context, conn net.Conn) {
	unhook := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer unhook()
	defer l.release()
	defer conn.Close() //nolint:errcheck // it is lost already, or given up
	buf := make([]byte, 64)
	for {
		_, err := conn.Read(buf)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return
		case l.dialer.overload.ReportIf(err):
			select {
			case <-ctx.Done():
			case <-time.After(overload.Pause(overload.RetryPause)):
			}
		default:
			l.report(Connection{Err: fmt.Errorf("connection lost: %w", err)})
			return
		}
	}
}
