package lbdclient

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// answered is lbd's answer to a pick with n.
type answered struct {
	Generation    int64          `json:"generation"`
	Picks         []Choice       `json:"picks"`
	Dropped       map[string]int `json:"dropped"`
	CircuitBroken int            `json:"circuit_broken"`
}

func (a *answered) isComplete() bool {
	return a.Generation != 0 && len(a.Picks)+len(a.Dropped)+a.CircuitBroken > 0
}

// element of a batch: an endpoint, or the refusal of a request.
type element struct {
	address string
	choice  *Choice
	counts  *counts // of the cluster
	count   *count
	refusal *Error
}

// batch has the picks of one answer of lbd, shuffled. Requests take them in turn.
type batch struct {
	generation int64 // that of the cluster; 0 if lbd refused all picks, because then it does not say
	query      string
	cluster    string // of the first pick
	made       time.Duration
	until      time.Duration // when lbd is asked again
	elements   []element
	endpoints  int // distinct addresses
	turn       atomic.Uint64
}

// batchOf returns the batch in an answer.
func (c *cluster) batchOf(query string, a answered) (*batch, error) {
	at := now()
	b := &batch{generation: a.Generation, query: query, made: at, until: at + spread(c.client.config.MaxAge)}
	distinct := map[string]bool{}
	for i := range a.Picks {
		pick, counts := &a.Picks[i], &c.counts
		if pick.Address == "" || pick.Cluster == "" && c.target != "" {
			return nil, errors.New("the answer has a pick without an address or a cluster")
		}
		if pick.Cluster = cmp.Or(pick.Cluster, c.name); c.target != "" {
			chosen, err := c.client.cluster(pick.Cluster)
			if err != nil {
				return nil, err
			}
			counts = &chosen.counts
		}
		b.cluster = pick.Cluster
		distinct[pick.Address] = true
		b.elements = append(b.elements, element{address: pick.Address, choice: pick, counts: counts, count: counts.of(pick.Address)})
	}
	for category, n := range a.Dropped {
		b.refuse(problem{Code: "dropped", Category: category}.error(c.name, 0, 0), n)
	}
	b.refuse(problem{Code: "circuit_broken", Detail: "the circuit breaker is full"}.error(c.name, 0, 0), a.CircuitBroken)
	b.endpoints = len(distinct)
	if len(b.elements) == 0 {
		return nil, errors.New("the answer is not a batch of picks")
	}
	rand.Shuffle(len(b.elements), func(i, j int) { b.elements[i], b.elements[j] = b.elements[j], b.elements[i] })
	return b, nil
}

// refusedBatch is a batch of nothing but a refusal: lbd refused each pick.
func refusedBatch(query string, refusal *Error, maxAge time.Duration) *batch {
	at := now()
	return &batch{query: query, made: at, until: at + min(refusedAge, maxAge), elements: []element{{refusal: refusal}}}
}

func (b *batch) refuse(refusal *Error, n int) {
	for range min(n, maxBatch) {
		b.elements = append(b.elements, element{refusal: refusal})
	}
}

// take returns the next element whose address is not set aside: of the others, each keeps its share. One that accept does
// not permit is returned, but is no trial.
func (b *batch) take(avoided *asides, at time.Duration, accept func(address string) bool) *element {
	for range 2 * len(b.elements) { // other requests take some
		e := &b.elements[b.turn.Add(1)%uint64(len(b.elements))]
		if e.refusal != nil || accept != nil && !accept(e.address) || !avoided.avoids(e.address, at) {
			return e
		}
	}
	return &b.elements[b.turn.Add(1)%uint64(len(b.elements))]
}

// takeAccepted returns an element with an address that accept permits, if possible one that is not set aside; nil if there
// is none.
func (b *batch) takeAccepted(avoided *asides, at time.Duration, accept func(address string) bool) *element {
	e := b.draw(func(address string) bool { return accept(address) && !avoided.avoids(address, at) })
	if e == nil {
		e = b.draw(accept)
	}
	return e
}

// draw returns an element with an address that accept permits, drawn so that each has its share; nil if there is none.
func (b *batch) draw(accept func(address string) bool) *element {
	n := len(b.elements)
	accepted := func(e *element) bool { return e.refusal == nil && accept(e.address) }
	for range 8 {
		if e := &b.elements[rand.IntN(n)]; accepted(e) {
			return e
		}
	}
	for i, first := 0, rand.IntN(n); i < n; i++ {
		if e := &b.elements[(first+i)%n]; accepted(e) {
			return e
		}
	}
	return nil
}
