package lb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	// MaxDials is how many dials the process has under way at a time.
	MaxDials = 256
	// ConnectTimeout is how long an endpoint's connection attempt may take,
	// all of its addresses together. Each has its part of what is left of it, so
	// that one that does not answer leaves time for the next.
	ConnectTimeout = 20 * time.Second
	// RecheckInterval is how often connect mode tcp looks whether a READY
	// endpoint still accepts connections, give or take a tenth.
	RecheckInterval = 2 * time.Second
	// RecheckTimeout is how long such a look may take.
	RecheckTimeout = 3 * time.Second
	// RechecksPerSecond bounds those looks for the whole process; with more
	// endpoints than it allows for, the interval grows.
	RechecksPerSecond = 2000
)

// NoticeTime is how long a connect mode can take to notice that an endpoint is
// lost, as long as RechecksPerSecond is not reached; 0 is at once, and -1 is
// never: the mode takes every endpoint as connected.
func NoticeTime(mode resource.ConnectMode) time.Duration {
	switch mode {
	case resource.ConnectTCP:
		return RecheckInterval*11/10 + RecheckTimeout
	case resource.ConnectTCPHold:
		return 0
	default:
		return -1
	}
}

// Dialer dials for every channel of the process, within its limits. It has a
// goroutine for each dial under way and for each connection held, and none for
// an endpoint that only waits.
type Dialer struct {
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	connect  func(ctx context.Context, network, address string) (net.Conn, error)
	rechecks *rate.Limiter
	wg       sync.WaitGroup

	mu      sync.Mutex
	queue   []func()
	workers int
	closed  bool
}

// NewDialer returns a Dialer. It has to be closed, after its channels.
func NewDialer() *Dialer {
	d := &Dialer{
		connect:  new(net.Dialer).DialContext,
		rechecks: rate.NewLimiter(RechecksPerSecond, RechecksPerSecond/10),
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Connectors returns the Connector of each connect mode; standard is what the
// empty mode stands for.
func (d *Dialer) Connectors(standard resource.ConnectMode) map[resource.ConnectMode]Connector {
	m := map[resource.ConnectMode]Connector{
		resource.ConnectTCP:     tcpConnector{d, false},
		resource.ConnectTCPHold: tcpConnector{d, true},
		resource.ConnectNone:    nil,
	}
	m[resource.ConnectDefault] = m[standard]
	return m
}

// Close ends every dial and connection and waits for their goroutines.
func (d *Dialer) Close() {
	d.mu.Lock()
	d.closed = true
	d.queue = nil
	d.mu.Unlock()
	d.cancel()
	d.wg.Wait()
}

// run lets f run as soon as fewer than MaxDials are under way, in order.
func (d *Dialer) run(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	d.queue = append(d.queue, f)
	if d.workers < MaxDials {
		d.workers++
		d.wg.Go(d.work)
	}
}

func (d *Dialer) work() {
	for {
		d.mu.Lock()
		if len(d.queue) == 0 {
			d.workers--
			d.mu.Unlock()
			return
		}
		f := d.queue[0]
		d.queue[0] = nil
		d.queue = d.queue[1:]
		d.mu.Unlock()
		f()
	}
}

// hold lets f run in a goroutine of its own, unless the Dialer is closed.
func (d *Dialer) hold(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.wg.Go(f)
	return true
}

// dial tries the addresses in order, as pick_first does, for ConnectTimeout at
// most.
func (d *Dialer) dial(ctx context.Context, addresses []string) (net.Conn, string, error) {
	deadline := time.Now().Add(ConnectTimeout)
	var errs []error
	for i, a := range addresses {
		part := time.Until(deadline) / time.Duration(len(addresses)-i)
		conn, err := d.dialOne(ctx, a, part)
		if err == nil {
			return conn, a, nil
		}
		errs = append(errs, err)
	}
	return nil, "", errors.Join(errs...)
}

func (d *Dialer) dialOne(ctx context.Context, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return d.connect(ctx, "tcp", address)
}

// tcpConnector is connect modes tcp and tcp_hold: an endpoint is connected
// where it accepts a TCP connection. tcp closes the connection at once, so that
// no worker of a small server is taken, and looks again every RecheckInterval;
// tcp_hold keeps it.
type tcpConnector struct {
	dialer *Dialer
	hold   bool
}

// Start dials the addresses in order.
func (c tcpConnector) Start(addresses []string, report func(Connection)) func() {
	l := &tcpLink{dialer: c.dialer, report: report}
	l.ctx, l.cancel = context.WithCancel(c.dialer.ctx)
	c.dialer.run(func() { l.connect(addresses, c.hold) })
	return l.stop
}

// tcpLink is one attempt of a tcpConnector, and what comes of it.
type tcpLink struct {
	dialer *Dialer
	report func(Connection)
	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex // guards timer against stop
	timer *time.Timer
}

func (l *tcpLink) stop() {
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
}

func (l *tcpLink) connect(addresses []string, hold bool) {
	if l.ctx.Err() != nil {
		return
	}
	conn, address, err := l.dialer.dial(l.ctx, addresses)
	if err != nil {
		l.report(Connection{Err: err})
		return
	}
	if !hold {
		_ = conn.Close()
		l.report(Connection{Address: address})
		l.recheckAfter(jitter(RecheckInterval), address)
		return
	}
	l.report(Connection{Address: address})
	if !l.dialer.hold(func() { l.watch(conn) }) {
		_ = conn.Close()
	}
}

// watch reads the connection until it is lost or no longer wanted. What the
// endpoint sends is thrown away.
func (l *tcpLink) watch(conn net.Conn) {
	unhook := context.AfterFunc(l.ctx, func() { _ = conn.Close() })
	defer unhook()
	defer conn.Close() //nolint:errcheck // it is lost already, or given up
	buf := make([]byte, 64)
	for {
		if _, err := conn.Read(buf); err != nil {
			if l.ctx.Err() == nil {
				l.report(Connection{Err: fmt.Errorf("connection lost: %w", err)})
			}
			return
		}
	}
}

// recheckAfter looks after d, or later if the process has too many to look at.
func (l *tcpLink) recheckAfter(d time.Duration, address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return
	}
	l.timer = time.AfterFunc(d+l.dialer.rechecks.Reserve().DelayFrom(time.Now().Add(d)), func() {
		l.dialer.run(func() { l.recheck(address) })
	})
}

func (l *tcpLink) recheck(address string) {
	if l.ctx.Err() != nil {
		return
	}
	conn, err := l.dialer.dialOne(l.ctx, address, RecheckTimeout)
	if err != nil {
		if l.ctx.Err() == nil {
			l.report(Connection{Err: err})
		}
		return
	}
	_ = conn.Close()
	l.recheckAfter(jitter(RecheckInterval), address)
}

// jitter moves d by up to a tenth, so that endpoints that came up together are
// not looked at together.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()*2-1)*float64(d)/10)
}
