// The searches run state machines without goroutines, millions of times: the race detector has nothing to
// find in them.

//go:build !race

package client

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
)

// searchEvent is an event; the searchable defines its meaning.
type searchEvent uint8

// searchable is a client with its servers.
type searchable interface {
	// events returns the events that are possible now, and settling the next one that
	// delivers a message or makes a connection; ok is false if nothing is in flight.
	events() []searchEvent
	settling() (e searchEvent, ok bool)
	// do applies an event. Its error is an invariant that the event violates.
	do(e searchEvent) error
	describe(e searchEvent) string
	// copy returns one that shares nothing that changes.
	copy() searchable
	// fingerprint appends bytes that are equal for states that no later event
	// distinguishes.
	fingerprint(b []byte) []byte
	// check returns an error of the state when nothing is in flight.
	check() error
}

// search runs all sequences of depth events, and lets each state settle. It fails on the
// shortest sequence that leads to an error.
func search(t *testing.T, start searchable, depth int) {
	t.Helper()
	s := &searcher{
		found: map[[2]uint64]int32{}, settled: map[[2]uint64]int{},
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
	}
	noError(t, s.run(start, depth))
	t.Logf("%d states", len(s.nodes))
}

// node is a state that the search has found.
type node struct {
	parent int32
	event  searchEvent // which led here from parent
}

type searcher struct {
	start   searchable
	nodes   []node
	found   map[[2]uint64]int32
	settled map[[2]uint64]int // steps until nothing is in flight; by fingerprint
	seeds   [2]maphash.Seed
	buffer  []byte
}

func (s *searcher) key(x searchable) [2]uint64 {
	s.buffer = x.fingerprint(s.buffer[:0])
	return [2]uint64{maphash.Bytes(s.seeds[0], s.buffer), maphash.Bytes(s.seeds[1], s.buffer)}
}

// run finds all states after at most depth events, breadth first.
func (s *searcher) run(start searchable, depth int) error {
	type place struct {
		id int32
		at searchable
	}
	s.start = start
	s.nodes = []node{{parent: -1}}
	s.found[s.key(start)] = 0
	level := []place{{0, start}}
	for range depth {
		var next []place
		for _, p := range level {
			for _, e := range p.at.events() {
				x := p.at.copy()
				if err := x.do(e); err != nil {
					return fmt.Errorf("%s, %s: %w", s.path(p.id), start.describe(e), err)
				}
				k := s.key(x)
				if _, known := s.found[k]; known {
					continue
				}
				id := int32(len(s.nodes))
				s.nodes = append(s.nodes, node{parent: p.id, event: e})
				s.found[k] = id
				if err := s.settle(x.copy()); err != nil {
					return fmt.Errorf("%s:\n%w", s.path(id), err)
				}
				next = append(next, place{id, x})
			}
		}
		level = next
	}
	return nil
}

// maxSteps is the maximum number of steps until nothing is in flight.
const maxSteps = 60

// settle delivers all messages in flight, and checks the result.
func (s *searcher) settle(x searchable) error {
	var keys [][2]uint64
	var steps []string
	for {
		k := s.key(x)
		rest, known := s.settled[k]
		if e, ok := x.settling(); ok && !known {
			keys = append(keys, k)
			steps = append(steps, x.describe(e))
			if err := x.do(e); err != nil {
				return fmt.Errorf("and then %s: %w", strings.Join(steps, ", "), err)
			}
			if len(keys) > maxSteps {
				return fmt.Errorf("and then it does not settle: %s", strings.Join(steps, ", "))
			}
			continue
		}
		if !known {
			if err := x.check(); err != nil {
				return fmt.Errorf("and then %s: %w", strings.Join(steps, ", "), err)
			}
			s.settled[k] = 0
		}
		if rest+len(keys) > maxSteps {
			return fmt.Errorf("and then it takes %d steps until nothing is in flight", rest+len(keys))
		}
		for i, k := range keys {
			s.settled[k] = rest + len(keys) - i
		}
		return nil
	}
}

// path describes how a node was reached.
func (s *searcher) path(id int32) string {
	var events []string
	for ; id > 0; id = s.nodes[id].parent {
		events = append(events, s.start.describe(s.nodes[id].event))
	}
	slices.Reverse(events)
	return strings.Join(events, ", ")
}
