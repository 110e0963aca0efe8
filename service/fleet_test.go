package service_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/fleet/roster"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// fakeFleet has a share that the test sets.
type fakeFleet struct {
	counters *policy.ClusterCounters
	limit    uint32
	users    int
	closed   func()
}

func (f *fakeFleet) Share(c *policy.ClusterCounters, limit uint32) {
	f.counters, f.limit = c, limit
	f.users++
}

func (f *fakeFleet) Unshare(*policy.ClusterCounters) { f.users-- }

func (f *fakeFleet) ID() string { return "a" }

func (f *fakeFleet) Find(context.Context, func(string) bool) (roster.Owner, bool) {
	return roster.Owner{}, false
}

func (f *fakeFleet) Close() {
	if f.closed != nil {
		f.closed()
	}
}

func (f *fakeFleet) Roster(context.Context) *roster.Roster {
	return &roster.Roster{Self: "a", Members: []roster.Member{{Replica: roster.Replica{ID: "a"}}}, Err: errors.New("lost")}
}

func (f *fakeFleet) set(share, demand int64) {
	f.counters.SharedLimit().Set(uint32(share), time.Minute, policy.Clock()+time.Hour)
	f.counters.SharedLimit().Describe(policy.ShareState{Joined: true, Limit: int64(f.limit), Share: share, Demand: demand})
}

func fleetConfig(limit int, scope string) []byte {
	return servicetest.Encode(servicetest.Object{
		"type": "EDS", "circuit_breakers": servicetest.Object{"thresholds": []servicetest.Object{{"max_requests": limit}}},
		"metadata": servicetest.Object{"filter_metadata": servicetest.Object{"lbd": servicetest.Object{"limit_scope": scope}}},
	})
}

// TestFleetLimit: the share of this daemon is the limit, and is shown, until the config says otherwise.
func TestFleetLimit(t *testing.T) {
	fleet := &fakeFleet{}
	s, _ := servicetest.Start(t, "", func(o *service.Options) { o.Fleet = fleet })
	servicetest.Push(t, s, sources.Config, "orders", fleetConfig(10, "fleet"))
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
	fleet.set(2, 7)
	mustPick(t, s, picks.Request{Cluster: "orders", N: 2, TTL: time.Minute})
	mustRefuse(t, s, picks.Request{Cluster: "orders", TTL: time.Minute}, fault.CircuitBroken)

	b := clusterState(t, s, "orders", "", false).Breaker
	if want := (observe.FleetShare{Joined: true, Limit: 10, Share: 2, Demand: 7}); *b.Fleet != want || !b.Open || b.MaxRequests != 10 {
		t.Errorf("%+v: %+v", b, b.Fleet)
	}
	const shared = `
lbd_fleet_demand{cluster="orders"} 7
lbd_fleet_limit{cluster="orders"} 10
lbd_fleet_share{cluster="orders"} 2
`
	service.CompareSeries(t, s.Metrics, shared)
	if st := s.Replicas.State(t.Context(), nil); !st.Shared || st.Error != "lost" || len(st.Replicas) != 1 {
		t.Errorf("%+v", st)
	}

	r := servicetest.Push(t, s, sources.Config, "orders", fleetConfig(10, "daemon"))
	servicetest.Expect(t, "warnings", len(r.Warnings), 0)
	servicetest.Expect(t, "users of the limit", fleet.users, 0)
	if b := clusterState(t, s, "orders", "", false).Breaker; b.Fleet != nil || b.Open {
		t.Errorf("of this daemon: %+v", b)
	}
	n, err := testutil.GatherAndCount(s.Metrics, "lbd_fleet_limit", "lbd_fleet_share", "lbd_fleet_demand")
	servicetest.Must(t, err)
	servicetest.Expect(t, "series", n, 0)
	mustPick(t, s, picks.Request{Cluster: "orders", TTL: time.Minute})
}

// TestFleetIsLeftBeforeLeasesEnd: what is in flight is known to the fleet when the daemon ends.
func TestFleetIsLeftBeforeLeasesEnd(t *testing.T) {
	fleet := &fakeFleet{}
	s, stop := servicetest.Start(t, "", func(o *service.Options) { o.Fleet = fleet })
	servicetest.Push(t, s, sources.Config, "orders", fleetConfig(10, "fleet"))
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
	fleet.set(2, 2)
	mustPick(t, s, picks.Request{Cluster: "orders", TTL: time.Minute})
	inFlight := int64(-1)
	fleet.closed = func() { inFlight = max(inFlight, fleet.counters.Breaker.InFlight()) }
	stop()
	servicetest.Expect(t, "requests in flight when the fleet is left", inFlight, 1)
}

// TestWithoutFleet: the limit of a daemon without a shared store is its own, which a warning says.
func TestWithoutFleet(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	r := servicetest.Push(t, s, sources.Config, "orders", fleetConfig(1, "fleet"))
	servicetest.Expect(t, "warnings", len(r.Warnings), 1)
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
	mustPick(t, s, picks.Request{Cluster: "orders", TTL: time.Minute})
	mustRefuse(t, s, picks.Request{Cluster: "orders", TTL: time.Minute}, fault.CircuitBroken)
	if st := s.Replicas.State(t.Context(), nil); st.Shared {
		t.Errorf("%+v", st)
	}
}
