package ccore_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestAggregates: what gRFC A74 and A75 say of aggregates, one thing each.
func TestAggregates(t *testing.T) {
	python := python(t)
	for i, tt := range []struct {
		name string
		run  func(s *scenario)
	}{
		{"the Cluster of a backup leaf is deleted, and is back", func(s *scenario) {
			near, far := s.leaf("near", roundRobin, 3), s.leaf("far", roundRobin, 2)
			s.aggregate(near.name, far.name)
			s.begin(python)
			s.step("the backup is deleted", func() { far.deleted = true })
			s.step("the preferred leaf stops", near.stop)
			s.step("the backup is back", func() { far.deleted = false })
			s.step("the preferred leaf starts", func() { near.start(s.t) })
		}},
		{"without fail_on_data_errors a leaf that is deleted stays in use", func(s *scenario) {
			s.world.keeps = true
			near, far := s.leaf("near", roundRobin, 3), s.leaf("far", ringHash, 3)
			s.aggregate(near.name, far.name)
			s.begin(python)
			s.step("the preferred leaf is deleted", func() { near.deleted = true })
			s.step("the backup is deleted", func() { far.deleted = true })
			s.step("the preferred leaf stops", near.stop)
			s.step("the preferred leaf is back", func() { near.deleted = false; near.start(s.t) })
		}},
		{"a backup leaf never has an assignment", func(s *scenario) {
			near, far := s.leaf("near", roundRobin, 2), s.leaf("far", roundRobin, 2)
			far.missing = true
			s.aggregate(near.name, far.name)
			s.begin(python)
			s.step("it comes", func() { far.missing = false })
			s.step("the preferred leaf stops", near.stop)
		}},
		{"the preferred leaf does not exist", func(s *scenario) {
			far := s.leaf("far", roundRobin, 2)
			s.aggregate("missing-"+far.name, far.name)
			s.begin(python)
		}},
		{"a leaf with RING_HASH keeps its affinity below an aggregate with ROUND_ROBIN", func(s *scenario) {
			hashed, turns := s.leaf("hashed", ringHash, 5), s.leaf("turns", roundRobin, 3)
			s.aggregate(hashed.name, turns.name)
			s.begin(python)
			s.step("one of its endpoints stops", func() { hashed.priorities[0][2].stop() })
			s.step("the other leaf is deleted", func() { turns.deleted = true })
			s.step("the other leaf is back", func() { turns.deleted = false })
			s.step("the leaf stops", hashed.stop)
			s.step("the leaf starts", func() { hashed.start(s.t) })
		}},
		{"a leaf with ROUND_ROBIN takes turns below an aggregate with RING_HASH", func(s *scenario) {
			s.world.policy = ringHash
			turns, hashed := s.leaf("turns", roundRobin, 3), s.leaf("hashed", ringHash, 4)
			s.aggregate(turns.name, hashed.name)
			s.begin(python)
			s.step("the leaf stops", turns.stop)
		}},
		{"each leaf fails over between its own priorities first", func(s *scenario) {
			near, far := s.leaf("near", roundRobin, 2, 2), s.leaf("far", ringHash, 2, 3)
			s.aggregate(near.name, far.name)
			s.begin(python)
			s.step("priority 0 stops", func() { near.priorities[0][0].stop(); near.priorities[0][1].stop() })
			s.step("priority 1 stops", near.stop)
			s.step("priority 0 of the other leaf stops", func() { far.priorities[0][0].stop(); far.priorities[0][1].stop() })
			s.step("priority 1 of the preferred leaf starts", func() { near.priorities[1][0].start(s.t) })
			s.step("all starts", func() { near.start(s.t); far.start(s.t) })
		}},
		{"nested aggregates are one list, in which a leaf that is named twice counts once", func(s *scenario) {
			a, b, c := s.leaf("a", roundRobin, 2), s.leaf("b", ringHash, 3), s.leaf("c", roundRobin, 1)
			nested := s.world.name + "-nested"
			s.nest(nested, b.name, a.name, c.name)
			s.aggregate(a.name, nested, b.name)
			s.begin(python)
			s.step("a stops", a.stop)
			s.step("b is deleted", func() { b.deleted = true })
			s.step("b is back", func() { b.deleted = false })
			s.step("b stops", b.stop)
			s.step("c stops", c.stop)
			s.step("a starts", func() { a.start(s.t) })
		}},
		{"the nested aggregate is deleted, and is back", func(s *scenario) {
			a, b := s.leaf("a", roundRobin, 2), s.leaf("b", roundRobin, 2)
			nested := s.world.name + "-nested"
			s.nest(nested, b.name)
			s.aggregate(nested, a.name)
			s.begin(python)
			s.step("the nested aggregate is deleted", func() { delete(s.world.aggregates, nested) })
			s.step("it is back", func() { s.nest(nested, b.name) })
		}},
		{"the assignment of a leaf is empty, and is back", func(s *scenario) {
			near, far := s.leaf("near", roundRobin, 2), s.leaf("far", ringHash, 3)
			s.aggregate(near.name, far.name)
			s.begin(python)
			s.step("the backup is empty", func() { far.empty = true })
			s.step("so is the preferred leaf", func() { near.empty = true })
			s.step("the backup is back", func() { far.empty = false })
			s.step("so is the preferred leaf", func() { near.empty = false })
		}},
		{"all leaves are deleted, and are back", func(s *scenario) {
			near, far := s.leaf("near", roundRobin, 2), s.leaf("far", roundRobin, 3)
			s.aggregate(near.name, far.name)
			s.begin(python)
			s.step("all are deleted", func() { near.deleted, far.deleted = true, true })
			s.step("the backup is back", func() { far.deleted = false })
			s.step("the preferred leaf is back", func() { near.deleted = false })
		}},
		{"leaves change places, come and go", func(s *scenario) {
			a, b, c := s.leaf("a", roundRobin, 2), s.leaf("b", ringHash, 3), s.leaf("c", roundRobin, 2)
			s.aggregate(a.name, b.name)
			s.begin(python)
			s.step("the order turns", func() { s.aggregate(b.name, a.name) })
			s.step("one is added below", func() { s.aggregate(b.name, a.name, c.name) })
			s.step("one is added above", func() { s.aggregate(c.name, b.name, a.name) })
			s.step("it goes", func() { s.aggregate(b.name, a.name) })
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.run(newScenario(t, i))
		})
	}
}

// TestDrawnAggregates: CCORE_N (16) scenarios that are drawn, of the seed CCORE_SEED
// (drawn).
func TestDrawnAggregates(t *testing.T) {
	python := python(t)
	seed, n := number(t, "CCORE_SEED", rand.Uint64N(1_000_000)), number(t, "CCORE_N", 16)
	t.Logf("%d scenarios of seed %d", n, seed)
	for i := range int(n) {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			d := &drawing{rand.New(rand.NewPCG(seed, uint64(i))), newScenario(t, 100+i)}
			d.begin()
			d.story = append(d.story, "seed "+strconv.FormatUint(seed, 10))
			d.scenario.begin(python)
			for range 3 + d.IntN(4) {
				d.change()
			}
		})
	}
}

func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// drawing draws a scenario.
type drawing struct {
	*rand.Rand
	*scenario
}

func (d *drawing) begin() {
	for i := range 2 + d.IntN(3) {
		var sizes []int
		for range 1 + d.IntN(2) {
			sizes = append(sizes, 1+d.IntN(3))
		}
		l := d.leaf("leaf"+strconv.Itoa(i), d.policy(), sizes...)
		if d.IntN(4) == 0 {
			l.stop()
		}
		l.missing, l.empty = d.IntN(12) == 0, d.IntN(12) == 0
	}
	d.world.policy = d.policy()
	d.reorder()
}

func (d *drawing) leaves() (all []*leaf) {
	for i := range len(d.world.leaves) {
		all = append(all, d.world.leaves[d.world.name+"-leaf"+strconv.Itoa(i)])
	}
	return all
}

// reorder draws the aggregates: a list of the leaves, part of it nested at times, in
// which some are named twice.
func (d *drawing) reorder() {
	var names []string
	for _, l := range d.leaves() {
		if d.IntN(8) > 0 || len(names) == 0 {
			names = append(names, l.name)
		}
	}
	d.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	nested := d.world.name + "-nested"
	delete(d.world.aggregates, nested)
	if d.IntN(3) > 0 {
		d.aggregate(names...)
		return
	}
	cut := d.IntN(len(names))
	inner := append(slices.Clone(names[cut:]), names[d.IntN(len(names))])
	d.nest(nested, inner...)
	d.aggregate(append(slices.Clone(names[:cut]), nested, names[d.IntN(len(names))])...)
}

// change draws a step.
func (d *drawing) change() {
	l := d.leaves()[d.IntN(len(d.world.leaves))]
	if used := d.last.leaf; used != nil && d.IntN(2) == 0 {
		l = used
	}
	name := strings.TrimPrefix(l.name, d.world.name+"-")
	p := l.priorities[d.IntN(len(l.priorities))]
	switch d.IntN(9) {
	case 0:
		d.step(name+" stops", l.stop)
	case 1:
		d.step("a priority of "+name+" stops", func() { (&leaf{priorities: [][]*upstream{p}}).stop() })
	case 2:
		d.step("an endpoint of "+name+" stops", func() { p[d.IntN(len(p))].stop() })
	case 3, 4:
		d.step(name+" starts", func() { l.start(d.t) })
	case 5:
		d.step(name+" is deleted, or back", func() { l.deleted = !l.deleted })
	case 6:
		d.step(name+" is empty, or full", func() { l.empty, l.missing = !l.empty, false })
	case 7:
		d.step("other aggregates", d.reorder)
	case 8:
		d.step(name+" has another policy", func() { l.policy = d.policy() })
	}
}

func (d *drawing) policy() (p clusterPolicy) {
	return []clusterPolicy{roundRobin, ringHash}[d.IntN(2)]
}
