package service_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
)

func TestMetricsCountEveryPick(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Config, "orders", config(t, 2))
	push(t, s, sources.Endpoints, "orders", assignment(t, []object{drop("throttle", 0)},
		place{"a", 0, 1, append(endpoints("a", 2), object{"health_status": "DRAINING", "endpoint": endpoint("gone")["endpoint"]})}))
	push(t, s, sources.Endpoints, "shed", assignment(t, []object{drop("all", 100)}, place{"a", 0, 1, endpoints("a", 1)}))
	for range 3 {
		if _, err := pick(s, picks.Request{Cluster: "orders"}); err != nil {
			t.Fatal(err)
		}
		if _, err := pick(s, picks.Request{Cluster: "shed"}); err == nil {
			t.Fatal("not dropped")
		}
	}
	out, err := pick(s, picks.Request{Cluster: "orders", N: 2, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pick(s, picks.Request{Cluster: "orders"}); code(err) != fault.CircuitBroken {
		t.Fatal(err)
	}
	if _, err := s.EndLease(out.Picks[0].Lease.ID, picks.Cancelled, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := pick(s, picks.Request{Cluster: "unknown"}); err == nil {
		t.Fatal("picked from an unknown cluster")
	}

	want := `
# HELP lbd_circuit_breaker_in_flight Requests in flight, as the circuit breaker counts them.
# TYPE lbd_circuit_breaker_in_flight gauge
lbd_circuit_breaker_in_flight{cluster="orders"} 1
lbd_circuit_breaker_in_flight{cluster="shed"} 0
# HELP lbd_circuit_breaker_rejections_total Picks that the circuit breaker refused.
# TYPE lbd_circuit_breaker_rejections_total counter
lbd_circuit_breaker_rejections_total{cluster="orders"} 1
lbd_circuit_breaker_rejections_total{cluster="shed"} 0
# HELP lbd_drop_ratio Ratio of picks that the drop category is configured to drop, 0 to 1.
# TYPE lbd_drop_ratio gauge
lbd_drop_ratio{category="all",cluster="shed"} 1
lbd_drop_ratio{category="throttle",cluster="orders"} 0
# HELP lbd_drops_total Picks that a drop category dropped.
# TYPE lbd_drops_total counter
lbd_drops_total{category="all",cluster="shed"} 3
lbd_drops_total{category="throttle",cluster="orders"} 0
# HELP lbd_endpoints Endpoints by priority and state.
# TYPE lbd_endpoints gauge
lbd_endpoints{cluster="orders",priority="0",state="ready",target=""} 2
lbd_endpoints{cluster="orders",priority="0",state="unhealthy",target=""} 1
lbd_endpoints{cluster="shed",priority="0",state="ready",target=""} 1
# HELP lbd_judged_picks_total Picks that reached the drop categories, by any target or aggregate, including those that were dropped.
# TYPE lbd_judged_picks_total counter
lbd_judged_picks_total{cluster="orders"} 6
lbd_judged_picks_total{cluster="shed"} 3
# HELP lbd_leases_active Leases that are held now.
# TYPE lbd_leases_active gauge
lbd_leases_active{cluster="orders"} 1
lbd_leases_active{cluster="shed"} 0
# HELP lbd_leases_finished_total Leases that ended, by outcome: success, error, cancelled, expired. Many expired leases mean that callers do not end their leases.
# TYPE lbd_leases_finished_total counter
lbd_leases_finished_total{cluster="orders",outcome="cancelled"} 1
# HELP lbd_locality_picks_total Successful picks by priority and locality.
# TYPE lbd_locality_picks_total counter
lbd_locality_picks_total{cluster="orders",locality="/a/",priority="0",target=""} 5
# HELP lbd_picks_total Picks by result: ok, or the code of the refusal. Each pick counts once.
# TYPE lbd_picks_total counter
lbd_picks_total{cluster="orders",result="circuit_broken",target=""} 1
lbd_picks_total{cluster="orders",result="ok",target=""} 5
lbd_picks_total{cluster="shed",result="dropped",target=""} 3
lbd_picks_total{cluster="shed",result="ok",target=""} 0
`
	names := []string{}
	for line := range strings.Lines(want) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == "HELP" {
			names = append(names, f[2])
		}
	}
	if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(s.Registry())
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %+v, %v", problems, err)
	}
}

func TestSeriesGoWithTheirCluster(t *testing.T) {
	s, _ := start(t, "", nil)
	count := func() int {
		n, err := testutil.GatherAndCount(s.Registry())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	none := count()
	for i := range 10 {
		push(t, s, sources.Endpoints, fmt.Sprint("c", i), assignment(t,
			[]object{drop("a", 0), drop("b", 1)}, place{"a", 0, 1, endpoints("a", 3)}, place{"b", 1, 1, endpoints("b", 3)}))
	}
	if all := count() - none; all != 10*25 {
		t.Errorf("10 idle clusters have %d series, want 25 each", all)
	}
	for i := range 10 {
		if _, err := s.Delete(t.Context(), sources.Endpoints, fmt.Sprint("c", i), sources.ChangeOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if left := count() - none; left != 0 {
		t.Errorf("%d series are left of clusters that are gone", left)
	}
}

func TestSeriesAreThoseOfTheNewestConfig(t *testing.T) {
	s, _ := start(t, "", nil)
	for i := range 5 {
		push(t, s, sources.Endpoints, "orders", assignment(t, []object{drop(fmt.Sprint("c", i), 0)},
			place{fmt.Sprint("z", i), 0, 1, endpoints("a", 1)}, place{"kept", 1, 1, endpoints("b", 1)}))
		for range 2 {
			if _, err := pick(s, picks.Request{Cluster: "orders"}); err != nil {
				t.Fatal(err)
			}
			if _, err := pick(s, picks.Request{Cluster: "orders", Exclude: []string{"a-0:80"}}); code(err) != fault.AllExcluded {
				t.Fatal(err)
			}
		}
		push(t, s, sources.Endpoints, "orders", assignment(t, []object{drop(fmt.Sprint("c", i), 0)},
			place{"kept", 0, 1, endpoints("b", 1)}))
		if _, err := pick(s, picks.Request{Cluster: "orders"}); err != nil {
			t.Fatal(err)
		}
	}
	want := `
# HELP lbd_drop_ratio Ratio of picks that the drop category is configured to drop, 0 to 1.
# TYPE lbd_drop_ratio gauge
lbd_drop_ratio{category="c4",cluster="orders"} 0
# HELP lbd_drops_total Picks that a drop category dropped.
# TYPE lbd_drops_total counter
lbd_drops_total{category="c4",cluster="orders"} 0
# HELP lbd_locality_picks_total Successful picks by priority and locality.
# TYPE lbd_locality_picks_total counter
lbd_locality_picks_total{cluster="orders",locality="/kept/",priority="0",target=""} 1
# HELP lbd_picks_total Picks by result: ok, or the code of the refusal. Each pick counts once.
# TYPE lbd_picks_total counter
lbd_picks_total{cluster="orders",result="all_excluded",target=""} 10
lbd_picks_total{cluster="orders",result="ok",target=""} 15
`
	if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want),
		"lbd_drop_ratio", "lbd_drops_total", "lbd_locality_picks_total", "lbd_picks_total"); err != nil {
		t.Error(err)
	}
}

func TestACategoryThatIsThereTwiceIsOneSeries(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Endpoints, "orders", assignment(t, []object{drop("a", 50), drop("b", 0), drop("a", 50), drop("c", 100)}, place{"z", 0, 1, endpoints("a", 1)}))
	dropped := 0
	for range 100 {
		_, err := pick(s, picks.Request{Cluster: "orders"})
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != fault.Dropped {
			t.Fatal(err)
		}
		if e.Category == "a" {
			dropped++
		}
	}
	want := fmt.Sprintf(`
# HELP lbd_drop_ratio Ratio of picks that the drop category is configured to drop, 0 to 1.
# TYPE lbd_drop_ratio gauge
lbd_drop_ratio{category="a",cluster="orders"} 0.75
lbd_drop_ratio{category="b",cluster="orders"} 0
lbd_drop_ratio{category="c",cluster="orders"} 1
# HELP lbd_drops_total Picks that a drop category dropped.
# TYPE lbd_drops_total counter
lbd_drops_total{category="a",cluster="orders"} %d
lbd_drops_total{category="b",cluster="orders"} 0
lbd_drops_total{category="c",cluster="orders"} %d
`, dropped, 100-dropped)
	if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), "lbd_drop_ratio", "lbd_drops_total"); err != nil {
		t.Error(err)
	}
}

func TestCountersOutliveTheEndpoints(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Config, "orders", config(t, 0))
	shed := assignment(t, []object{drop("half", 50)}, place{"z", 0, 1, endpoints("a", 1)})
	push(t, s, sources.Endpoints, "orders", shed)
	dropped, rejected := 0, 0
	for range 20 {
		switch _, err := pick(s, picks.Request{Cluster: "orders"}); code(err) {
		case fault.Dropped:
			dropped++
		case fault.CircuitBroken:
			rejected++
		default:
			t.Fatal(err)
		}
	}
	// Without endpoints the tree fails, and lets go of all below it.
	if _, err := s.Delete(t.Context(), sources.Endpoints, "orders", sources.ChangeOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pick(s, picks.Request{Cluster: "orders"}); code(err) != fault.NoReadyEndpoint {
		t.Fatal(err)
	}
	push(t, s, sources.Endpoints, "orders", shed)
	want := fmt.Sprintf(`
# HELP lbd_circuit_breaker_rejections_total Picks that the circuit breaker refused.
# TYPE lbd_circuit_breaker_rejections_total counter
lbd_circuit_breaker_rejections_total{cluster="orders"} %d
# HELP lbd_drops_total Picks that a drop category dropped.
# TYPE lbd_drops_total counter
lbd_drops_total{category="half",cluster="orders"} %d
`, rejected, dropped)
	if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), "lbd_circuit_breaker_rejections_total", "lbd_drops_total"); err != nil {
		t.Error(err)
	}
}

// TestSwitchesBeginAtZero: the first of each reason is a rise, where a switch can
// be. The others are no series.
func TestSwitchesBeginAtZero(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Endpoints, "one", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	push(t, s, sources.Endpoints, "two", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}, place{"b", 1, 1, endpoints("b", 1)}))
	const want = `
# HELP lbd_priority_switches_total Changes of the priority in use, by reason: init_timeout, failure, recovered, update.
# TYPE lbd_priority_switches_total counter
lbd_priority_switches_total{cluster="two",reason="failure",target=""} 0
lbd_priority_switches_total{cluster="two",reason="init_timeout",target=""} 0
lbd_priority_switches_total{cluster="two",reason="recovered",target=""} 0
lbd_priority_switches_total{cluster="two",reason="update",target=""} 0
`
	if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), "lbd_priority_switches_total"); err != nil {
		t.Error(err)
	}
}

// TestPushesCountByWhatBecameOfThem: rejected is what breaks a rule, and nothing else.
func TestPushesCountByWhatBecameOfThem(t *testing.T) {
	s, stop := start(t, "", nil)
	good := assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)})
	for _, r := range []sources.PushRequest{
		{Body: good},
		{Body: good}, // changes nothing
		{Body: good, ChangeOptions: sources.ChangeOptions{DryRun: true}},
		{Body: []byte("{"), ChangeOptions: sources.ChangeOptions{DryRun: true}},
		{Body: assignment(t, nil), ChangeOptions: sources.ChangeOptions{DryRun: true}},
		{Body: []byte("{")},
		{Body: assignment(t, nil)},
		{Body: good, ChangeOptions: sources.ChangeOptions{Precondition: sources.Precondition{IfNoneMatch: true}}},
	} {
		r.Kind, r.Cluster = sources.Endpoints, "orders"
		_, _ = s.Push(t.Context(), &r)
	}
	for _, dry := range []bool{false, true} {
		if _, err := s.Delete(t.Context(), sources.Config, "unknown", sources.ChangeOptions{DryRun: dry}); code(err) != fault.UnknownCluster {
			t.Error(err)
		}
	}
	if _, err := s.DropTarget(t.Context(), "unknown", sources.ChangeOptions{}); code(err) != fault.UnknownTarget {
		t.Error(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := s.Push(ended, &sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Body: good}); code(err) != fault.CallerGone {
		t.Error(err)
	}
	stop()
	if _, err := s.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Body: good}); code(err) != fault.ShuttingDown {
		t.Error(err)
	}
	const want = `
# HELP lbd_pushes_total Pushes by result: applied, unchanged, dry_run, rejected (the push is invalid), not_found (nothing to delete), or the code of the error.
# TYPE lbd_pushes_total counter
lbd_pushes_total{result="applied"} 1
lbd_pushes_total{result="blocked"} 1
lbd_pushes_total{result="cancelled"} 1
lbd_pushes_total{result="dry_run"} 4
lbd_pushes_total{result="internal"} 0
lbd_pushes_total{result="not_found"} 2
lbd_pushes_total{result="precondition_failed"} 1
lbd_pushes_total{result="rate_limited"} 0
lbd_pushes_total{result="rejected"} 1
lbd_pushes_total{result="shutting_down"} 1
lbd_pushes_total{result="storage_failed"} 0
lbd_pushes_total{result="unchanged"} 1
`
	if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), "lbd_pushes_total"); err != nil {
		t.Error(err)
	}
	var refused []string
	for _, e := range s.Events(observe.EventFilter{Types: []observe.EventType{observe.EventPushRefused}, Limit: 100}) {
		refused = append(refused, e.Reason)
	}
	if want := "[shutting_down cancelled precondition_failed blocked invalid_argument]"; fmt.Sprint(refused) != want {
		t.Errorf("events of refused pushes %v, want %s", refused, want)
	}
}
