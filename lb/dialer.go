package lb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	// RecheckInterval is how often connect mode tcp checks that a READY endpoint
	// still accepts connections, plus or minus a tenth.
	RecheckInterval = 2 * time.Second
	// RecheckTimeout limits one such check.
	RecheckTimeout = 3 * time.Second
)

// keepAlive detects that the other end of a held connection is gone without notice.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

// NoticeTime returns how long a connect mode can take to notice that an endpoint is
// lost; -1 if it never does.
//
// Mode tcp needs that long for an endpoint that does not answer, and less for one that
// refuses. It needs longer with more endpoints than RechecksPerSecond allows for, or
// if the dials of a cluster that are not answered take all of its slots. Modes
// tcp_hold and tls need that long if a host or the network fails; they notice at once
// when the endpoint closes the connection.
func NoticeTime(mode resource.ConnectMode) time.Duration {
	switch mode {
	case resource.ConnectTCP:
		return RecheckInterval*11/10 + RecheckTimeout
	case resource.ConnectTCPHold, resource.ConnectTLS:
		return keepAlive.Idle + time.Duration(keepAlive.Count)*keepAlive.Interval
	default:
		return -1
	}
}

// Dialer dials for every channel of the process, within its limits. It has a goroutine
// for each dial under way and for each connection held, and none for an endpoint that
// waits.
//
// Endpoints that do not answer do not delay the others for long. Of the dials that may
// be under way (MaxDials, or fewer if the limit on descriptors is low), attempts to
// connect and rechecks can each have three quarters, and one cluster of one channel
// half. If more wait, the clusters of all channels take turns, and within a cluster
// the batches of SubConns that were made together, such as those of one priority. Only
// the first eighth of the dials have ConnectTimeout; the others have BusyTimeout. So
// slots become free within BusyTimeout, and the wait for the first endpoint of a
// cluster, or of a priority to fail over to, depends on the number of clusters and
// batches that wait, not of endpoints. Each address of an endpoint counts as a dial.
type Dialer struct {
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	connect func(ctx context.Context, network, address string) (net.Conn, error)
	slots   *slots

	certificates Certificates
	verdictTime  time.Duration // how long a server that asked for a certificate has to refuse it

	overload *overload.Monitor // may be nil
	maxHeld  int               // of connections, 0 for no limit
	held     atomic.Int64      // connections kept, and attempts to make one under way
}

// NewDialer returns a Dialer without a budget. c may be nil. Close it after its
// channels.
func NewDialer(c Certificates) *Dialer {
	return NewLimitedDialer(c, overload.Budget{Dials: MaxDials}, nil, nil)
}

// NewLimitedDialer returns a Dialer that gets the certificates of clusters' security
// from c, keeps within a budget of descriptors, reports shortages to m, and connects to
// addresses that p permits.
//
// A dial or recheck that fails because of a shortage in lbd changes no endpoint's
// state: it is retried until the endpoint accepts or refuses it.
func NewLimitedDialer(c Certificates, b overload.Budget, m *overload.Monitor, p *Permit) *Dialer {
	d := &Dialer{
		connect: (&net.Dialer{KeepAliveConfig: keepAlive, ControlContext: p.control}).DialContext, slots: newSlots(min(b.Dials, MaxDials)),
		certificates: c, verdictTime: verdictTime, overload: m, maxHeld: b.Held,
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Connectors returns the Connector of each connect mode; the empty mode has that of
// standard.
func (d *Dialer) Connectors(standard resource.ConnectMode) map[resource.ConnectMode]Connector {
	m := map[resource.ConnectMode]Connector{
		resource.ConnectTCP:     tcpConnector{dialer: d},
		resource.ConnectTCPHold: tcpConnector{dialer: d, hold: true},
		resource.ConnectTLS:     tcpConnector{dialer: d, hold: true, tls: true},
		resource.ConnectNone:    nil,
	}
	m[resource.ConnectDefault] = m[standard]
	return m
}

// Close ends every dial and connection and waits for their goroutines.
func (d *Dialer) Close() {
	d.slots.close()
	d.cancel()
	d.slots.wg.Wait()
}

// tcpConnector is connect modes tcp, tcp_hold and tls. An endpoint is connected if it
// accepts a TCP connection and, with a security or in mode tls, a TLS handshake. Mode
// tcp closes the connection at once, so that it occupies no worker of a small server,
// and checks again every RecheckInterval; the others keep it.
type tcpConnector struct {
	dialer   *Dialer
	hold     bool
	tls      bool // even without a security
	group    dialGroup
	root     string             // of the group's cluster
	security *resource.Security // of the cluster; nil for none
	hostname string             // of the endpoint, where TLS goes by it
}

// named returns a connector for an endpoint with that hostname, which TLS may verify.
func (c tcpConnector) named(hostname string) tcpConnector {
	c.hostname = ""
	if c.security == nil && c.tls || c.security != nil && c.security.AutoHostSNI {
		c.hostname = bareHost(hostname)
	}
	return c
}

// dial connects and does the TLS handshake, both within timeout. It calls agreed when
// only the server's verdict on lbd's certificate is missing. The error is a *shortage
// if lbd is the cause.
func (c tcpConnector) dial(ctx context.Context, address string, timeout time.Duration, agreed func()) (net.Conn, error) {
	conn, err := c.connect(ctx, address, timeout, agreed)
	if err == nil {
		return conn, nil
	}
	if r, ok := overload.OfDial(ctx, err, address, c.dialer.connect); ok {
		err = &shortage{resource: r, err: err}
	}
	return nil, err
}

func (c tcpConnector) connect(ctx context.Context, address string, timeout time.Duration, agreed func()) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := c.dialer.connect(ctx, "tcp", address)
	if err != nil || c.security == nil && !c.tls {
		return conn, err
	}
	secured, err := c.handshake(ctx, conn, address, agreed)
	if err == nil {
		return secured, nil
	}
	_ = conn.Close()
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("not done within %v: %w", timeout.Round(time.Millisecond), err)
	}
	return nil, fmt.Errorf("tls handshake with %s: %w", address, err)
}

// handshake does a TLS handshake with the roots and certificates that the providers
// have now. It calls agreed before it waits for the verdict.
func (c tcpConnector) handshake(ctx context.Context, raw net.Conn, address string, agreed func()) (net.Conn, error) {
	h, err := c.newHandshake(address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, h.config())
	start := time.Now()
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, h.explain(err)
	}
	if h.asked && conn.ConnectionState().Version >= tls.VersionTLS13 {
		agreed()
		if err := h.awaitVerdict(ctx, conn, c.hold, time.Since(start)+c.dialer.verdictTime); err != nil {
			return nil, err
		}
	}
	return conn, nil
}

func (c tcpConnector) newHandshake(address string) (*handshake, error) {
	h := &handshake{security: c.security, name: c.hostname}
	s := c.security
	if s == nil {
		if h.name == "" {
			h.name = bareHost(address)
		}
		return h, nil
	}
	if h.name == "" {
		h.name = s.SNI
	}
	var err error
	if !s.SystemRoots {
		h.roots, err = rootsOf(c.dialer.certificates, s.RootInstance)
	}
	if err == nil && s.IdentityInstance != "" {
		h.identity, _, err = provided(c.dialer.certificates, s.IdentityInstance)
	}
	return h, err
}

// Start dials the addresses as pick_first does.
func (c tcpConnector) Start(addresses []string, report func(Connection)) func() {
	l := &tcpLink{tcpConnector: c, report: report}
	l.ctx, l.cancel = context.WithCancel(c.dialer.ctx)
	l.start(addresses)
	return l.stop
}

// tcpLink is one attempt of a tcpConnector, and the connection that results.
type tcpLink struct {
	tcpConnector
	report func(Connection)
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex // guards the rest
	timer   *time.Timer
	stalled map[string]bool // addresses that wait for a shortage toward them
}

func (l *tcpLink) over() bool { return l.ctx.Err() != nil }

func (l *tcpLink) stop() {
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.unstall()
}

func (l *tcpLink) connected(address string, conn net.Conn) {
	if !l.hold {
		_ = conn.Close()
		l.report(Connection{Address: address})
		l.recheckAfter(jitter(RecheckInterval), address)
		return
	}
	l.report(Connection{Address: address})
	if !l.dialer.slots.hold(func() { l.watch(conn) }) {
		_ = conn.Close()
		l.release()
	}
}

// watch reads and discards data until the connection is lost or closed.
func (l *tcpLink) watch(conn net.Conn) {
	unhook := context.AfterFunc(l.ctx, func() { _ = conn.Close() })
	defer unhook()
	defer l.release()
	defer conn.Close() //nolint:errcheck // it is lost already, or given up
	buf := make([]byte, 64)
	for {
		_, err := conn.Read(buf)
		switch {
		case err == nil:
		case l.ctx.Err() != nil:
			return
		case l.dialer.overload.ReportIf(err):
			select {
			case <-l.ctx.Done():
			case <-time.After(overload.Pause(overload.RetryPause)):
			}
		default:
			l.report(Connection{Err: fmt.Errorf("connection lost: %w", err)})
			return
		}
	}
}

// recheckAfter checks after d, or later if the process has too many endpoints to
// check.
func (l *tcpLink) recheckAfter(d time.Duration, address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over() {
		return
	}
	slots, look := l.dialer.slots, dial{run: func(limit time.Duration) bool { return l.recheck(address, limit) }, over: l.over}
	l.timer = time.AfterFunc(d, func() { slots.add(&slots.rechecks, l.group, look, false) })
}

// recheck checks the endpoint. short reports that a shortage in lbd prevented it.
func (l *tcpLink) recheck(address string, limit time.Duration) (short bool) {
	if l.over() {
		return false
	}
	conn, err := l.dial(l.ctx, address, min(limit, RecheckTimeout), func() {})
	lacking, isShortage := errors.AsType[*shortage](err)
	switch {
	case err == nil:
		_ = conn.Close()
		l.recheckAfter(jitter(RecheckInterval), address)
	case l.over():
	case isShortage:
		if l.dialer.report(lacking) {
			return true
		}
		l.recheckAfter(jitter(RecheckInterval), address)
	default:
		l.report(Connection{Err: err})
	}
	return false
}

// jitter changes d by up to a tenth, so that endpoints that connected together are not
// checked together.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()*2-1)*float64(d)/10)
}
