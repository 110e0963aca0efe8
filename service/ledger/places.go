package ledger

import (
	"iter"
	"sync/atomic"

	"github.com/lbd-dev/lbd/xds/resource"
)

// place is a locality of a priority: where a good pick goes.
type place struct {
	priority int
	locality resource.Locality
}

// places counts the good picks of each place that a config names, and of no
// other. The map is never changed, so that picks read it without a lock.
type places map[place]*atomic.Uint64

// follow returns the places of a newer config, which has these localities. A place that
// both have goes on counting; one that comes back later begins at zero.
func (p places) follow(localities iter.Seq2[int, *resource.LocalityEndpoints]) places {
	next := make(places)
	for priority, l := range localities {
		at := place{priority, l.ID}
		n := p[at]
		if n == nil {
			n = new(atomic.Uint64)
		}
		next[at] = n
	}
	return next
}

// Add counts a pick. One of a picker from before the config, whose place is gone, is not
// counted.
func (p places) Add(priority int, l resource.Locality) {
	if n := p[place{priority, l}]; n != nil {
		n.Add(1)
	}
}

// Count is how many picks went to a place.
func (p places) Count(priority int, l resource.Locality) uint64 {
	if n := p[place{priority, l}]; n != nil {
		return n.Load()
	}
	return 0
}

// Each calls f with every place and how many picks went there.
func (p places) Each(f func(priority int, l resource.Locality, n uint64)) {
	for at, n := range p {
		f(at.priority, at.locality, n.Load())
	}
}

// Total is how many picks went to all places.
func (p places) Total() uint64 {
	sum := uint64(0)
	for _, n := range p {
		sum += n.Load()
	}
	return sum
}
