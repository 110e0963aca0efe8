package lb_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// without returns a leaf whose assignment cannot be had.
func without(leaf *resource.ClusterConfig, why string) *resource.ClusterConfig {
	out := *leaf
	out.Assignment, out.AssignmentErr = nil, errors.New(why)
	return &out
}

// replace returns the config of an aggregate in which a leaf does not exist.
func replace(config *resource.Config, leaf, why string) *resource.Config {
	config.Clusters.Set(leaf, &resource.ClusterConfig{Err: errors.New(why)})
	return config
}

// treeOfLeaves is a channel whose cluster is an aggregate.
type treeOfLeaves struct {
	t       *testing.T
	board   *switchboard
	channel *lb.Channel

	mu     sync.Mutex
	events []string
}

func newTreeOfLeaves(t *testing.T) *treeOfLeaves {
	s := &treeOfLeaves{t: t, board: newSwitchboard()}
	s.channel = newChannel(t, s.board, func(o *lb.Options) { o.Report = eachEvent(s.event) })
	return s
}

func (s *treeOfLeaves) event(e policy.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := e.(type) {
	case policy.PrioritySwitched:
		s.events = append(s.events, fmt.Sprintf("%s %d→%d %s: %s", e.Cluster, e.From, e.To, e.Reason, e.Detail))
	case policy.LeafChanged:
		s.events = append(s.events, fmt.Sprintf("%s skips %s: %v", e.Cluster, e.Leaf, e.Err))
	}
}

// expect asserts where picks go, and which events came since the last call.
func (s *treeOfLeaves) expect(picks string, events ...string) {
	s.t.Helper()
	synctest.Wait()
	_ = addressesOf(s.channel, 5) // connects the endpoints of lazy policies
	synctest.Wait()
	if got := addressesOf(s.channel, 20); got != picks {
		s.t.Errorf("picks go to %q, want %q", got, picks)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got, want := strings.Join(s.events, "\n"), strings.Join(events, "\n"); got != want {
		s.t.Errorf("events\n%s\nwant\n%s", got, want)
	}
	s.events = nil
}

// why asserts what the state says of each leaf.
func (s *treeOfLeaves) why(want ...string) {
	s.t.Helper()
	n, err := s.channel.Describe(s.t.Context())
	noError(s.t, err)
	var got []string
	for _, p := range n.Clusters[cluster].Child.Priorities {
		says := p.Name + ": " + p.Why
		if p.InUse {
			says = p.Name + " in use: " + p.Why
		}
		if (p.Skipped != nil) != strings.Contains(p.Why, "skipped: ") {
			s.t.Errorf("described as %+v", p)
		}
		got = append(got, says)
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		s.t.Errorf("leaves\n%s\nwant\n%s", g, w)
	}
}

// TestSkippedLeaf: an aggregate skips a leaf that does not exist, or whose
// endpoints do not, as long as another can serve (gRFC A74).
func TestSkippedLeaf(t *testing.T) {
	near := leaf("near", 10, nil, locality("n0", 0, 1, 1), locality("n1", 1, 1, 1))
	far := leaf("far", 10, nil, locality("f", 0, 1, 1))
	synctest.Test(t, func(t *testing.T) {
		s := newTreeOfLeaves(t)
		s.board.set(true, "n0-0:80", "n1-0:80", "f-0:80")

		offer(t, s.channel, aggregated(near, far))
		s.expect("n0-0:80", "orders -1→0 update: leaf near is the first to be used")
		s.why("near in use: the first leaf", "far: leaf near is in use")

		// The assignment of the backup is deleted: nothing changes for picks.
		offer(t, s.channel, aggregated(near, without(far, "no such assignment")))
		s.expect("n0-0:80", "orders skips far: no such assignment")
		s.why("near in use: the first leaf", "far: skipped: no such assignment")

		// The preferred leaf is deleted as well: the error is the one of the last leaf.
		offer(t, s.channel, replace(aggregated(near, without(far, "no such assignment")), "near", "no such cluster"))
		s.expect("!every leaf of the aggregate is skipped: leaf near: no such cluster; leaf far: no such assignment",
			"orders skips near: no such cluster", "orders 0→-1 update: every leaf is skipped")
		s.why("near: skipped: no such cluster", "far: skipped: no such assignment")

		// The reason of one of them changes.
		offer(t, s.channel, replace(aggregated(near, without(far, "no such assignment")), "near", "rejected"))
		s.expect("!every leaf of the aggregate is skipped: leaf near: rejected; leaf far: no such assignment")

		// The backup is back, and then the preferred leaf.
		offer(t, s.channel, replace(aggregated(near, far), "near", "no such cluster"))
		s.expect("f-0:80", "orders skips far: <nil>", "orders -1→1 update: leaf far is the first to be used")
		s.why("near: skipped: no such cluster", "far in use: every leaf before it failed, timed out or is skipped")
		offer(t, s.channel, aggregated(near, far))
		s.expect("n0-0:80", "orders skips near: <nil>", "orders 1→0 update: the config changed")
	})
}

// TestErrorOfTheLastLeafThatIs: a leaf that is skipped hides no connection error of
// another leaf.
func TestErrorOfTheLastLeafThatIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTreeOfLeaves(t)
		s.board.set(false, "n-0:80")
		near, gone := leaf("near", 10, nil, locality("n", 0, 1, 1)), leaf("gone", 10, nil)
		offer(t, s.channel, replace(aggregated(near, gone), "gone", "no such cluster"))
		synctest.Wait()
		if got := addressesOf(s.channel, 5); got != "!connect to n-0:80: connection refused" {
			t.Errorf("picks: %s", got)
		}
		s.why("near in use: the first leaf", "gone: skipped: no such cluster")
	})
}

// TestSwitchesWithinALeaf: the events number the priorities of all leaves in a row,
// and report each switch once.
func TestSwitchesWithinALeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTreeOfLeaves(t)
		near := leaf("near", 10, nil, locality("n0", 0, 1, 1), locality("n1", 1, 1, 1))
		far := leaf("far", 10, nil, locality("f0", 0, 1, 1), locality("f1", 1, 1, 1))
		s.board.set(true, "n0-0:80", "n1-0:80", "f1-0:80")
		s.board.set(false, "f0-0:80")
		offer(t, s.channel, aggregated(near, far))
		s.expect("n0-0:80", "orders -1→0 update: leaf near is the first to be used")

		s.board.set(false, "n0-0:80")
		s.expect("n1-0:80", "orders 0→1 failure: priority 0: TRANSIENT_FAILURE: connect to n0-0:80: connection refused")
		s.board.set(false, "n1-0:80")
		s.expect("f1-0:80",
			"orders 1→2 failure: leaf near: TRANSIENT_FAILURE: connect to n1-0:80: connection refused",
			"orders 2→3 failure: priority 2: TRANSIENT_FAILURE: connect to f0-0:80: connection refused")
		if sum := s.channel.Summary().Clusters.Get(cluster); sum.Priority != 3 || len(sum.Priorities) != 4 || sum.Priorities[3].Ready != 1 {
			t.Errorf("summary %+v", sum)
		}
		call := newCall()
		call.Trace = new(policy.Trace)
		if err := s.channel.Pick(call, 0); err != nil || call.Priority != 3 {
			t.Errorf("priority %d, %v", call.Priority, err)
		}
		want := []string{
			"leaf far READY, not near TRANSIENT_FAILURE: connect to n1-0:80: connection refused",
			"priority 3 READY, not 2 TRANSIENT_FAILURE: connect to f0-0:80: connection refused",
		}
		if got := strings.Join(steps(call.Trace), "\n"); !strings.Contains(got, want[0]) || !strings.Contains(got, want[1]) {
			t.Errorf("steps\n%s\nwant\n%s", got, strings.Join(want, "\n"))
		}

		// A priority less above: the same endpoints have another number.
		near = leaf("near", 10, nil, locality("n0", 0, 1, 1))
		offer(t, s.channel, aggregated(near, far))
		s.expect("f1-0:80", "orders 3→2 update: the config changed")

		s.board.set(true, "n0-0:80")
		time.Sleep(10 * time.Second)
		s.expect("n0-0:80", "orders 2→0 recovered: leaf near is READY")
	})
}

// TestConnectionsOfAnUnchangedLeaf: they survive whatever the other leaves do.
func TestConnectionsOfAnUnchangedLeaf(t *testing.T) {
	mid := leaf("mid", 10, nil, locality("m", 0, 1, 2))
	other := leaf("other", 10, nil, locality("o0", 0, 1, 1), locality("o1", 1, 1, 1))
	for name, changes := range map[string][]*resource.Config{
		"a leaf comes and goes above":     {aggregated(other, mid), aggregated(mid)},
		"a leaf comes and goes below":     {aggregated(mid, other), aggregated(mid)},
		"the order turns, and back":       {aggregated(mid, other), aggregated(other, mid), aggregated(mid, other)},
		"a leaf above is in error":        {replace(aggregated(other, mid), "other", "gone"), aggregated(other, mid)},
		"a leaf below is in error":        {aggregated(mid, without(other, "gone")), aggregated(mid, other), replace(aggregated(mid, other), "other", "gone")},
		"a leaf above has one priority":   {aggregated(other, mid), aggregated(leaf("other", 10, nil, locality("o1", 0, 1, 1)), mid)},
		"a leaf above is empty, and full": {aggregated(leaf("other", 10, nil), mid), aggregated(other, mid)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTreeOfLeaves(t)
				s.board.set(true, "m-0:80", "m-1:80")
				s.board.set(false, "o0-0:80", "o1-0:80")
				offer(t, s.channel, aggregated(mid))
				synctest.Wait()
				for _, c := range changes {
					offer(t, s.channel, c)
					expectPicks(t, s.channel, "m-0:80 m-1:80")
				}
				if n := s.board.attempts["m-0:80"] + s.board.attempts["m-1:80"]; n != 2 {
					t.Errorf("%d connections were made, want 2", n)
				}
			})
		})
	}
}

// TestLeafHasItsOwnPolicy: the aggregate's policy is ignored, and each leaf picks by
// its own (gRFC A75).
func TestLeafHasItsOwnPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTreeOfLeaves(t)
		hashed, turns := leaf("hashed", 100, nil, locality("h", 0, 1, 5)), leaf("turns", 100, nil, locality("t", 0, 1, 3))
		hashed.Cluster.Policy = ringHash
		for i := range 5 {
			s.board.set(true, fmt.Sprintf("h-%d:80", i), fmt.Sprintf("t-%d:80", i))
		}
		both := aggregated(hashed, turns)
		both.Clusters.Get(cluster).Cluster.Policy = pickFirst
		offer(t, s.channel, both)
		used := map[string]bool{}
		for hash := range uint64(40) {
			var first string
			for range 5 {
				call := newCall()
				call.HasHash, call.Hash = true, hash<<58
				noError(t, s.channel.Pick(call, time.Second))
				if first == "" {
					first = call.Address
				}
				if call.Address != first {
					t.Fatalf("hash %d went to %s and to %s", hash, first, call.Address)
				}
			}
			used[first] = true
		}
		if len(used) < 3 {
			t.Errorf("40 hashes went to %v alone", used)
		}
		for i := range 5 {
			s.board.set(false, fmt.Sprintf("h-%d:80", i))
		}
		synctest.Wait()
		_ = addressesOf(s.channel, 50) // lets ring_hash see that all have failed
		expectPicks(t, s.channel, "t-0:80 t-1:80 t-2:80")
	})
}
