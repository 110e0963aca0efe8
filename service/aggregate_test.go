package service_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// aggregate is a cluster made of others, the preferred first.
func aggregate(leaves ...string) []byte {
	return servicetest.Encode(servicetest.Object{"cluster_type": servicetest.Object{
		"name": "envoy.clusters.aggregate",
		"typed_config": servicetest.Object{
			"@type":    "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig",
			"clusters": leaves,
		},
	}})
}

// startAggregate has "agg" of "near", with a limit, and of "far", and the
// breaker of near full of picks of agg.
func startAggregate(t *testing.T, limit int) (*service.Service, []picks.Pick) {
	t.Helper()
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Config, "near", servicetest.Config(limit))
	servicetest.Push(t, s, sources.Endpoints, "near", servicetest.Assignment([]servicetest.Object{servicetest.Drop("none", 0)}, servicetest.Place("n", 0, 1, servicetest.Endpoints("n", 2))))
	servicetest.Push(t, s, sources.Endpoints, "far", servicetest.Assignment([]servicetest.Object{servicetest.Drop("all", 100)}, servicetest.Place("f", 0, 1, servicetest.Endpoints("f", 1))))
	servicetest.Push(t, s, sources.Config, "agg", aggregate("near", "far"))
	out, err := servicetest.Pick(s, picks.Request{Cluster: "agg", N: limit, TTL: time.Minute})
	if err != nil || len(out.Picks) != limit {
		t.Fatalf("%d picks, %v; want %d", len(out.Picks), err, limit)
	}
	return s, out.Picks
}

func TestAggregateReportsBreakersAndDropsOfLeaves(t *testing.T) {
	s, _ := startAggregate(t, 2)
	mustRefuse(t, s, picks.Request{Cluster: "agg"}, fault.CircuitBroken)
	agg := clusterState(t, s, "agg", "", false)
	if agg.Breaker != nil || len(agg.Drops) != 0 {
		t.Errorf("its own: %+v, %v", agg.Breaker, agg.Drops)
	}
	near := observe.LeafState{
		Name: "near", InUse: true, Why: "the first leaf", State: "READY", Policy: "xds_wrr_locality_experimental/round_robin",
		Breaker:     &observe.BreakerState{InFlight: 2, MaxRequests: 2, LimitFrom: "config", Open: true, Rejected: 1},
		Drops:       []observe.DropState{{Category: "none"}},
		ConnectMode: "none", NoticeTime: "never",
	}
	far := observe.LeafState{
		Name: "far", Why: "leaf near is in use", State: "IDLE", Policy: "xds_wrr_locality_experimental/round_robin",
		Breaker:     &observe.BreakerState{MaxRequests: 1024, LimitFrom: "default"},
		Drops:       []observe.DropState{{Category: "all", PerMillion: 1_000_000}},
		ConnectMode: "none", NoticeTime: "never",
	}
	if want := []observe.LeafState{near, far}; !reflect.DeepEqual(agg.Leaves, want) {
		t.Errorf("leaves %+v, want %+v", agg.Leaves, want)
	}
	if agg.Policy != "" {
		t.Errorf("the aggregate's own policy is shown: %s", agg.Policy)
	}
	leaf, err := s.State.Cluster(t.Context(), "near", "", false)
	if err != nil || leaf.Breaker == nil || *leaf.Breaker != *near.Breaker || leaf.Leaves != nil {
		t.Errorf("near itself: %+v, %v", leaf, err)
	}
	// The next leaf counts once it is in use.
	_, err = s.Sources.Push(t.Context(), &sources.PushRequest{
		Kind: sources.Endpoints, Cluster: "near", Options: sources.ChangeOptions{AllowEmpty: true}, Body: servicetest.Assignment(nil),
	})
	servicetest.Must(t, err)
	mustRefuse(t, s, picks.Request{Cluster: "agg"}, fault.Dropped)
	if agg, err = s.State.Cluster(t.Context(), "agg", "", false); err != nil || agg.Leaves[1].Drops[0].Dropped != 1 {
		t.Errorf("after a drop of far: %+v, %v", agg, err)
	}
}

// TestBreakerEventsOfAnAggregate: a series of refusals is reported once, of the leaf
// whose breaker it is, whichever target's leases fill it and ease it.
func TestBreakerEventsOfAnAggregate(t *testing.T) {
	s, leases := startAggregate(t, 10)
	for range 3 {
		mustRefuse(t, s, picks.Request{Cluster: "agg"}, fault.CircuitBroken)
	}
	reported := func() string {
		var got []string
		for _, e := range s.Events.Last(observe.EventFilter{Types: []observe.EventType{observe.EventBreakerOpened, observe.EventBreakerClosed}, Limit: 100}) {
			got = append(got, string(e.Type)+" "+e.Cluster)
		}
		return fmt.Sprint(got)
	}
	end := func(p picks.Pick) {
		t.Helper()
		endLease(t, s, p.Lease.ID, picks.Success, nil)
	}
	servicetest.Expect(t, "full", reported(), "[circuit_breaker_opened near]")
	mustRefuse(t, s, picks.Request{Cluster: "near"}, fault.CircuitBroken)
	// Just below its limit it is refilled with every lease that ends.
	for i := range 3 {
		end(leases[i])
		out := mustPick(t, s, picks.Request{Cluster: "near", N: 1, TTL: time.Minute})
		leases = append(leases, out.Picks...)
		mustRefuse(t, s, picks.Request{Cluster: "agg"}, fault.CircuitBroken)
	}
	for _, p := range leases[3:] {
		end(p)
	}
	servicetest.Expect(t, "eased", reported(), "[circuit_breaker_closed near circuit_breaker_opened near]")
}

// TestLeasesOfLeaves: leases are of the leaf that their requests go to, too. They can be found and ended by its name,
// and their owners are those who fill its breaker.
func TestLeasesOfLeaves(t *testing.T) {
	s, _ := startAggregate(t, 3)
	s.Picks.EndLeases(picks.LeaseFilter{}, "")
	web, batch := ledger.Owner{Identity: "web"}, ledger.Owner{Identity: "batch"}
	first := mustPick(t, s, picks.Request{Cluster: "agg", N: 2, TTL: time.Minute, Owner: web}).Picks[0].Lease.ID
	mustPick(t, s, picks.Request{Cluster: "near", TTL: time.Minute, Owner: batch})
	for _, cluster := range []string{"agg", "near"} {
		_, err := servicetest.Pick(s, picks.Request{Cluster: cluster})
		if full, ok := errors.AsType[*picks.ExplainedError](err); !ok || fmt.Sprint(full.Holders) != "[web (2) batch (1)]" {
			t.Errorf("holders of %s: %#v", cluster, err)
		}
	}
	for _, cluster := range []string{"agg", "near"} {
		r := s.Doctor.Examine(t.Context(), &service.Examination{Cluster: cluster}, nil, "")
		if got := fmt.Sprint(r.Checks); !strings.Contains(got, "most leases are held by web (2), batch (1)") || !strings.Contains(got, "GET /v1/leases?cluster=near&") {
			t.Errorf("doctor of %s: %s", cluster, got)
		}
	}
	servicetest.Push(t, s, sources.Endpoints, "other", servicetest.Usable("o", 1))
	mustPick(t, s, picks.Request{Cluster: "other", TTL: time.Minute, Owner: web})
	found := func(f picks.LeaseFilter) (all []string) {
		f.Limit = 10
		list, _ := s.Picks.Leases(f)
		for _, l := range list {
			all = append(all, l.Identity+" "+l.Cluster+" "+l.Leaf)
		}
		slices.Sort(all)
		return all
	}
	may := func(name string) func(string) bool { return func(cluster string) bool { return cluster == name } }
	for want, f := range map[string]picks.LeaseFilter{
		"[batch near  web agg near web agg near]": {Cluster: "near"}, "[web agg near web agg near]": {Cluster: "agg"}, "[]": {Cluster: "far"}, "[web other ]": {MaySee: may("other")},
	} {
		servicetest.Expect(t, fmt.Sprintf("leases of %+v", f.Cluster), fmt.Sprint(found(f)), want)
	}
	servicetest.Expect(t, "leases of who may see near", fmt.Sprint(found(picks.LeaseFilter{MaySee: may("near")})), "[batch near  web agg near web agg near]")
	byAddress := s.Picks.LeasesByAddress("near")
	servicetest.Expect(t, "leases of near by address", byAddress["n-0:80"]+byAddress["n-1:80"], 3)
	service.CompareSeries(t, s.Metrics, `
lbd_leases_active{cluster="agg"} 2
lbd_leases_active{cluster="far"} 0
lbd_leases_active{cluster="near"} 1
lbd_leases_active{cluster="other"} 1
`)
	servicetest.Expect(t, "leases of near", clusterState(t, s, "near", "", false).Leases, 3)

	endLease(t, s, first, picks.Success, nil)
	if l, err := s.Picks.Lease(first); err != nil || l.Cluster != "agg" || l.Leaf != "near" {
		t.Errorf("the lease that ended: %+v, %v", l, err)
	}
	ended := s.Picks.EndLeases(picks.LeaseFilter{Cluster: "near"}, "")
	servicetest.Expect(t, "ended", fmt.Sprint(ended[picks.EndedLeases{Cluster: "near", Owner: web}], ended[picks.EndedLeases{Cluster: "near", Owner: batch}], len(ended)), "1 1 2")
	servicetest.Expect(t, "in flight", clusterState(t, s, "near", "", false).Breaker.InFlight, 0)
	mustPick(t, s, picks.Request{Cluster: "agg", TTL: time.Minute, Owner: web})
	ended = s.Picks.EndLeases(picks.LeaseFilter{MaySee: may("near")}, "")
	servicetest.Expect(t, "ended by who may see near", fmt.Sprint(ended), "map[near of web:1]")
	servicetest.Expect(t, "leases of the end", clusterState(t, s, "near", "", false).Leases, 0)
}

// TestMetricsOfAnAggregate: breakers and drops are its leaves', which are
// clusters themselves, and reported once.
func TestMetricsOfAnAggregate(t *testing.T) {
	s, _ := startAggregate(t, 2)
	mustRefuse(t, s, picks.Request{Cluster: "agg"}, fault.CircuitBroken)
	want := `
lbd_circuit_breaker_in_flight{cluster="far"} 0
lbd_circuit_breaker_in_flight{cluster="near"} 2
lbd_circuit_breaker_max_requests{cluster="far"} 1024
lbd_circuit_breaker_max_requests{cluster="near"} 2
lbd_circuit_breaker_open{cluster="far"} 0
lbd_circuit_breaker_open{cluster="near"} 1
lbd_circuit_breaker_rejections_total{cluster="far"} 0
lbd_circuit_breaker_rejections_total{cluster="near"} 1
lbd_drops_total{category="all",cluster="far"} 0
lbd_drops_total{category="none",cluster="near"} 0
lbd_endpoints{cluster="agg",priority="0",state="ready",target=""} 2
lbd_endpoints{cluster="agg",priority="1",state="idle",target=""} 1
lbd_endpoints{cluster="far",priority="0",state="ready",target=""} 1
lbd_endpoints{cluster="near",priority="0",state="ready",target=""} 2
`
	service.CompareSeries(t, s.Metrics, want)
	got := gathered(t, s.Metrics.EndpointMetrics(t.Context(), nil))
	if n := got["lbd_endpoint_state"]; n != 6 {
		t.Errorf("%v states of endpoints, want 3 of the leaves and the same 3 of the aggregate", n)
	}
}

// TestStateEventsOfAnAggregate: they are its own, as its state is.
func TestStateEventsOfAnAggregate(t *testing.T) {
	s, _ := startAggregate(t, 1)
	var got []string
	for _, e := range s.Events.Last(observe.EventFilter{Types: []observe.EventType{observe.EventStateChanged}, Limit: 100}) {
		got = append(got, e.Cluster+" "+e.To)
	}
	if want := "[agg READY far READY near READY near TRANSIENT_FAILURE]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// TestPicksThroughAnAggregateAreJudgedAtItsLeaf, and the aggregate itself judges
// none, nor does a cluster without drop categories.
func TestPicksThroughAnAggregateAreJudgedAtItsLeaf(t *testing.T) {
	s, _ := startAggregate(t, 2) // two picks of agg
	servicetest.Push(t, s, sources.Endpoints, "calm", servicetest.Usable("c", 1))
	mustPick(t, s, picks.Request{Cluster: "calm"})
	mustRefuse(t, s, picks.Request{Cluster: "agg"}, fault.CircuitBroken)
	mustRefuse(t, s, picks.Request{Cluster: "near"}, fault.CircuitBroken)
	const want = `
lbd_judged_picks_total{cluster="far"} 0
lbd_judged_picks_total{cluster="near"} 4
`
	service.CompareSeries(t, s.Metrics, want)
}

// said returns the events of a cluster of some types, the oldest first.
func said(s *service.Service, cluster string, types ...observe.EventType) string {
	var got []string
	for _, e := range s.Events.Last(observe.EventFilter{Cluster: cluster, Types: types, Limit: 100}) {
		got = append([]string{strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Type, e.Leaf, e.Says))}, got...)
	}
	return strings.Join(got, "\n")
}

// TestSkippedLeafInTheState: the state, the events and an explained pick name the
// leaf that is skipped, and why.
func TestSkippedLeafInTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Endpoints, "near", servicetest.Assignment(nil, servicetest.Place("n", 0, 1, servicetest.Endpoints("n", 1)), servicetest.Place("m", 1, 1, servicetest.Endpoints("m", 1))))
		servicetest.Push(t, s, sources.Endpoints, "far", servicetest.Usable("f", 1))
		servicetest.Push(t, s, sources.Config, "agg", aggregate("near", "far"))
		picked := func(want string, priority int) {
			t.Helper()
			out, err := servicetest.Pick(s, picks.Request{Cluster: "agg"})
			if err != nil || !strings.HasPrefix(out.Picks[0].Address, want) || out.Picks[0].Priority != priority {
				t.Fatalf("picked %+v, %v; want an endpoint of %s, priority %d", out.Picks, err, want, priority)
			}
		}
		state := func(want ...string) {
			t.Helper()
			synctest.Wait()
			agg := clusterState(t, s, "agg", "", false)
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
		deleteEndpoints(t, s, "far")
		picked("n", 0)
		const gone = "Cluster/far is not known"
		state(append([]string{
			`near in use true, READY, the first leaf, skipped "", breaker true`,
			`far in use false, TRANSIENT_FAILURE, skipped: ` + gone + `, skipped "` + gone + `", breaker false`,
		}, append(nearInUse, `2 of far in use false false, started false, TRANSIENT_FAILURE, skipped: `+gone+`, error "`+gone+`", 0 localities`)...)...)

		// The cluster is back, without endpoints; and then the preferred leaf goes.
		servicetest.Push(t, s, sources.Config, "far", servicetest.Config(7))
		servicetest.Push(t, s, sources.Endpoints, "far", servicetest.Usable("f", 1))
		deleteEndpoints(t, s, "near")
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
		out := mustPick(t, s, picks.Request{Cluster: "agg", Explain: true})
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
