package policy

import (
	"sync/atomic"
	"time"
)

// SharedLimit is the part of a limit of a fleet that this process may use now. One goroutine
// sets it; picks read it. The zero SharedLimit admits nothing.
//
// A held pick takes its request of the breaker with Limit, and then asks Exceeded: if the limit
// became lower in the meantime, either that says so, or the goroutine that set it sees the request
// in flight. Then it calls Ask and Admits, before the lease is granted, and Admits again before
// the response is written.
type SharedLimit struct {
	longest

	share    atomic.Uint32
	bound    atomic.Int64 // time.Duration
	deadline atomic.Int64 // as of clock
	state    atomic.Pointer[ShareState]
}

// ShareState describes the limit of the fleet to those who look at it.
type ShareState struct {
	// Joined: the process has a session in the store of the fleet, and so may have a share.
	Joined bool
	// Limit is the limit in force, of all processes together; 0 until it is known.
	Limit int64
	// Share is how many requests may be in flight in this process.
	Share int64
	// Demand is how many it would like to have in flight.
	Demand int64
	// Spare is how many requests the other processes could leave to this one, because they do not
	// need them.
	Spare int64
}

// Describe sets what State returns. Only the goroutine that calls Set calls it.
func (l *SharedLimit) Describe(s ShareState) {
	if was := l.state.Load(); was == nil || *was != s {
		l.state.Store(&s)
	}
}

// State returns the last that was described.
func (l *SharedLimit) State() ShareState {
	if s := l.state.Load(); s != nil {
		return *s
	}
	return ShareState{}
}

// clockStart is when the clock of deadlines began.
var clockStart = time.Now()

// Clock returns the time of the clock of deadlines, which is never set.
func Clock() time.Duration { return time.Since(clockStart) }

// Set sets how many requests may be in flight, how long a lease may be at most, and the time of
// [Clock] from which nothing is admitted.
func (l *SharedLimit) Set(share uint32, bound, deadline time.Duration) {
	l.share.Store(share)
	l.bound.Store(int64(bound))
	l.deadline.Store(int64(deadline))
}

// Limit is how many requests may be in flight.
func (l *SharedLimit) Limit() uint32 { return l.share.Load() }

// Exceeded reports whether more requests are in flight than the limit permits.
func (l *SharedLimit) Exceeded(inFlight int64) bool { return inFlight > int64(l.share.Load()) }

// Admission is whether a lease may be granted.
type Admission uint8

// The values of an Admission.
const (
	Admitted Admission = iota
	// NotBound means that the lease is longer than other processes know.
	NotBound
	// Isolated means that the deadline has passed.
	Isolated
)

// Admits reports whether a lease may be granted at a time of [Clock].
func (l *SharedLimit) Admits(ttl, now time.Duration) Admission {
	switch {
	case int64(now) >= l.deadline.Load():
		return Isolated
	case int64(ttl) > l.bound.Load():
		return NotBound
	default:
		return Admitted
	}
}
