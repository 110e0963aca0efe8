package lb

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb/probe"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/resource"
)

// keepAlive detects that the other end of a held connection is gone without notice.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

// NoticeTime returns how long a connect mode can take to notice that an endpoint is
// lost; -1 if it never does.
//
// Mode tcp needs that long for an endpoint that has not changed for 5 minutes and does
// not answer. It needs less for one that refuses, and 6.6 s less for a minute after a
// change, see [RecheckInterval]. It needs longer with more endpoints than
// [RechecksPerSecond] allows for, or if the dials of a cluster that are not answered
// take all of its slots. Modes tcp_hold and tls need that long if a host or the network
// fails; they notice at once when the endpoint closes the connection.
func NoticeTime(mode resource.ConnectMode) time.Duration {
	switch mode {
	case resource.ConnectTCP:
		return MaxRecheckInterval*11/10 + RecheckTimeout
	case resource.ConnectTCPHold, resource.ConnectTLS:
		return keepAlive.Idle + time.Duration(keepAlive.Count)*keepAlive.Interval
	default:
		return -1
	}
}

// Dialer dials for every channel of the process, within its limits. It has a goroutine
// for each attempt under way, and none for an endpoint that waits. Rechecks and held
// connections without TLS need none on Linux, see package probe.
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

	rechecks *rechecks
	pauses   pauses
	probing  sync.Mutex // guards poller
	poller   prober     // nil until it is needed

	permit       *Permit
	certificates Certificates
	verdictTime  time.Duration // how long a server that asked for a certificate has to refuse it

	overload *overload.Monitor // may be nil
	maxHeld  int               // of connections, 0 for no limit
	held     atomic.Int64      // connections kept, and attempts to make one under way
}

// NewDialer returns a Dialer that gets the certificates of clusters' security from c, which
// may be nil, keeps within a budget of descriptors, whose zero values are no limits, reports
// shortages to m, and connects to addresses that p permits. Close it after its channels.
//
// A dial or recheck that fails because of a shortage in lbd changes no endpoint's
// state: it is retried until the endpoint accepts or refuses it.
func NewDialer(c Certificates, b overload.Budget, m *overload.Monitor, p *Permit) *Dialer {
	d := &Dialer{
		connect: (&net.Dialer{KeepAliveConfig: keepAlive, ControlContext: p.control}).DialContext, slots: newSlots(min(cmp.Or(b.Dials, MaxDials), MaxDials)),
		certificates: c, verdictTime: verdictTime, overload: m, permit: p, maxHeld: b.Held,
		pauses: pauses{all: make(map[string]map[*pause]struct{})},
	}
	d.rechecks = &rechecks{
		dialer: d, epoch: time.Now(), all: make(map[recheckKey]*recheck), current: 1,
		lostClusters: make(map[dialGroup]struct{}), lostHosts: make(map[string]struct{}),
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

// ReportedChecks returns how many checks of endpoints reports of callers have caused.
func (d *Dialer) ReportedChecks() uint64 { return d.rechecks.reported.Load() }

// Close ends every dial and connection and waits for their goroutines.
func (d *Dialer) Close() {
	d.slots.close()
	d.cancel()
	d.rechecks.close()
	d.probing.Lock()
	p := d.poller
	d.probing.Unlock()
	if p != nil {
		p.Close()
	}
	d.slots.wg.Wait()
}

// prober returns nil if there is none on this system, or for now, for lack of a
// descriptor: then probes are dials, in a goroutine each, and so are the reads of held
// connections.
func (d *Dialer) prober() prober {
	d.probing.Lock()
	defer d.probing.Unlock()
	if d.poller == nil && d.ctx.Err() == nil {
		p, err := probe.NewPoller(d.permit.Check)
		if err != nil {
			return nil
		}
		d.poller = p
	}
	return d.poller
}

// Reconnect ends the back-off of all SubConns of a cluster, also below an AGGREGATE of this
// name, as gRPC's ResetConnectBackoff: they connect now, and if that fails, the next
// back-off is the shortest. It returns how many endpoints that concerns.
func (d *Dialer) Reconnect(cluster string) int { return d.pauses.reset(cluster) }

// tcpConnector is connect modes tcp, tcp_hold and tls. An endpoint is connected if it
// accepts a TCP connection and, with a security or in mode tls, a TLS handshake. Mode
// tcp closes the connection at once, so that it occupies no worker of a small server,
// and checks again, see RecheckInterval; the others keep it.
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

// secured reports whether there is a TLS handshake.
func (c *tcpConnector) secured() bool { return c.security != nil || c.tls }

// proof is what a connection shows.
func (c *tcpConnector) proof() proof {
	return proof{secured: c.secured(), hostname: c.hostname, security: c.security}
}

// dial connects and does the TLS handshake, both within timeout. It calls agreed when
// only the server's verdict on lbd's certificate is missing. The error is a *shortage
// if lbd is the cause.
func (c tcpConnector) dial(ctx context.Context, address string, timeout time.Duration, agreed func()) (net.Conn, error) {
	conn, err := c.connect(ctx, address, timeout, agreed)
	if err == nil {
		c.dialer.pauses.connected(address, c.proof())
		return conn, nil
	}
	return nil, c.dialer.classify(ctx, err, address)
}

func (c tcpConnector) connect(ctx context.Context, address string, timeout time.Duration, agreed func()) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := c.dialer.connect(ctx, "tcp", address)
	if err != nil || !c.secured() {
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
		h.name = cmp.Or(h.name, bareHost(address))
		return h, nil
	}
	h.name = cmp.Or(h.name, s.SNI)
	var err error
	if !s.SystemRoots {
		h.roots, err = rootsOf(c.dialer.certificates, s.RootInstance)
	}
	if err == nil && s.IdentityInstance != "" {
		h.identity, _, err = provided(c.dialer.certificates, s.IdentityInstance)
	}
	return h, err
}
