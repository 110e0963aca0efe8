package service_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
)

func deleteResource(t *testing.T, s *service.Service, kind sources.Kind, cluster string) {
	t.Helper()
	if _, err := s.Delete(t.Context(), kind, cluster, sources.ChangeOptions{}); err != nil {
		t.Fatal(err)
	}
}

// said returns the events of a cluster of some types, the oldest first.
func said(s *service.Service, cluster string, types ...observe.EventType) string {
	var got []string
	for _, e := range s.Events(observe.EventFilter{Cluster: cluster, Types: types, Limit: 100}) {
		got = append([]string{strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Type, e.Leaf, e.Says))}, got...)
	}
	return strings.Join(got, "\n")
}

// TestSkippedLeafInTheState: the state, the events and an explained pick name the
// leaf that is skipped, and why.
func TestSkippedLeafInTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := start(t, "", nil)
		push(t, s, sources.Endpoints, "near", assignment(t, nil, place{"n", 0, 1, endpoints("n", 1)}, place{"m", 1, 1, endpoints("m", 1)}))
		push(t, s, sources.Endpoints, "far", assignment(t, nil, place{"f", 0, 1, endpoints("f", 1)}))
		push(t, s, sources.Config, "agg", aggregate(t, "near", "far"))
		picked := func(want string, priority int) {
			t.Helper()
			out, err := pick(s, picks.Request{Cluster: "agg"})
			if err != nil || !strings.HasPrefix(out.Picks[0].Address, want) || out.Picks[0].Priority != priority {
				t.Fatalf("picked %+v, %v; want an endpoint of %s, priority %d", out.Picks, err, want, priority)
			}
		}
		state := func(want ...string) {
			t.Helper()
			synctest.Wait()
			agg, err := s.Cluster(t.Context(), "agg", "", false)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range agg.Leaves {
				got = append(got, fmt.Sprintf("%s in use %t, %s, %s, skipped %q, breaker %t", l.Name, l.InUse, l.State, l.Why, l.Skipped, l.Breaker != nil))
			}
			for _, p := range agg.Priorities {
				got = append(got, fmt.Sprintf("%d of %s in use %t %t, started %t, %s, %s, error %q, %d localities",
					p.Priority, p.Cluster, p.InUse, p.InUseSince != nil, p.Started, p.State, p.Why, p.Error, len(p.Localities)))
			}
			if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
				t.Errorf("state\n%s\nwant\n%s", g, w)
			}
		}
		nearInUse := []string{
			"0 of near in use true true, started true, READY, the highest priority, error \"\", 1 localities",
			"1 of near in use false false, started false, IDLE, priority 0 is in use, error \"\", 1 localities",
		}

		picked("n", 0)
		state(append([]string{
			`near in use true, READY, the first leaf, skipped "", breaker true`,
			`far in use false, IDLE, leaf near is in use, skipped "", breaker true`,
		}, append(nearInUse, `2 of far in use false false, started false, IDLE, leaf near is in use, error "", 1 localities`)...)...)

		// The assignment of the backup leaf is deleted, and with it the cluster.
		deleteResource(t, s, sources.Endpoints, "far")
		picked("n", 0)
		const gone = "Cluster/far is not known"
		state(append([]string{
			`near in use true, READY, the first leaf, skipped "", breaker true`,
			`far in use false, TRANSIENT_FAILURE, skipped: ` + gone + `, skipped "` + gone + `", breaker false`,
		}, append(nearInUse, `2 of far in use false false, started false, TRANSIENT_FAILURE, skipped: `+gone+`, error "`+gone+`", 0 localities`)...)...)

		// The cluster is back, without endpoints; and then the preferred leaf goes.
		push(t, s, sources.Config, "far", config(t, 7))
		push(t, s, sources.Endpoints, "far", assignment(t, nil, place{"f", 0, 1, endpoints("f", 1)}))
		deleteResource(t, s, sources.Endpoints, "near")
		picked("f", 1)
		const lost = "Cluster/near is not known"
		state(
			`near in use false, TRANSIENT_FAILURE, skipped: `+lost+`, skipped "`+lost+`", breaker false`,
			`far in use true, READY, every leaf before it failed, timed out or is skipped, skipped "", breaker true`,
			`0 of near in use false false, started false, TRANSIENT_FAILURE, skipped: `+lost+`, error "`+lost+`", 0 localities`,
			`1 of far in use true true, started true, READY, every leaf before it failed, timed out or is skipped, error "", 1 localities`,
		)
		if got, want := said(s, "agg", observe.EventLeafSkipped, observe.EventLeafRestored, observe.EventPrioritySwitched), strings.Join([]string{
			"priority_switched  leaf near is the first to be used",
			"leaf_skipped far leaf far is skipped: " + gone,
			"leaf_restored far leaf far is no longer skipped",
			"leaf_skipped near leaf near is skipped: " + lost,
			"priority_switched  leaf near: skipped: " + lost,
		}, "\n"); got != want {
			t.Errorf("events\n%s\nwant\n%s", got, want)
		}
		out, err := pick(s, picks.Request{Cluster: "agg", Explain: true})
		if err != nil {
			t.Fatal(err)
		}
		step := out.Picks[0].Explain[1]
		if step.Step != "leaf" || step.Leaf.Cluster != "far" || step.Says != "leaf far is in use (READY); leaf near was skipped: "+lost {
			t.Errorf("the step after the cluster: %+v", step)
		}
		if p := out.Picks[0].Explain[2].Priority; p == nil || p.Priority != 1 || p.Cluster != "far" || len(p.PassedOver) != 0 {
			t.Errorf("the step after the leaf: %+v", out.Picks[0].Explain[2])
		}
		time.Sleep(time.Second)
	})
}
