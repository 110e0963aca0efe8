package lb

import (
	"sync"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// pauses has the back-offs of SubConns that wait for an address, by address. One ends
// early when anybody connects to the address. Its methods may be called from any goroutine.
type pauses struct {
	mu  sync.Mutex
	all map[string]map[*pause]struct{}
}

// pause is one back-off of a SubConn. It is fixed.
type pause struct {
	addresses     []string
	cluster, root string // of the SubConn's link
	needs         proof
	spent         bool // it does not end early
	began         time.Time
	timer         *time.Timer
	// end has the owner end the back-off, unless it has ended. Any goroutine may call it.
	end func(why resumption)
}

// resumption is why a back-off ends.
type resumption uint8

const (
	afterPause resumption = iota
	afterSuccess
	afterReset
)

// proof is what a connection shows beside that the address accepts it.
type proof struct {
	secured  bool // with a TLS handshake
	hostname string
	security *resource.Security
}

// covers reports whether a connection that shows p can also be made where o is needed.
func (p *proof) covers(o *proof) bool {
	return !o.secured || p.secured && p.hostname == o.hostname && p.security.Equal(o.security)
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

// connected ends the back-offs of SubConns that can connect to an address as well.
func (ps *pauses) connected(address string, by proof) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for p := range ps.all[address] {
		if !p.spent && by.covers(&p.needs) {
			p.end(afterSuccess)
		}
	}
}

// minPause is the time that a back-off lasts, at least: it ends early, but not at once.
const minPause = time.Second

// reset ends all back-offs in a cluster, and returns how many endpoints that concerns.
func (ps *pauses) reset(cluster string) int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	endpoints := make(map[string]struct{})
	for _, waiting := range ps.all {
		for p := range waiting {
			if (p.cluster == cluster || p.root == cluster) && time.Since(p.began) >= minPause {
				endpoints[p.addresses[0]] = struct{}{}
				p.end(afterReset)
			}
		}
	}
	return len(endpoints)
}
