package service

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

// follow returns the places of a newer config. A place that both name goes on
// counting; one that comes back later begins at zero.
func (p places) follow(config *resource.Config, cluster string) places {
	next := make(places)
	for priority, l := range localities(config, cluster) {
		at := place{priority, l.ID}
		n := p[at]
		if n == nil {
			n = new(atomic.Uint64)
		}
		next[at] = n
	}
	return next
}

// add counts a pick. A picker from before the config may pick from a place that
// is gone: nobody asks for that one any more.
func (p places) add(at place) {
	if n := p[at]; n != nil {
		n.Add(1)
	}
}

// count is how many picks went to a place.
func (p places) count(at place) uint64 {
	if n := p[at]; n != nil {
		return n.Load()
	}
	return 0
}

// total is how many picks went to all places.
func (p places) total() uint64 {
	sum := uint64(0)
	for _, n := range p {
		sum += n.Load()
	}
	return sum
}

// localities yields the localities that a cluster comes down to, with their
// priorities in it. An aggregate has those of its leaves in a row, each leaf one
// at least (gRFC A37).
func localities(config *resource.Config, cluster string) iter.Seq2[int, *resource.LocalityEndpoints] {
	return func(yield func(int, *resource.LocalityEndpoints) bool) {
		first := 0
		for _, cc := range config.Leaves(cluster) {
			last := first
			if cc.Assignment != nil {
				for _, l := range cc.Assignment.Localities {
					priority := first + int(l.Priority)
					last = max(last, priority)
					if !yield(priority, l) {
						return
					}
				}
			}
			first = last + 1
		}
	}
}
