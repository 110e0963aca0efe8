package lb_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// aggregated is the config of cluster, made of leaves.
func aggregated(leaves ...*resource.ClusterConfig) *resource.Config {
	root := resource.DefaultCluster(cluster)
	root.Type = resource.ClusterAggregate
	out := &resource.Config{Roots: []string{cluster}}
	var names []string
	for _, l := range leaves {
		out.Clusters.Set(l.Cluster.Name, l)
		names = append(names, l.Cluster.Name)
	}
	out.Clusters.Set(cluster, &resource.ClusterConfig{Cluster: root, Leaves: names})
	return out
}

func leaf(name string, limit uint32, drops []resource.Drop, ls ...*resource.LocalityEndpoints) *resource.ClusterConfig {
	c := resource.DefaultCluster(name)
	c.MaxRequests = limit
	return &resource.ClusterConfig{Cluster: c, Assignment: &resource.Assignment{Name: name, Drops: drops, Localities: ls}}
}

// addressesOf picks n times and returns where to, or why not.
func addressesOf(c *lb.Channel, n int) string {
	seen := map[string]bool{}
	for range n {
		call := newCall()
		if err := c.Pick(call, 0); err != nil {
			seen["!"+err.Error()] = true
			continue
		}
		seen[call.Address] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(seen)), " ")
}

// expectPicks checks where picks go, or why not, once everything has settled.
func expectPicks(t *testing.T, c *lb.Channel, want string) {
	t.Helper()
	synctest.Wait()
	if got := addressesOf(c, 20); got != want {
		t.Errorf("picks go to %q, want %q", got, want)
	}
}

func TestAggregateTriesItsLeavesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := newSwitchboard()
		c := newChannel(t, board)
		a := leaf("a", 10, nil, locality("a0", 0, 1, 1), locality("a1", 1, 1, 1))
		b := leaf("b", 10, nil, locality("b0", 0, 1, 2))
		board.set(true, "a0-0:80", "a1-0:80", "b0-0:80", "b0-1:80")
		offer(t, c, aggregated(a, b))
		expectPicks(t, c, "a0-0:80")
		board.set(false, "a0-0:80")
		expectPicks(t, c, "a1-0:80")
		board.set(false, "a1-0:80")
		expectPicks(t, c, "b0-0:80 b0-1:80")
		call := newCall()
		call.Trace = new(policy.Trace)
		noError(t, c.Pick(call, 0))
		for _, s := range call.Trace.Steps {
			if l, ok := s.(policy.LeafStep); ok && (l.Leaf != "b" || l.PassedOver[0].Name != "a" || !strings.Contains(l.PassedOver[0].Why, "a1-0:80: connection refused")) {
				t.Errorf("leaf step: %+v", l)
			}
			if p, ok := s.(policy.PriorityStep); ok && (p.Priority != 2 || len(p.PassedOver) != 0) {
				t.Errorf("priority step: %+v", p)
			}
		}
		if s := c.Summary().Clusters.Get(cluster); s.Priority != 2 || len(s.Priorities) != 3 {
			t.Errorf("summary %+v", s)
		}
		board.set(true, "a0-0:80")
		time.Sleep(2 * time.Second)
		expectPicks(t, c, "a0-0:80")

		// A leaf without endpoints, or without assignment, is passed over.
		offer(t, c, aggregated(leaf("a", 10, nil), b))
		expectPicks(t, c, "b0-0:80 b0-1:80")
		none := &resource.ClusterConfig{Cluster: resource.DefaultCluster("a"), AssignmentErr: errors.New("not known")}
		offer(t, c, aggregated(none, b))
		expectPicks(t, c, "b0-0:80 b0-1:80")

		// The order of leaves turns without a new connection.
		attempts := board.attempts["b0-0:80"]
		offer(t, c, aggregated(b, a))
		expectPicks(t, c, "b0-0:80 b0-1:80")
		if board.attempts["b0-0:80"] != attempts {
			t.Error("a leaf that moved reconnected")
		}
	})
}

// TestUnusedLeafFailsOver: only the leaf is deactivated, its own priorities still fail
// over (gRFC A75, A56). It serves at once when it is needed.
func TestUnusedLeafFailsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := newSwitchboard()
		c := newChannel(t, board)
		board.set(false, "a0-0:80")
		board.set(true, "b0-0:80", "b1-0:80")
		offer(t, c, aggregated(
			leaf("a", 10, nil, locality("a0", 0, 1, 1)),
			leaf("b", 10, nil, locality("b0", 0, 1, 1), locality("b1", 1, 1, 1)),
		))
		expectPicks(t, c, "b0-0:80")
		board.set(true, "a0-0:80")
		time.Sleep(2 * time.Second)
		expectPicks(t, c, "a0-0:80")
		board.set(false, "b0-0:80")
		expectPicks(t, c, "a0-0:80")
		attempts := board.attempts["b1-0:80"]
		if attempts != 1 {
			t.Errorf("%d connections to the unused leaf's next priority, want 1", attempts)
		}
		board.set(false, "a0-0:80")
		expectPicks(t, c, "b1-0:80")
		if got := board.attempts["b1-0:80"]; got != attempts {
			t.Errorf("%d connections to it once it is needed, want %d", got, attempts)
		}
	})
}

// TestClusterBecomesAnAggregate: and has endpoints of its own again.
func TestClusterBecomesAnAggregate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := newSwitchboard()
		c := newChannel(t, board)
		a := leaf("a", 10, nil, locality("a0", 0, 1, 1))
		b := leaf("b", 10, nil, locality("b0", 0, 1, 1))
		board.set(true, "own-0:80", "a0-0:80", "b0-0:80")
		for _, step := range []struct {
			config *resource.Config
			want   string
		}{
			{config(nil, 10, locality("own", 0, 1, 1)), "own-0:80"},
			{aggregated(a, b), "a0-0:80"},
			{config(nil, 10, locality("own", 0, 1, 1)), "own-0:80"},
			{aggregated(b, a), "b0-0:80"},
			{aggregated(a), "a0-0:80"},
		} {
			offer(t, c, step.config)
			expectPicks(t, c, step.want)
		}
	})
}

// TestAggregateCountsByLeaf: a cluster that is used alone and as a leaf has one circuit
// breaker, and an aggregate has none.
func TestAggregateCountsByLeaf(t *testing.T) {
	o := options(nil)
	c := lb.NewChannel(o)
	t.Cleanup(c.Close)
	both := aggregated(
		leaf("a", 1, []resource.Drop{{Category: "none", PerMillion: 0}}, locality("a0", 0, 1, 1)),
		leaf("b", 5, nil, locality("b0", 0, 1, 1)),
	)
	both.Roots = append(both.Roots, "a")
	offer(t, c, both)
	held := newCall()
	held.Hold = true
	noError(t, c.Pick(held, 0))
	if n := o.Counters.Get(resource.ServiceKey{Cluster: "a"}).Breaker.InFlight(); n != 1 {
		t.Errorf("the leaf has %d in flight", n)
	}
	if o.Counters.Get(resource.ServiceKey{Cluster: cluster}) != nil {
		t.Error("the aggregate counts for itself")
	}
	// A full breaker refuses: it is no reason to try the next leaf.
	alone := newCall()
	alone.Cluster = "a"
	for _, call := range []*policy.Call{newCall(), alone} {
		if err := c.Pick(call, 0); err == nil || !strings.Contains(err.Error(), "max requests 1 exceeded on service a") {
			t.Errorf("a pick of %s, whose leaf is full: %v", call.Cluster, err)
		}
	}
	held.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
	if err := c.Pick(alone, 0); err != nil {
		t.Error(err)
	}
}

func TestPendingClusterQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChannel(t, nil)
		root := &resource.ClusterConfig{Cluster: resource.DefaultCluster(cluster), Pending: true}
		offer(t, c, configOf(root))
		got := make(chan error, 1)
		call := newCall()
		go func() { got <- c.Pick(call, time.Minute) }()
		synctest.Wait()
		offer(t, c, configOf(&resource.ClusterConfig{
			Cluster:    root.Cluster,
			Assignment: &resource.Assignment{Localities: []*resource.LocalityEndpoints{locality("z", 0, 1, 1)}},
		}))
		if err := <-got; err != nil || call.Address != "z-0:80" {
			t.Errorf("%v: %v", call.Address, err)
		}
		// What serves goes on while more is awaited.
		offer(t, c, configOf(root))
		if err := c.Pick(newCall(), 0); err != nil {
			t.Error(err)
		}
	})
}
