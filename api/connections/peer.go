package connections

import "time"

// peer is the origin of connections: an address or a user, of which [Options.Peer] returns the name.
type peer struct {
	name string
	// Guarded by the mu of the Limiter.
	conns      map[*conn]struct{} // without those that are retired
	candidates []candidate        // as of the Limiter, but of this peer
	searched   time.Time          // when a search last found no candidate
}

// enterPeer adds c to the connections of its peer. At the limit of a peer, it retires the one of the
// same peer that has been idle longest; if there is none, it returns false. It does not wait, so that
// a peer at its limit does not delay the connections of others.
func (l *Limiter) enterPeer(c *conn) bool {
	if l.options.MaxPeer == 0 {
		return true
	}
	name := l.options.Peer(c.Conn)
	if name == "" {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.peers[name]
	if p == nil {
		p = &peer{name: name, conns: make(map[*conn]struct{})}
		l.peers[name] = p
	}
	if len(p.conns) >= l.options.MaxPeer && !l.evictOf(p) {
		l.peerRefused.Add(1)
		return false
	}
	c.peer = p
	p.conns[c] = struct{}{}
	return true
}

// evictOf retires a connection of a peer. If there is none, it does not search again before evictWait
// has passed. It is called under mu.
func (l *Limiter) evictOf(p *peer) bool {
	now := time.Now()
	if !p.searched.IsZero() && now.Sub(p.searched) < evictWait {
		return false
	}
	if !l.evictFrom(&p.candidates, p.conns) {
		p.searched = now
		return false
	}
	l.peerEvicted.Add(1)
	return true
}

// leavePeer removes c from the connections of its peer. It is called under mu.
func (l *Limiter) leavePeer(c *conn) {
	p := c.peer
	if p == nil {
		return
	}
	c.peer = nil
	if delete(p.conns, c); len(p.conns) == 0 {
		delete(l.peers, p.name)
	}
}
