package parity_test

import (
	"fmt"
	"slices"
)

// kind is what a pick came to.
type kind string

const (
	picked  kind = "picked"
	queued  kind = "queued"
	dropped kind = "UNAVAILABLE: dropped"
	broken  kind = "UNAVAILABLE: max requests"
	refused kind = "not ready: connection refused"
	none    kind = "not ready: no endpoints"

	noRoute     kind = "UNAVAILABLE: no route"
	unsupported kind = "UNAVAILABLE: a route that cannot be followed"
	noListener  kind = "UNAVAILABLE: no Listener"
	badTarget   kind = "UNAVAILABLE: Listener or routes refused"
	noRoutes    kind = "UNAVAILABLE: no RouteConfiguration"
	noHost      kind = "UNAVAILABLE: no virtual host"
	noCluster   kind = "UNAVAILABLE: no Cluster"
	badCluster  kind = "UNAVAILABLE: Cluster refused"
	noLeaf      kind = "UNAVAILABLE: an aggregate without leaves"
)

// reply is one pick's answer. done gives back what a picked one holds.
type reply struct {
	kind    kind
	address string
	done    func()
	// picker tells the picker that answered from others.
	picker int64
}

// hashes is how many hashes requests have: each pick bears one of them.
const hashes = 32

// hashText is what the nth hash is the hash of.
func hashText(n int) string { return fmt.Sprintf("request %d", n%hashes) }

// side is either of the two that are compared.
type side interface {
	name() string
	// pick picks once, at once, with the nth hash.
	pick(n int) reply
	close()
}

// poll is what many picks of one side came to.
type poll struct {
	picks   int
	kinds   map[kind]int
	counts  map[string]int         // by address
	byHash  [hashes]map[string]int // the same, by hash
	pickers int                    // that answered
	granted int                    // of picks that are held, until some were refused
}

// picks is how many picks a poll takes.
const picks = 10_000

func take(s side) *poll {
	p := &poll{picks: picks, kinds: make(map[kind]int), counts: make(map[string]int)}
	for i := range p.byHash {
		p.byHash[i] = make(map[string]int)
	}
	var last int64
	for i := range picks {
		r := s.pick(i)
		p.kinds[r.kind]++
		if r.kind == picked {
			p.counts[r.address]++
			p.byHash[i%hashes][r.address]++
			r.done()
		}
		if p.pickers == 0 || r.picker != last {
			p.pickers, last = p.pickers+1, r.picker
		}
	}
	return p
}

// touch picks once with each hash, and reports whether no pick has to wait: an
// endpoint that a hash falls on is connected to by that.
func touch(s side) bool {
	waits := false
	for i := range hashes {
		r := s.pick(i)
		if r.kind == picked {
			r.done()
		}
		waits = waits || r.kind == queued
	}
	return !waits
}

// hold picks without giving back until one is broken; dropped ones are not
// counted.
func (p *poll) hold(s side, limit int) {
	var held []func()
	for tries := 0; tries < 100*(limit+10) && len(held) < limit+10; tries++ {
		r := s.pick(tries)
		if r.kind == picked {
			held = append(held, r.done)
		} else if r.kind != dropped {
			break
		}
	}
	p.granted = len(held)
	for _, done := range held {
		done()
	}
}

// failures are the kinds but picked and dropped.
func (p *poll) failures() []string {
	var out []string
	for k := range p.kinds {
		if k != picked && k != dropped {
			out = append(out, string(k))
		}
	}
	slices.Sort(out)
	return out
}

// among sums counts by address, by endpoint.
func among(counts map[string]int, keys map[string]string) map[string]int {
	out := make(map[string]int)
	for address, n := range counts {
		key := keys[address]
		if key == "" {
			key = address
		}
		out[key] += n
	}
	return out
}
