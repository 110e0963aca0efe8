package service_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
)

// aggregate is a cluster made of others, the preferred first.
func aggregate(tb testing.TB, leaves ...string) []byte {
	tb.Helper()
	return encode(tb, object{"cluster_type": object{
		"name": "envoy.clusters.aggregate",
		"typed_config": object{
			"@type":    "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig",
			"clusters": leaves,
		},
	}})
}

// startAggregate has "agg" of "near", with a limit, and of "far", and the
// breaker of near full of picks of agg.
func startAggregate(t *testing.T, limit int) (*service.Service, []picks.Pick) {
	t.Helper()
	s, _ := start(t, "", nil)
	push(t, s, sources.Config, "near", config(t, limit))
	push(t, s, sources.Endpoints, "near", assignment(t, []object{drop("none", 0)}, place{"n", 0, 1, endpoints("n", 2)}))
	push(t, s, sources.Endpoints, "far", assignment(t, []object{drop("all", 100)}, place{"f", 0, 1, endpoints("f", 1)}))
	push(t, s, sources.Config, "agg", aggregate(t, "near", "far"))
	out, err := pick(s, picks.Request{Cluster: "agg", N: limit, TTL: time.Minute})
	if err != nil || len(out.Picks) != limit {
		t.Fatalf("%d picks, %v; want %d", len(out.Picks), err, limit)
	}
	return s, out.Picks
}

func refusedByBreaker(t *testing.T, s *service.Service, cluster string) {
	t.Helper()
	if _, err := pick(s, picks.Request{Cluster: cluster}); code(err) != fault.CircuitBroken {
		t.Fatalf("%s: %v; want it circuit_broken", cluster, err)
	}
}

func TestAggregateReportsBreakersAndDropsOfLeaves(t *testing.T) {
	s, _ := startAggregate(t, 2)
	refusedByBreaker(t, s, "agg")
	agg, err := s.Cluster(t.Context(), "agg", "", false)
	if err != nil {
		t.Fatal(err)
	}
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
	leaf, err := s.Cluster(t.Context(), "near", "", false)
	if err != nil || leaf.Breaker == nil || *leaf.Breaker != *near.Breaker || leaf.Leaves != nil {
		t.Errorf("near itself: %+v, %v", leaf, err)
	}
	// The next leaf counts once it is in use.
	if _, err := s.Push(t.Context(), &sources.PushRequest{
		Kind: sources.Endpoints, Cluster: "near", AllowEmpty: true, Body: assignment(t, nil),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := pick(s, picks.Request{Cluster: "agg"}); code(err) != fault.Dropped {
		t.Fatal(err)
	}
	if agg, err = s.Cluster(t.Context(), "agg", "", false); err != nil || agg.Leaves[1].Drops[0].Dropped != 1 {
		t.Errorf("after a drop of far: %+v, %v", agg, err)
	}
}

// TestBreakerEventsOfAnAggregate: a series of refusals is reported once, of the leaf
// whose breaker it is, whichever target's leases fill it and ease it.
func TestBreakerEventsOfAnAggregate(t *testing.T) {
	s, leases := startAggregate(t, 10)
	for range 3 {
		refusedByBreaker(t, s, "agg")
	}
	said := func() string {
		var got []string
		for _, e := range s.Events(observe.EventFilter{Limit: 100}) {
			if e.Type == observe.EventBreakerOpened || e.Type == observe.EventBreakerClosed {
				got = append(got, string(e.Type)+" "+e.Cluster)
			}
		}
		return fmt.Sprint(got)
	}
	end := func(p picks.Pick) {
		t.Helper()
		if _, err := s.EndLease(p.Lease.ID, picks.Success, nil); err != nil {
			t.Fatal(err)
		}
	}
	const opened = "[circuit_breaker_opened near]"
	if got := said(); got != opened {
		t.Errorf("full: %s, want %s", got, opened)
	}
	refusedByBreaker(t, s, "near")
	// Just below its limit it is refilled with every lease that ends.
	for i := range 3 {
		end(leases[i])
		out, err := pick(s, picks.Request{Cluster: "near", N: 1, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, out.Picks...)
		refusedByBreaker(t, s, "agg")
	}
	const both = "[circuit_breaker_closed near circuit_breaker_opened near]"
	for _, p := range leases[3:] {
		end(p)
	}
	if got := said(); got != both {
		t.Errorf("eased: %s, want %s", got, both)
	}
}

// TestMetricsOfAnAggregate: breakers and drops are its leaves', which are
// clusters themselves, and reported once.
func TestMetricsOfAnAggregate(t *testing.T) {
	s, _ := startAggregate(t, 2)
	refusedByBreaker(t, s, "agg")
	want := `
# HELP lbd_circuit_breaker_in_flight Requests in flight, as the circuit breaker counts them.
# TYPE lbd_circuit_breaker_in_flight gauge
lbd_circuit_breaker_in_flight{cluster="far"} 0
lbd_circuit_breaker_in_flight{cluster="near"} 2
# HELP lbd_circuit_breaker_max_requests Limit of the circuit breaker on requests in flight.
# TYPE lbd_circuit_breaker_max_requests gauge
lbd_circuit_breaker_max_requests{cluster="far"} 1024
lbd_circuit_breaker_max_requests{cluster="near"} 2
# HELP lbd_circuit_breaker_open 1 if the circuit breaker is at its limit and refuses picks, else 0.
# TYPE lbd_circuit_breaker_open gauge
lbd_circuit_breaker_open{cluster="far"} 0
lbd_circuit_breaker_open{cluster="near"} 1
# HELP lbd_circuit_breaker_rejections_total Picks that the circuit breaker refused.
# TYPE lbd_circuit_breaker_rejections_total counter
lbd_circuit_breaker_rejections_total{cluster="far"} 0
lbd_circuit_breaker_rejections_total{cluster="near"} 1
# HELP lbd_drops_total Picks that a drop category dropped.
# TYPE lbd_drops_total counter
lbd_drops_total{category="all",cluster="far"} 0
lbd_drops_total{category="none",cluster="near"} 0
# HELP lbd_endpoints Endpoints by priority and state.
# TYPE lbd_endpoints gauge
lbd_endpoints{cluster="agg",priority="0",state="ready",target=""} 2
lbd_endpoints{cluster="agg",priority="1",state="idle",target=""} 1
lbd_endpoints{cluster="far",priority="0",state="ready",target=""} 1
lbd_endpoints{cluster="near",priority="0",state="ready",target=""} 2
`
	if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), "lbd_circuit_breaker_in_flight",
		"lbd_circuit_breaker_max_requests", "lbd_circuit_breaker_open", "lbd_circuit_breaker_rejections_total",
		"lbd_drops_total", "lbd_endpoints"); err != nil {
		t.Error(err)
	}
	got := gathered(t, s.EndpointMetrics(t.Context()))
	if n := got["lbd_endpoint_state"]; n != 6 {
		t.Errorf("%v states of endpoints, want 3 of the leaves and the same 3 of the aggregate", n)
	}
}

// TestStateEventsOfAnAggregate: they are its own, as its state is.
func TestStateEventsOfAnAggregate(t *testing.T) {
	s, _ := startAggregate(t, 1)
	var got []string
	for _, e := range s.Events(observe.EventFilter{Types: []observe.EventType{observe.EventStateChanged}, Limit: 100}) {
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
	push(t, s, sources.Endpoints, "calm", assignment(t, nil, place{"c", 0, 1, endpoints("c", 1)}))
	if _, err := pick(s, picks.Request{Cluster: "calm"}); err != nil {
		t.Fatal(err)
	}
	refusedByBreaker(t, s, "agg")
	refusedByBreaker(t, s, "near")
	const want = `
# HELP lbd_judged_picks_total Picks that reached the drop categories, by any target or aggregate, including those that were dropped.
# TYPE lbd_judged_picks_total counter
lbd_judged_picks_total{cluster="far"} 0
lbd_judged_picks_total{cluster="near"} 4
`
	if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), "lbd_judged_picks_total"); err != nil {
		t.Error(err)
	}
}
