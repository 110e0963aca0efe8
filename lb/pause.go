package lb

import (
	"sync"
	"time"

	"google.golang.org/grpc/connectivity"
)

// pauses has the back-offs of SubConns that wait for an address, by address. One ends
// early when anybody connects to the address. Its methods may be called from any goroutine.
type pauses struct {
	mu  sync.Mutex
	all map[string]map[*pause]struct{}
}

// pause is one back-off of a SubConn. It is fixed once it is in pauses.
type pause struct {
	subConn   *subConn
	addresses []string
	connector tcpConnector // without a Dialer for another Connector
	spent     bool         // it does not end early
	timer     *time.Timer
}

// resumption is why a back-off ends.
type resumption uint8

const (
	afterPause resumption = iota
	afterSuccess
	afterReset
)

// backOff begins a back-off.
func (s *subConn) backOff(d time.Duration) {
	p := &pause{subConn: s, addresses: *s.addresses, spent: s.woken}
	p.timer = time.AfterFunc(d, func() { p.end(afterPause) })
	s.pause = p
	if c, ok := s.connector().(tcpConnector); ok {
		p.connector = c
		c.dialer.pauses.add(p)
	}
}

// end has the owner end the back-off, unless it has ended. Any goroutine may call it.
func (p *pause) end(why resumption) {
	p.subConn.channel.owner.Post(func() { p.subConn.resume(p, why) })
}

// resume leaves TRANSIENT_FAILURE. Of two back-offs in a row, only one ends early because of
// a success elsewhere: an endpoint that accepts connections and closes them would else be
// dialed by two clusters in turn without a pause.
func (s *subConn) resume(p *pause, why resumption) {
	if s.pause != p {
		return
	}
	s.endPause()
	s.woken = why == afterSuccess
	if why == afterReset {
		s.failures = 0
	}
	s.change(connectivity.Idle, nil)
}

// endPause forgets the back-off, if there is one.
func (s *subConn) endPause() {
	p := s.pause
	if p == nil {
		return
	}
	p.timer.Stop()
	if d := p.connector.dialer; d != nil {
		d.pauses.remove(p)
	}
	s.pause = nil
}

func (ps *pauses) add(p *pause) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, a := range p.addresses {
		if ps.all[a] == nil {
			ps.all[a] = make(map[*pause]struct{})
		}
		ps.all[a][p] = struct{}{}
	}
}

func (ps *pauses) remove(p *pause) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, a := range p.addresses {
		if delete(ps.all[a], p); len(ps.all[a]) == 0 {
			delete(ps.all, a)
		}
	}
}

// connected ends the back-offs of SubConns that can connect to an address, because by has.
func (ps *pauses) connected(address string, by *tcpConnector) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for p := range ps.all[address] {
		if !p.spent && by.proves(&p.connector) {
			p.end(afterSuccess)
		}
	}
}

// proves reports whether a connection of c shows that o can connect to the same address.
func (c *tcpConnector) proves(o *tcpConnector) bool {
	return !o.secured() || c.secured() && c.hostname == o.hostname && c.security.Equal(o.security)
}

// Reconnect ends the back-off of all SubConns of a cluster, also below an AGGREGATE of this
// name, as gRPC's ResetConnectBackoff: they connect now, and if that fails, the next
// back-off is the shortest. It returns how many endpoints that concerns.
func (d *Dialer) Reconnect(cluster string) int {
	d.pauses.mu.Lock()
	defer d.pauses.mu.Unlock()
	endpoints := make(map[string]struct{})
	for _, ps := range d.pauses.all {
		for p := range ps {
			if l := p.subConn.link; l.Cluster == cluster || l.Root == cluster {
				endpoints[p.addresses[0]] = struct{}{}
				p.end(afterReset)
			}
		}
	}
	return len(endpoints)
}
