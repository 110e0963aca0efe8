package policy

import "sync/atomic"

// Place counts picks in one locality of one priority, for a caller that stores it in
// [Upstream.Place], so that a pick finds it without a search. Any goroutine may call its
// methods.
type Place struct {
	Priority int // fixed

	n atomic.Uint64 // or closed
}

// closed is the bit of a Place that counts no more.
const closed = 1 << 63

// NewPlace returns a Place without picks.
func NewPlace(priority int) *Place { return &Place{Priority: priority} }

// Add counts a pick. It reports false if the Place is closed.
func (p *Place) Add() bool { return p.n.Add(1)&closed == 0 }

// Count returns how many picks were counted; none of a Place that is closed.
func (p *Place) Count() uint64 {
	if n := p.n.Load(); n&closed == 0 {
		return n
	}
	return 0
}

// Close makes the Place count no more, and returns how many picks it has counted. It is
// called once.
func (p *Place) Close() uint64 { return p.n.Or(closed) }
