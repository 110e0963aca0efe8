package parity_test

import (
	"fmt"
	"net"
	"strconv"
	"sync"

	"google.golang.org/grpc"
)

// upstreams is a scenario's own host in the loopback network: a stopped upstream's address
// stays closed until it is started again.
type upstreams struct {
	server *grpc.Server
	host   string
	claim  net.Listener

	all []*upstream
}

// claimPort is the port that reserves a host. It and those of upstreams are below the
// ephemeral ports.
const claimPort = 20000

// claimHost reserves a host that no other scenario of this machine uses.
func claimHost(server *grpc.Server, n int) (*upstreams, error) {
	for i := n; i < n+1<<16; i++ {
		host := fmt.Sprintf("127.%d.%d.%d", 64+i>>16&63, i>>8&255, i&255)
		claim, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, claimPort))
		if err == nil {
			return &upstreams{server: server, host: host, claim: claim}, nil
		}
	}
	return nil, fmt.Errorf("every loopback host from the %dth on is taken", n)
}

// add creates an upstream, which is not started.
func (us *upstreams) add() *upstream {
	u := &upstream{
		server:  us.server,
		name:    fmt.Sprintf("u%d", len(us.all)),
		address: fmt.Sprintf("%s:%d", us.host, claimPort+1+len(us.all)),
	}
	us.all = append(us.all, u)
	return u
}

// named returns the name of the upstream at an address.
func (us *upstreams) named(address string) string {
	for _, u := range us.all {
		if u.address == address {
			return u.name
		}
	}
	return address
}

// up has the addresses that accept connections.
func (us *upstreams) up() map[string]bool {
	m := make(map[string]bool, len(us.all))
	for _, u := range us.all {
		m[u.address] = u.listener != nil
	}
	return m
}

// settle starts and stops upstreams as wanted. It closes all listeners before any
// connection, so that a lost connection is not made again to another address that is about
// to stop. mixed reports that some started and others stopped: the connections made
// meanwhile depend on the order.
func (us *upstreams) settle() (mixed bool, err error) {
	started := false
	for _, u := range us.all {
		if u.want && u.listener == nil {
			started = true
			if err := u.start(); err != nil {
				return false, err
			}
		}
	}
	stopping := us.stopping()
	for _, u := range stopping {
		_ = u.listener.Close()
	}
	for _, u := range stopping {
		u.stop()
	}
	return started && len(stopping) > 0, nil
}

// stopping lists the upstreams that settle will stop.
func (us *upstreams) stopping() []*upstream {
	var out []*upstream
	for _, u := range us.all {
		if !u.want && u.listener != nil {
			out = append(out, u)
		}
	}
	return out
}

// call is a connection's two addresses.
type call struct{ from, to string }

// connections counts the connections since the last call by address: those of ours, and
// the others.
func (us *upstreams) connections(ours func(call) bool) (own, others map[string]int) {
	own, others = make(map[string]int), make(map[string]int)
	for _, u := range us.all {
		for _, caller := range u.takeCallers() {
			if ours(call{caller, u.address}) {
				own[u.address]++
			} else {
				others[u.address]++
			}
		}
	}
	return own, others
}

func (us *upstreams) close() {
	for _, u := range us.all {
		u.stop()
	}
	_ = us.claim.Close()
}

// upstream is one address, where a gRPC server listens while it is started.
type upstream struct {
	server  *grpc.Server
	name    string
	address string

	want     bool      // it listens after the step
	listener *listener // nil while stopped

	mu      sync.Mutex
	callers []string // addresses of the clients
}

// takeCallers returns the clients that connected since the last call.
func (u *upstream) takeCallers() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	callers := u.callers
	u.callers = nil
	return callers
}

func (u *upstream) host() string {
	host, _, _ := net.SplitHostPort(u.address)
	return host
}

func (u *upstream) port() uint32 {
	_, text, _ := net.SplitHostPort(u.address)
	port, _ := strconv.ParseUint(text, 10, 16)
	return uint32(port)
}

func (u *upstream) start() error {
	l, err := net.Listen("tcp", u.address)
	if err != nil {
		return err
	}
	u.listener = &listener{Listener: l, of: u, conns: make(map[*conn]bool)}
	served := u.listener
	go func() { _ = u.server.Serve(served) }() // ends with the listener
	return nil
}

// stop closes the listener and every connection.
func (u *upstream) stop() {
	if u.listener == nil {
		return
	}
	u.listener.kill()
	u.listener = nil
}

// listener tracks its connections. Close leaves them open: the gRPC server calls it as soon
// as Accept fails.
type listener struct {
	net.Listener
	of *upstream

	mu     sync.Mutex
	conns  map[*conn]bool
	killed bool
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.of.mu.Lock()
	l.of.callers = append(l.of.callers, c.RemoteAddr().String())
	l.of.mu.Unlock()
	own := &conn{Conn: c, of: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.killed {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	l.conns[own] = true
	return own, nil
}

// kill closes the listener and its connections.
func (l *listener) kill() {
	_ = l.Close() // may be the second time
	l.mu.Lock()
	defer l.mu.Unlock()
	l.killed = true
	for c := range l.conns {
		_ = c.Conn.Close()
	}
}

type conn struct {
	net.Conn
	of *listener
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
