package connections

import (
	"errors"
	"net"
	"slices"
	"syscall"
	"time"
)

// Conn is an admitted connection, for a server that does not call Read and Write, and has no ConnState
// hook.
type Conn interface {
	net.Conn
	// Idle marks the connection as idle: it has no request. now is the current time.
	Idle(now time.Time)
	// Blocked marks the connection as one whose caller has not read all of a response. It is called
	// again for each part that the caller has read, and Idle after the last one.
	Blocked(now time.Time)
	// Active marks the connection as one with a request that is being answered.
	Active()
	// Receiving marks the connection as one that waits for the rest of a request since now.
	Receiving(now time.Time)
}

// Detacher is a connection that belongs to an event loop. After Detach, it is one of Go's.
type Detacher interface{ Detach() error }

// Admit admits a new connection if there is room. Otherwise it closes the connection, after a response,
// and both results are nil; or another connection must be closed first, and wait waits for that, as
// Accept does. wait returns nil if the connection was rejected.
func (l *Limiter) Admit(inner net.Conn) (admitted Conn, wait func() Conn) {
	c := &conn{Conn: inner, limiter: l}
	c.idle.Store(l.now())
	if !l.enterPeer(c) {
		l.options.PeerFull(l.options.Peer(inner))
		l.refuse(inner, peerRefusal)
		return nil, nil
	}
	if room, _ := l.enter(c); room {
		l.full.Store(false)
		return c, nil
	}
	return nil, func() Conn {
		if l.admit(c) {
			return c
		}
		l.mu.Lock()
		l.leavePeer(c) // it was not admitted
		l.mu.Unlock()
		l.refused.Add(1)
		l.options.Full()
		l.refuse(inner, fullRefusal)
		return nil
	}
}

// Recover waits for a moment after an error of accept, or of watching a listener, and frees a descriptor
// after a shortage. It reports false for an error of the listener itself, which every later call would
// have, too.
func (l *Limiter) Recover(err error) bool {
	switch {
	case l.options.Lacking(err):
		l.evict()
	case isPermanent(err):
		return false
	case l.options.AcceptFailed != nil:
		l.options.AcceptFailed(err)
	}
	time.Sleep(acceptPause)
	return true
}

// isPermanent reports whether an error is that of a listener which is closed or invalid. Other errors of
// the system are those of one connection, such as EPERM of a firewall.
func isPermanent(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return !ok || slices.Contains([]syscall.Errno{syscall.EBADF, syscall.EFAULT, syscall.EINVAL, syscall.ENOTSOCK, syscall.EOPNOTSUPP}, errno)
}

// Report reports an error that ended a connection, and may be a shortage.
func (l *Limiter) Report(err error) { l.options.Lacking(err) }

// Idle implements [Conn].
func (c *conn) Idle(now time.Time) {
	c.writing.Store(0)
	c.idle.Store(int64(now.Sub(c.limiter.start)) + 1)
	if c.limiter.waiting.Load() > 0 && !c.retired.Load() { // a retired connection closes now
		c.limiter.wake()
	}
}

// Active implements [Conn].
func (c *conn) Active() {
	c.idle.Store(0)
	c.writing.Store(0)
}

// Receiving implements [Conn].
func (c *conn) Receiving(now time.Time) {
	c.writing.Store(0)
	c.idle.Store(-int64(now.Sub(c.limiter.start)) - 1)
}

// Blocked implements [Conn].
func (c *conn) Blocked(now time.Time) {
	c.idle.Store(0)
	c.writing.Store(int64(now.Sub(c.limiter.start)) + 1)
}
