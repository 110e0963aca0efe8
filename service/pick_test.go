package service_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
)

func TestPicksFollowWeightsAndDropChance(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Endpoints, "orders", assignment(t,
		[]object{drop("throttle", 20)},
		place{"a", 0, 3, endpoints("a", 2)},
		place{"b", 0, 1, endpoints("b", 1)},
		place{"z", 1, 1, endpoints("z", 1)},
	))
	const n = 20_000
	got := map[string]int{}
	dropped := 0
	for range n / picks.MaxPicks {
		out, err := pick(s, picks.Request{Cluster: "orders", N: picks.MaxPicks})
		if err != nil {
			t.Fatal(err)
		}
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
	within("locality a", got["a-0:80"]+got["a-1:80"], 0.8*0.75)
	within("locality b", got["b-0:80"], 0.8*0.25)
	if d := got["a-0:80"] - got["a-1:80"]; d < -1 || d > 1 {
		t.Errorf("the endpoints of a locality take turns: got %v", got)
	}
	if got["z-0:80"] != 0 {
		t.Errorf("priority 1 got %d picks while priority 0 is READY", got["z-0:80"])
	}
}

func TestRefusals(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Endpoints, "dropped", assignment(t, []object{drop("all", 100)}, place{"a", 0, 1, endpoints("a", 1)}))
	push(t, s, sources.Endpoints, "broken", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	push(t, s, sources.Config, "broken", config(t, 0))
	push(t, s, sources.Config, "homeless", config(t, 1))
	push(t, s, sources.Endpoints, "fine", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	for name, c := range map[string]struct {
		request picks.Request
		want    fault.Code
		says    string
	}{
		"unknown":   {picks.Request{Cluster: "nobody"}, fault.UnknownCluster, `"nobody"`},
		"dropped":   {picks.Request{Cluster: "dropped"}, fault.Dropped, "RPC is dropped"},
		"broken":    {picks.Request{Cluster: "broken"}, fault.CircuitBroken, "max requests 0"},
		"homeless":  {picks.Request{Cluster: "homeless"}, fault.NoReadyEndpoint, "ClusterLoadAssignment/homeless is not known"},
		"excluded":  {picks.Request{Cluster: "fine", Exclude: []string{"a-0:80"}}, fault.AllExcluded, "excluded"},
		"n dropped": {picks.Request{Cluster: "dropped", N: 7}, fault.Dropped, "RPC is dropped"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pick(s, c.request)
			if code(err) != c.want || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v: %v; want %v saying %q", code(err), err, c.want, c.says)
			}
		})
	}
}

func TestBreakerGrantsJustItsLimit(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Config, "orders", config(t, 50))
	push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 3)}))
	grant := func(callers int) (ids []string) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				out, err := pick(s, picks.Request{Cluster: "orders", TTL: time.Minute})
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
	if _, err := pick(s, picks.Request{Cluster: "orders"}); code(err) != fault.CircuitBroken {
		t.Errorf("an unleased pick while the breaker is full: %v", err)
	}
	// However often done is said, and by however many, each lease is given
	// back once.
	var wg sync.WaitGroup
	for _, id := range ids[:20] {
		for range 3 {
			wg.Go(func() {
				if _, err := s.EndLease(id, picks.Success, nil); err != nil {
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
		s, stop := start(t, "", nil)
		defer stop()
		push(t, s, sources.Config, "orders", config(t, 3))
		push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
		out, err := pick(s, picks.Request{Cluster: "orders", N: 3, TTL: 10 * time.Second})
		if err != nil || len(out.Picks) != 3 {
			t.Fatalf("3 leases: %v, %v", out, err)
		}
		done, renewed, forgotten := out.Picks[0].Lease.ID, out.Picks[1].Lease.ID, out.Picks[2].Lease.ID
		inFlight := func(want int64) {
			t.Helper()
			c, err := s.Cluster(t.Context(), "orders", "", true)
			if err != nil || c.Breaker.InFlight != want || c.Leases != want {
				t.Errorf("in flight: %+v, %v; want %d", c.Breaker, err, want)
			}
		}
		ends := func(id string, want picks.Outcome) {
			t.Helper()
			end, err := s.EndLease(id, picks.Failure, nil)
			if err != nil || end.Outcome != want {
				t.Errorf("done: %+v, %v; want %s", end, err, want)
			}
		}
		inFlight(3)
		if _, err := s.EndLease(done, picks.Success, nil); err != nil {
			t.Fatal(err)
		}
		ends(done, picks.Success) // the first answer stands
		inFlight(2)

		time.Sleep(6 * time.Second)
		if _, err := s.RenewLease(renewed, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		inFlight(1) // forgotten has expired, renewed has not
		ends(forgotten, picks.Expired)
		if _, err := s.RenewLease(forgotten, time.Second); code(err) != fault.UnknownLease {
			t.Errorf("renew an expired lease: %v", err)
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		inFlight(0)
		if _, err := s.Lease("nonsense"); code(err) != fault.UnknownLease {
			t.Errorf("a lease that never was: %v", err)
		}
	})
}

func TestIdempotencyKeyReturnsTheSameLeases(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Config, "orders", config(t, 4))
	push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 5)}))
	r := picks.Request{Cluster: "orders", N: 2, TTL: time.Minute, IdempotencyKey: "k"}
	answers := make([]picks.Picks, 20)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			if err := s.Pick(t.Context(), &r, &answers[i]); err != nil {
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
	if _, err := pick(s, other); code(err) != fault.InvalidArgument {
		t.Errorf("the key with another n: %v", err)
	}
	// A request that failed may be tried again with its key.
	full := picks.Request{Cluster: "orders", N: 1, TTL: time.Minute, IdempotencyKey: "full"}
	if _, err := pick(s, picks.Request{Cluster: "orders", N: 2, TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if _, err := pick(s, full); code(err) != fault.CircuitBroken {
		t.Fatalf("the breaker is full: %v", err)
	}
	if _, err := s.EndLease(answers[0].Picks[0].Lease.ID, picks.Success, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := pick(s, full); err != nil {
		t.Errorf("the key again, once there is room: %v", err)
	}
}

func TestMostLeases(t *testing.T) {
	s, _ := start(t, "", func(o *service.Options) { o.MaxLeases = 2 })
	push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	out, err := pick(s, picks.Request{Cluster: "orders", N: 3, TTL: time.Minute})
	if err != nil || len(out.Picks) != 2 {
		t.Fatalf("3 of at most 2: %d, %v", len(out.Picks), err)
	}
	if _, err := pick(s, picks.Request{Cluster: "orders", TTL: time.Minute}); code(err) != fault.RateLimited {
		t.Errorf("one more: %v", err)
	}
	want := `
# HELP lbd_locality_picks_total Successful picks by priority and locality.
# TYPE lbd_locality_picks_total counter
lbd_locality_picks_total{cluster="orders",locality="/a/",priority="0",target=""} 2
# HELP lbd_picks_total Picks by result: ok, or the code of the refusal. Each pick counts once.
# TYPE lbd_picks_total counter
lbd_picks_total{cluster="orders",result="ok",target=""} 2
lbd_picks_total{cluster="orders",result="rate_limited",target=""} 2
`
	if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), "lbd_locality_picks_total", "lbd_picks_total"); err != nil {
		t.Error(err)
	}
	c, err := s.Cluster(t.Context(), "orders", "", false)
	if err != nil || c.Breaker.InFlight != 2 {
		t.Errorf("a refused lease holds nothing: %+v, %v", c, err)
	}
}

func TestExplainTellsTheDecisionInOrder(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Endpoints, "orders", assignment(t, []object{drop("none", 0)},
		place{"a", 0, 3, endpoints("a", 2)}, place{"b", 0, 1, endpoints("b", 1)}))
	out, err := pick(s, picks.Request{Cluster: "orders", Explain: true})
	if err != nil {
		t.Fatal(err)
	}
	p := out.Picks[0]
	var steps []string
	for _, step := range p.Explain {
		steps = append(steps, step.Step)
		if step.Says == "" {
			t.Errorf("step %s says nothing", step.Step)
		}
	}
	if got := strings.Join(steps, " "); got != "cluster priority drop circuit_breaker locality endpoint" {
		t.Errorf("steps: %s", got)
	}
	last := p.Explain[len(p.Explain)-1]
	if last.Endpoint.Address != p.Address {
		t.Errorf("explained %s, picked %s", last.Endpoint.Address, p.Address)
	}

	push(t, s, sources.Endpoints, "orders", assignment(t, []object{drop("all", 100)}, place{"a", 0, 3, endpoints("a", 2)}))
	_, err = pick(s, picks.Request{Cluster: "orders", Explain: true})
	var e *picks.ExplainedError
	if !errors.As(err, &e) || len(e.Explain) != 2 || !e.Explain[1].Drop.Dropped {
		t.Errorf("a refusal explains itself too: %+v", e)
	}
}

func TestExplanationsAreBounded(t *testing.T) {
	s, _ := start(t, "", nil)
	var places []place
	for i := range 103 {
		places = append(places, place{fmt.Sprint("z", i), 0, 1, endpoints(fmt.Sprint("e", i), 1)})
	}
	push(t, s, sources.Endpoints, "orders", assignment(t, nil, places...))
	r := picks.Request{Cluster: "orders", N: picks.MaxExplain, Explain: true, TTL: time.Minute, IdempotencyKey: "k"}
	out, err := pick(s, r)
	if err != nil || len(out.Picks) != picks.MaxExplain {
		t.Fatalf("%d picks, %v", len(out.Picks), err)
	}
	for _, p := range out.Picks {
		i := slices.IndexFunc(p.Explain, func(s picks.Step) bool { return s.Locality != nil })
		if l := p.Explain[i].Locality; len(l.Candidates) != 100 || l.More != 3 || l.Chosen != p.Locality || l.Candidates[0].Share != 1.0/103 {
			t.Errorf("%d candidates, %d more, %v of %v chosen", len(l.Candidates), l.More, l.Chosen, p.Locality)
		}
	}
	again, err := pick(s, r)
	if err != nil || again.Picks[0].Lease.ID != out.Picks[0].Lease.ID || again.Picks[0].Explain != nil {
		t.Errorf("an explanation is kept: %+v, %v", again, err)
	}
	r.N, r.IdempotencyKey = picks.MaxExplain+1, ""
	if _, err := pick(s, r); code(err) != fault.InvalidArgument || !strings.Contains(err.Error(), "n is 11") || !strings.Contains(err.Error(), "explain") {
		t.Errorf("one more: %v", err)
	}
}

// TestAPanicHoldsNothing: a policy or a draw that panics in the midst of a pick
// keeps neither the breaker's place nor those who wait for the same key.
func TestAPanicHoldsNothing(t *testing.T) {
	var broken atomic.Bool
	s, _ := start(t, "", func(o *service.Options) {
		draw := o.Draw
		o.Draw = func() uint64 {
			if broken.Load() {
				panic("broken")
			}
			return draw()
		}
	})
	push(t, s, sources.Config, "orders", config(t, 1))
	push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}, place{"b", 0, 1, endpoints("b", 1)}))
	r := picks.Request{Cluster: "orders", TTL: time.Minute, IdempotencyKey: "k"}
	broken.Store(true)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the draw did not panic")
			}
		}()
		_, _ = pick(s, r)
	}()
	broken.Store(false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // whoever still waits for the first answer goes at once
	if err := s.Pick(ctx, &r, new(picks.Picks)); err != nil {
		t.Errorf("the key, or the breaker's only place, is still taken: %v", err)
	}
}
