// The model has no goroutines: the race detector has nothing to find in it.

//go:build !race

package share

import (
	"hash/maphash"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// explorer visits all states that follow from one within a number of steps.
type explorer struct {
	seed    maphash.Seed
	visited map[uint64]int8 // steps that were left
	states  int
}

func (x *explorer) explore(w *world, depth int) (*world, error) {
	if err := w.check(); err != nil {
		return w, err
	}
	key := w.hash(x.seed)
	if left, ok := x.visited[key]; ok && int(left) >= depth {
		return nil, nil
	}
	x.visited[key] = int8(depth)
	x.states++
	if depth == 0 {
		return nil, nil
	}
	for _, s := range w.steps() {
		next := w.clone()
		next.make(s)
		if failed, err := x.explore(next, depth-1); err != nil {
			return failed, err
		}
	}
	return nil, nil
}

// settled returns a world whose processes have their shares: a limit of 2, or 3, for as many of them. If
// long, they had long leases that have just ended.
func settled(m mutation, replicas int, long bool) *world {
	w := newWorld(correct, replicas, int64(replicas))
	const rounds = 16
	for round := range rounds {
		for i := range w.processes {
			p := &w.processes[i]
			if long && round == rounds-int(2*maxTTL/unit) {
				p.longest = maxTTL
			}
			if p.machine.session == 0 {
				w.begin(p)
			} else if p.alive == nil {
				p.alive = &request{session: p.machine.session, sent: w.now}
				w.keepAlive(p)
				w.keptAlive(p)
			}
			w.read(p, w.stored)
			w.advance(p)
			w.propose(p)
			if p.update != nil {
				w.arrive(p.update)
				w.receive(p)
			}
			w.advance(p)
			p.advanced = false
		}
		w.tick()
		if err := w.check(); err != nil {
			panic(err)
		}
	}
	w.past, w.mutation = w.past[len(w.past)-1:], m
	return w
}

func TestSettled(t *testing.T) {
	for n := range 3 {
		w := settled(correct, n+1, false)
		for _, e := range w.stored.record.Entries {
			if e.Share != 1 {
				t.Errorf("%d replicas: %+v", n+1, w.stored.record)
			}
		}
	}
}

// walk makes random steps. Each walk has other probabilities: in some, a fault is frequent that others
// do not have.
func walk(m mutation, seed uint64, steps int) (*world, error) {
	draw := rand.New(rand.NewPCG(seed, 1))
	w := settled(m, 2+int(seed%2), seed%4 >= 2)
	weights := make(map[string]int)
	weight := func(name string) int {
		n, ok := weights[name]
		if !ok {
			n = [...]int{0, 1, 3, 10, 10}[draw.IntN(5)]
			if slices.Contains(faults, name) {
				n = [...]int{0, 0, 1, 1, 2}[draw.IntN(5)]
			}
			weights[name] = n
		}
		return n
	}
	for range steps {
		all := w.steps()
		sum := 0
		for _, s := range all {
			sum += weight(s.name)
		}
		if sum == 0 {
			return nil, nil
		}
		at := draw.IntN(sum)
		for _, s := range all {
			if at -= weight(s.name); at < 0 {
				w.make(s)
				break
			}
		}
		if len(w.past) > 6 {
			w.past = w.past[1:]
		}
		if err := w.check(); err != nil {
			return w, err
		}
	}
	return nil, nil
}

var faults = []string{"is killed", "pauses", "update is lost", "keep-alive is lost", "time passes", "gets the limit 1", "gets the limit 3"}

// TestExhaustive visits every interleaving of a fleet at rest, within a number of steps.
func TestExhaustive(t *testing.T) {
	for _, tt := range []struct {
		name            string
		replicas, depth int
		long            bool
	}{{"two replicas", 2, 5, false}, {"three replicas", 3, 4, false}, {"after long leases", 2, 5, true}} {
		t.Run(tt.name, func(t *testing.T) {
			x := explorer{seed: maphash.MakeSeed(), visited: make(map[uint64]int8)}
			depth := tt.depth
			if os.Getenv("LBD_TEST_LONG") != "" {
				depth++
			}
			if failed, err := x.explore(settled(correct, tt.replicas, tt.long), depth); err != nil {
				t.Fatalf("%v after\n%s", err, failed.trace)
			}
			t.Logf("%d states", x.states)
		})
	}
}

// TestWalks makes long random walks.
func TestWalks(t *testing.T) {
	walks := 1000
	if os.Getenv("LBD_TEST_LONG") != "" {
		walks = 100_000
	}
	for seed := range walks {
		if failed, err := walk(correct, uint64(seed), 300); err != nil {
			t.Fatalf("seed %d: %v after\n%s", seed, err, failed.trace)
		}
	}
}

// TestMutations: the model finds the mistakes that a caller could make.
func TestMutations(t *testing.T) {
	for _, m := range []mutation{growsFirst, shrinksLate, returnsAtOnce, deadlineFromReply, boundsLate, ignoresDeadline, trustsUnknown, keepsSession} {
		t.Run(string(m), func(t *testing.T) {
			for seed := range 20_000 {
				if _, err := walk(m, uint64(seed), 300); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("not found")
		})
	}
}
