package service_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/service/picks"
)

// TestSumsHoldWithAClusterInSeveralTargets: what has a target label is there once
// for each tree, the rest once for the cluster; and all of it goes with them.
func TestSumsHoldWithAClusterInSeveralTargets(t *testing.T) {
	s, _ := start(t, "", nil)
	none, err := testutil.GatherAndCount(s.Registry())
	if err != nil {
		t.Fatal(err)
	}
	a := assigned("a", "a-1")
	a["policy"] = object{"drop_overloads": []object{drop("none", 0)}}
	pushAll(t, s, a, listener("shop", route("/", "a")), listener("zoo", route("/a", "a"), route("/gone", "gone")))
	idle, err := testutil.GatherAndCount(s.Registry())
	if err != nil {
		t.Fatal(err)
	}
	// 15, and 3 for the category; 8 for each target more. "gone", which nobody has
	// and so nobody updated, has 6 with the target's label and 2 without.
	if want := 18 + 8 + 8 + 6 + 2; idle-none != want {
		t.Errorf("%d series, want %d", idle-none, want)
	}
	leases := map[string]string{}
	for name, n := range map[string]int{"": 1, "shop": 2, "zoo": 3} {
		r := picks.Request{Target: name, Path: "/a", N: n, TTL: time.Minute}
		if name == "" {
			r.Cluster, r.Path = "a", ""
		}
		out, err := pick(s, r)
		if err != nil {
			t.Fatal(err)
		}
		leases[name] = out.Picks[0].Lease.ID
	}
	for _, path := range []string{"/other", "/gone"} {
		if _, err := pick(s, picks.Request{Target: "zoo", Path: path}); err == nil {
			t.Fatal("picked")
		}
	}
	for _, id := range leases {
		if _, err := s.EndLease(id, picks.Success, nil); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want string) {
		t.Helper()
		names := []string{}
		for line := range strings.Lines(want) {
			if f := strings.Fields(line); len(f) > 2 && f[1] == "HELP" {
				names = append(names, f[2])
			}
		}
		if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), names...); err != nil {
			t.Error(err)
		}
	}
	const (
		inFlight = `
# HELP lbd_circuit_breaker_in_flight Requests in flight, as the circuit breaker counts them.
# TYPE lbd_circuit_breaker_in_flight gauge
lbd_circuit_breaker_in_flight{cluster="a"} 3
# HELP lbd_leases_active Leases that are held now.
# TYPE lbd_leases_active gauge
lbd_leases_active{cluster="a"} 3
`
		ended = `# HELP lbd_leases_finished_total Leases that ended, by outcome: success, error, cancelled, expired. Many expired leases mean that callers do not end their leases.
# TYPE lbd_leases_finished_total counter
lbd_leases_finished_total{cluster="a",outcome="success"} 3
`
		drops = `# HELP lbd_drops_total Picks that a drop category dropped.
# TYPE lbd_drops_total counter
lbd_drops_total{category="none",cluster="a"} 0
`
		judged = `# HELP lbd_judged_picks_total Picks that reached the drop categories, by any target or aggregate, including those that were dropped.
# TYPE lbd_judged_picks_total counter
lbd_judged_picks_total{cluster="a"} 6
`
		picks = `# HELP lbd_picks_total Picks by result: ok, or the code of the refusal. Each pick counts once.
# TYPE lbd_picks_total counter
lbd_picks_total{cluster="a",result="ok",target=""} 1
`
		places = `# HELP lbd_locality_picks_total Successful picks by priority and locality.
# TYPE lbd_locality_picks_total counter
lbd_locality_picks_total{cluster="a",locality="//",priority="0",target=""} 1
`
		connects = `# HELP lbd_connect_attempts_total Connection attempts by result: ok, error.
# TYPE lbd_connect_attempts_total counter
lbd_connect_attempts_total{cluster="a",result="ok",target=""} 1
`
	)
	check(strings.ReplaceAll(inFlight, `lbd_leases_active{cluster="a"} 3
`, `lbd_leases_active{cluster="a"} 3
lbd_leases_active{cluster="gone"} 0
`) + ended + drops + judged + picks + `lbd_picks_total{cluster="a",result="ok",target="xds:///shop"} 2
lbd_picks_total{cluster="a",result="ok",target="xds:///zoo"} 3
lbd_picks_total{cluster="",result="no_route",target="xds:///zoo"} 1
lbd_picks_total{cluster="gone",result="no_ready_endpoint",target="xds:///zoo"} 1
lbd_picks_total{cluster="gone",result="ok",target="xds:///zoo"} 0
` + places + `lbd_locality_picks_total{cluster="a",locality="//",priority="0",target="xds:///shop"} 2
lbd_locality_picks_total{cluster="a",locality="//",priority="0",target="xds:///zoo"} 3
` + connects + `lbd_connect_attempts_total{cluster="a",result="ok",target="xds:///shop"} 1
lbd_connect_attempts_total{cluster="a",result="ok",target="xds:///zoo"} 1
`)
	// Leases of targets that are gone are held all the same.
	remove(t, s, a)
	check(inFlight + ended + drops + judged + picks + places + connects)
	remove(t, s)
	if left, err := testutil.GatherAndCount(s.Registry()); err != nil || left != none {
		t.Errorf("%d series are left, %v", left-none, err)
	}
	problems, err := testutil.GatherAndLint(s.Registry())
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %+v, %v", problems, err)
	}
}
