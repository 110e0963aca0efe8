package picks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/quota"
	"github.com/lbd-dev/lbd/test/ledgertest"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestPicksFollowWeightsAndDropChance(t *testing.T) {
	k := newKit(t, 0, []resource.Drop{{Category: "throttle", PerMillion: 200_000}}, 1024,
		locality("a", 0, 3, 2), locality("b", 0, 1, 1), locality("z", 1, 1, 1))
	const n = 20_000
	got := map[string]int{}
	dropped := 0
	for range n / MaxPicks {
		out, err := k.pick(Request{N: MaxPicks})
		noError(t, err)
		for _, p := range out.Picks {
			got[p.Address]++
		}
		dropped += out.Dropped["throttle"]
	}
	// The draws are seeded: the counts are the same in every run. Each is
	// within four standard deviations of what was configured.
	within := func(name string, got int, chance float64) {
		want, sigma := n*chance, math.Sqrt(n*chance*(1-chance))
		if math.Abs(float64(got)-want) > 4*sigma {
			t.Errorf("%s: %d of %d, want %.0f ± %.0f", name, got, n, want, 4*sigma)
		}
	}
	within("dropped", dropped, 0.2)
	within("locality a", got["a-0"]+got["a-1"], 0.8*0.75)
	within("locality b", got["b-0"], 0.8*0.25)
	if d := got["a-0"] - got["a-1"]; d < -1 || d > 1 {
		t.Errorf("the endpoints of a locality take turns: got %v", got)
	}
	if got["z-0"] != 0 {
		t.Errorf("priority 1 got %d picks while priority 0 is READY", got["z-0"])
	}
}

func TestBreakerGrantsJustItsLimit(t *testing.T) {
	k := newKit(t, 0, nil, 50, locality("a", 0, 1, 3))
	grant := func(callers int) (ids []LeaseID) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				out, err := k.pick(Request{TTL: time.Minute})
				if err != nil {
					if code(err) != fault.CircuitBroken {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				defer mu.Unlock()
				ids = append(ids, out.Picks[0].Lease.ID)
			})
		}
		wg.Wait()
		return ids
	}
	ids := grant(200)
	if len(ids) != 50 {
		t.Fatalf("200 concurrent leases against a limit of 50: %d granted", len(ids))
	}
	if _, err := k.pick(Request{}); code(err) != fault.CircuitBroken {
		t.Errorf("an unleased pick while the breaker is full: %v", err)
	}
	// Each lease is released once, however many callers end it.
	var wg sync.WaitGroup
	for _, id := range ids[:20] {
		for range 3 {
			wg.Go(func() {
				if _, err := k.EndLease(id, Success, nil); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if again := grant(200); len(again) != 20 {
		t.Errorf("after 20 were given back, %d granted", len(again))
	}
}

func TestLeasesEndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, 0, nil, 3, locality("a", 0, 1, 1))
		defer k.close()
		out, err := k.pick(Request{N: 3, TTL: 10 * time.Second})
		if err != nil || len(out.Picks) != 3 {
			t.Fatalf("3 leases: %v, %v", out, err)
		}
		done, renewed, forgotten := out.Picks[0].Lease.ID, out.Picks[1].Lease.ID, out.Picks[2].Lease.ID
		ends := func(id LeaseID, want Outcome) {
			t.Helper()
			end, err := k.EndLease(id, Failure, nil)
			if err != nil || end.Outcome != want {
				t.Errorf("done: %+v, %v; want %s", end, err, want)
			}
		}
		k.expect(3)
		if _, err := k.EndLease(done, Success, nil); err != nil {
			t.Fatal(err)
		}
		ends(done, Success) // the first outcome is final
		k.expect(2)

		time.Sleep(6 * time.Second)
		if _, err := k.RenewLease(renewed, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		k.expect(1) // forgotten has expired, renewed has not
		ends(forgotten, Expired)
		if _, err := k.RenewLease(forgotten, time.Second); code(err) != fault.UnknownLease {
			t.Errorf("renew an expired lease: %v", err)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		k.expect(0)
		if _, err := k.Lease(LeaseID{}); code(err) != fault.UnknownLease {
			t.Errorf("a lease that never was: %v", err)
		}
	})
}

func TestIdempotencyKeyReturnsTheSameLeases(t *testing.T) {
	k := newKit(t, 0, nil, 4, locality("a", 0, 1, 5))
	r := Request{Cluster: "orders", N: 2, TTL: time.Minute, IdempotencyKey: "k"}
	answers := make([]Picks, 20)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			if err := k.Pick(t.Context(), &r, &answers[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, a := range answers {
		if len(a.Picks) != 2 || a.Picks[0].Lease.ID != answers[0].Picks[0].Lease.ID || a.Picks[1].Address != answers[0].Picks[1].Address {
			t.Fatalf("got %+v, first %+v", a.Picks, answers[0].Picks)
		}
	}
	other := r
	other.N = 1
	if _, err := k.pick(other); code(err) != fault.InvalidArgument {
		t.Errorf("the key with another n: %v", err)
	}
	// A request that failed may be tried again with its key.
	full := Request{Cluster: "orders", N: 1, TTL: time.Minute, IdempotencyKey: "full"}
	if _, err := k.pick(Request{N: 2, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.pick(full); code(err) != fault.CircuitBroken {
		t.Fatalf("the breaker is full: %v", err)
	}
	if _, err := k.EndLease(answers[0].Picks[0].Lease.ID, Success, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := k.pick(full); err != nil {
		t.Errorf("the key again, once there is room: %v", err)
	}
}

func TestMostLeases(t *testing.T) {
	k := newKit(t, 2, nil, 1024, locality("a", 0, 1, 1))
	out, err := k.pick(Request{N: 3, TTL: time.Minute})
	if err != nil || len(out.Picks) != 2 {
		t.Fatalf("3 of at most 2: %d, %v", len(out.Picks), err)
	}
	if _, err := k.pick(Request{TTL: time.Minute}); code(err) != fault.RateLimited {
		t.Errorf("one more: %v", err)
	}
	c := k.expect(2) // a rejected lease holds nothing
	if got := maps.Collect(c.Results()); got[ledger.OK] != 2 || got["rate_limited"] != 2 || c.Places.Total() != 2 {
		t.Errorf("picks %v, %d in localities", got, c.Places.Total())
	}
}

// TestAPanicHoldsNothing: a policy or a draw that panics in the midst of a pick
// keeps neither the breaker's place nor those who wait for the same key.
func TestAPanicHoldsNothing(t *testing.T) {
	k := newKit(t, 0, nil, 1, locality("a", 0, 1, 1), locality("b", 0, 1, 1))
	draw := k.draw
	k.draw = func() uint64 { panic("broken") }
	r := Request{Cluster: "orders", TTL: time.Minute, IdempotencyKey: "k"}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the draw did not panic")
			}
		}()
		_, _ = k.pick(r)
	}()
	k.draw = draw
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // a wait for the first answer ends at once
	if err := k.Pick(ctx, &r, new(Picks)); err != nil {
		t.Errorf("the key, or the breaker's only place, is still taken: %v", err)
	}
}

// TestBadLoads: a load that is none ends no lease.
func TestBadLoads(t *testing.T) {
	k := newKit(t, 0, nil, 1024, locality("a", 0, 1, 1))
	out, err := k.pick(Request{TTL: time.Minute})
	noError(t, err)
	id := out.Picks[0].Lease.ID
	for says, load := range map[string]Load{
		"load.cpu_utilization is -0.1: it must not be negative":         {CPUUtilization: -0.1},
		"load.mem_utilization is -1: it must not be negative":           {MemUtilization: -1},
		"load.application_utilization is NaN: it must be a finite":      {ApplicationUtilization: math.NaN()},
		"load.rps_fractional is +Inf: it must be a finite number":       {RPSFractional: math.Inf(1)},
		"load.eps is -1e-09: it must not be negative":                   {EPS: -1e-9},
		`load.utilization["queue"] is -1: it must not be negative`:      {Utilization: map[string]float64{"a": 1, "queue": -1}},
		`load.request_cost["cpu"] is -Inf: it must be a finite number`:  {RequestCost: map[string]float64{"cpu": math.Inf(-1)}},
		`load.named_metrics["cold"] is NaN: it must be a finite number`: {NamedMetrics: map[string]float64{"cold": math.NaN()}},
	} {
		if _, err := k.EndLease(id, Success, &load); code(err) != fault.InvalidArgument || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v, want: %s", err, says)
		}
	}
	if l, err := k.Lease(id); err != nil || l.State != "held" {
		t.Errorf("the lease: %+v, %v", l, err)
	}
	if l, err := k.EndLease(id, Success, &Load{
		CPUUtilization: 1.5, NamedMetrics: map[string]float64{"celsius": -40}, RequestCost: map[string]float64{"balance": -1},
	}); err != nil || l.Outcome != Success {
		t.Errorf("a load that is one: %+v, %v", l, err)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kit is a Picker with one cluster, "orders", whose endpoints count as connected.
type kit struct {
	*Picker

	t      testing.TB
	ledger *ledger.Ledger
	draw   func() uint64 // replaceable while there is no pick
}

func newKit(t testing.TB, maxLeases int, drops []resource.Drop, limit uint32, localities ...*resource.LocalityEndpoints) *kit {
	t.Helper()
	config := ledgertest.Config("orders", &resource.Assignment{Name: "orders", Drops: drops, Localities: localities})
	config.Clusters.Get("orders").Cluster.MaxRequests = limit
	return newKitOf(t, maxLeases, config, nil)
}

func newKitOf(t testing.TB, maxLeases int, config *resource.Config, fleet ledger.Fleet) *kit {
	t.Helper()
	var mu sync.Mutex
	seeded := rand.New(rand.NewPCG(1, 2))
	k := &kit{t: t, draw: func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return seeded.Uint64()
	}}
	draining, drain := context.WithCancel(t.Context())
	events := observe.NewEvents(slog.New(slog.DiscardHandler))
	k.ledger = ledger.New(ledger.Options{
		Channel: lb.Options{
			Registry: lb.Policies(), Draw: func() uint64 { return k.draw() },
			Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil},
		},
		Report: events.Report, Draining: draining, Fleet: fleet,
	})
	k.Picker = New(Options{
		Ledger: k.ledger, Events: events, Demand: func(string, *quota.Account) (*ledger.Target, error) { return nil, nil },
		MaxLeases: maxLeases, Registry: prometheus.NewRegistry(), Draining: draining,
	})
	t.Cleanup(k.close)
	t.Cleanup(drain)
	target := resolver.Target("orders")
	k.ledger.Apply([]resolver.TargetConfig{{Target: target, Config: config}})
	noError(t, k.ledger.Settle(t.Context(), []string{target}))
	return k
}

// aggregate adds an AGGREGATE of orders.
func (k *kit) aggregate(name string) {
	k.t.Helper()
	c := resolver.TargetConfig{Target: resolver.Target(name), Config: &resource.Config{Target: resolver.Target(name)}}
	ledgertest.Aggregated(c.Config, name, k.ledger.Hosted().Own("orders").Cluster("orders").ClusterConfig())
	k.ledger.Apply([]resolver.TargetConfig{c})
	if err := k.ledger.Settle(k.t.Context(), []string{c.Target}); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kit) close() {
	k.Close()
	k.ledger.Close()
}

// locality has n endpoints, named zone-0 and so on.
func locality(zone string, priority, weight uint32, n int) *resource.LocalityEndpoints {
	l := &resource.LocalityEndpoints{ID: resource.Locality{Zone: zone}, Priority: priority, Weight: weight}
	for i := range n {
		l.Endpoints = append(l.Endpoints, &resource.Endpoint{Addresses: []string{fmt.Sprint(zone, "-", i)}, Weight: 1, Locality: l.ID})
	}
	return l
}

func (k *kit) pick(r Request) (out Picks, err error) {
	r.Cluster = "orders"
	err = k.Pick(context.Background(), &r, &out)
	return out, err
}

// expect checks how many leases and requests in flight the cluster has.
func (k *kit) expect(leases int64) *ledger.Cluster {
	k.t.Helper()
	c, err := k.ledger.Find("orders", "")
	noError(k.t, err)
	own, _ := c.Own()
	if n := own.Breaker().InFlight; n != leases || c.Totals.Leases.Load() != leases {
		k.t.Errorf("%d in flight, %d leases, want %d", n, c.Totals.Leases.Load(), leases)
	}
	return c
}

func (k *kit) RenewLease(id LeaseID, ttl time.Duration) (LeaseState, error) {
	return k.Picker.RenewLease(k.t.Context(), id, ttl)
}

func code(err error) fault.Code {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Code
	}
	return ""
}
