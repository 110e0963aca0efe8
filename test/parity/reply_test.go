package parity_test

import (
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
)

// reply is one pick's answer. done gives back what a picked one holds.
type reply struct {
	kind    kind
	address string
	done    func()
	// picker tells the picker that answered from others.
	picker int64
}

// side is either of the two that are compared.
type side interface {
	name() string
	// pick picks once, at once.
	pick() reply
	// connected counts the connections made since the last call, by address.
	connected() map[string]int
	close()
}

// poll is what many picks of one side came to.
type poll struct {
	picks   int
	kinds   map[kind]int
	counts  map[string]int // by address
	pickers int            // that answered
	granted int            // of picks that are held, until some were refused
}

// picks is how many picks a poll takes.
const picks = 10_000

func take(s side) *poll {
	p := &poll{picks: picks, kinds: make(map[kind]int), counts: make(map[string]int)}
	var last int64
	for range picks {
		r := s.pick()
		p.kinds[r.kind]++
		if r.kind == picked {
			p.counts[r.address]++
			r.done()
		}
		if p.pickers == 0 || r.picker != last {
			p.pickers, last = p.pickers+1, r.picker
		}
	}
	return p
}

// hold picks without giving back until one is broken; dropped ones are not
// counted.
func (p *poll) hold(s side, limit int) {
	var held []func()
	for tries := 0; tries < 100*(limit+10) && len(held) < limit+10; tries++ {
		r := s.pick()
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
