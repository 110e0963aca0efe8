package lb_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestConnectionEvents: every change of a connection is an event of its cluster,
// and of real connections only: what outlier detection tells a policy is none.
func TestConnectionEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		board := newSwitchboard()
		o := options(board)
		o.Report = eachEvent(func(e policy.Event) {
			if e, ok := e.(policy.ConnectionChanged); ok {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, fmt.Sprintf("%s %s %v→%v %v", e.Cluster, e.Address, e.From, e.To, e.Err))
			}
		})
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			got = nil
		}
		c := lb.NewChannel(o)
		board.set(true, "a-0:80")
		offer(t, c, config(nil, 10, locality("a", 0, 1, 1)))
		expect("orders a-0:80 IDLE→CONNECTING <nil>", "orders a-0:80 CONNECTING→READY <nil>")
		time.Sleep(2 * time.Second) // it lives long enough to be no failed attempt
		board.set(false, "a-0:80")
		expect("orders a-0:80 READY→IDLE connect to a-0:80: connection refused",
			"orders a-0:80 IDLE→CONNECTING <nil>",
			"orders a-0:80 CONNECTING→TRANSIENT_FAILURE connect to a-0:80: connection refused")
		c.Close()
		expect() // no word of connections that are shut down
	})
}

// TestEventsNameTheirRoot: a leaf that picks reach in two ways is distinguished, and
// so is what an aggregate does from what its leaf does.
func TestEventsNameTheirRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		got := map[string]bool{}
		board := newSwitchboard()
		o := options(board)
		o.Report = eachEvent(func(e policy.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e := e.(type) {
			case policy.ConnectionChanged:
				got[fmt.Sprintf("%s/%s connection", e.Root, e.Cluster)] = true
			case policy.PrioritySwitched:
				got[fmt.Sprintf("%s/%s priority", e.Root, e.Cluster)] = true
			}
		})
		c := lb.NewChannel(o)
		defer c.Close()
		board.set(true, "a-0:80")
		config := aggregated(leaf("a", 10, nil, locality("a", 0, 1, 1)))
		config.Roots = append(config.Roots, "a")
		offer(t, c, config)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		want := map[string]bool{
			cluster + "/a connection": true, "a/a connection": true,
			cluster + "/" + cluster + " priority": true, "a/a priority": true,
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// TestReports: each batch makes one report, of what picks and observers see already,
// and before the offer is answered.
func TestReports(t *testing.T) {
	var got []string
	var c *lb.Channel
	c = newChannel(t, nil, func(o *lb.Options) {
		o.Generation = 7
		o.Report = func(events []policy.Event) {
			got = append(got, fmt.Sprintf("%d %v %d", c.Generation(), c.ClusterSummary(cluster).State, len(events)))
		}
	})
	if s := c.ClusterSummary(cluster); s.State != connecting || s.Priority != -1 {
		t.Errorf("before the first config: %+v", s)
	}
	l := locality("z", 0, 1, 2)
	revisions := make(map[uint64]bool)
	for _, step := range []struct {
		config *resource.Config
		want   string
	}{
		{config(nil, 10, l), "8 READY 6"},
		{config(nil, 10, l, locality("y", 0, 1, 1)), "9 READY 2"},
		{configOf(&resource.ClusterConfig{Err: errors.New("deleted")}), "10 TRANSIENT_FAILURE 1"},
	} {
		offer(t, c, step.config)
		if fmt.Sprint(got) != "["+step.want+"]" {
			t.Errorf("reports %q, want %q", got, step.want)
		}
		got = nil
		revisions[c.ClusterSummary(cluster).Revision] = true
	}
	if len(revisions) != 3 {
		t.Errorf("revisions %v, want 3", revisions)
	}
}
