package lbdclient

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// answered is lbd's answer to a pick with n.
type answered struct {
	Generation int64 `json:"generation"`
	Picks      []struct {
		Address string `json:"address"`
	} `json:"picks"`
	Dropped       map[string]int `json:"dropped"`
	CircuitBroken int            `json:"circuit_broken"`
}

// element of a batch: an endpoint, or the refusal of a request.
type element struct {
	address string
	count   *count
	refusal *Error
}

// batch has the picks of one answer of lbd, shuffled. Requests take them in turn.
type batch struct {
	generation int64 // that of the cluster; 0 if lbd refused all picks, because then it does not say
	made       time.Duration
	elements   []element
	turn       atomic.Uint64
}

// batchOf returns the batch in an answer.
func batchOf(cluster string, a answered, counts *counts) (*batch, error) {
	b := &batch{generation: a.Generation, made: now()}
	for _, pick := range a.Picks {
		if pick.Address == "" {
			return nil, errors.New("the answer has a pick without an address")
		}
		b.elements = append(b.elements, element{address: pick.Address, count: counts.of(pick.Address)})
	}
	for category, n := range a.Dropped {
		b.refuse(problem{Code: "dropped", Category: category}.error(cluster, 0, 0), n)
	}
	b.refuse(problem{Code: "circuit_broken", Detail: "the circuit breaker is full"}.error(cluster, 0, 0), a.CircuitBroken)
	if len(b.elements) == 0 || b.generation == 0 {
		return nil, errors.New("the answer is not a batch of picks")
	}
	rand.Shuffle(len(b.elements), func(i, j int) { b.elements[i], b.elements[j] = b.elements[j], b.elements[i] })
	return b, nil
}

// refusedBatch is a batch of nothing but a refusal: lbd refused each pick.
func refusedBatch(refusal *Error) *batch {
	return &batch{made: now(), elements: []element{{refusal: refusal}}}
}

func (b *batch) refuse(refusal *Error, n int) {
	for range min(n, batchSize) {
		b.elements = append(b.elements, element{refusal: refusal})
	}
}

// take returns the next element.
func (b *batch) take() *element {
	return &b.elements[b.turn.Add(1)%uint64(len(b.elements))]
}

// takeAccepted returns the next element with an address that accept permits; nil if there is none.
func (b *batch) takeAccepted(accept func(address string) bool) *element {
	n := uint64(len(b.elements))
	first := b.turn.Add(1)
	for i := range n {
		e := &b.elements[(first+i)%n]
		if e.refusal == nil && accept(e.address) {
			return e
		}
	}
	return nil
}
