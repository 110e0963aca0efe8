package parity_test

import (
	"context"
	"fmt"
	"slices"
)

// kind is the kind of a pick's result.
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

// reply is the result of one pick. done ends the request.
type reply struct {
	kind    kind
	address string
	done    func()
	picker  int64           // identifies the picker
	ctx     context.Context // of a call of grpc-go, as its picker gets it
}

// hashes is the number of different request hashes.
const hashes = 32

// hashText is the text of the nth hash.
func hashText(n int) string { return fmt.Sprintf("request %d", n%hashes) }

// side is one of the two that are compared.
type side interface {
	name() string
	// pick picks once, without waiting, with the nth hash.
	pick(n int) reply
	close()
}

// poll has the results of many picks of one side.
type poll struct {
	picks   int
	kinds   map[kind]int
	counts  map[string]int         // by address
	byHash  [hashes]map[string]int // the same, by hash
	pickers int                    // the number of pickers that answered
	granted int                    // the number of requests in flight when picks were refused
}

// picks is the number of picks of a poll.
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

// touch picks once with each hash, so that the endpoints of lazy policies connect. The
// error is that a pick waits.
func touch(s side) (err error) {
	for i := range hashes {
		switch r := s.pick(i); r.kind {
		case picked:
			r.done()
		case queued:
			err = errChanging
		}
	}
	return err
}

// hold starts requests until the circuit breaker refuses one.
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

// failures returns the kinds except picked and dropped.
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

// among sums counts of addresses by endpoint.
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
