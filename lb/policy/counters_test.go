package policy_test

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestBreakerFilledAndEased: each is reported once, and a breaker is eased once a fifth
// of its limit is free, not as soon as one request ends.
func TestBreakerFilledAndEased(t *testing.T) {
	const limit = 10
	counters := policy.NewCounters().Acquire(resource.ServiceKey{Cluster: "c"})
	b := &counters.Breaker
	for n := 1; n <= limit; n++ {
		counters.Hold(limit)
		if got := b.Filled(limit); got != (n == limit) || b.Filled(limit) || b.Eased(limit) {
			t.Errorf("%d in flight: filled %v", n, got)
		}
	}
	for n := limit - 1; n >= 0; n-- {
		counters.Unhold()
		if got := b.Eased(limit); got != (n == limit-2) || b.Eased(limit) || b.Filled(limit) {
			t.Errorf("%d in flight: eased %v", n, got)
		}
	}
}

// TestBreakerChurn: however picks come and go, never more than the limit hold.
func TestBreakerChurn(t *testing.T) {
	const limit = 1
	counters := policy.NewCounters().Acquire(resource.ServiceKey{Cluster: "c"})
	var most atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 300_000 {
				if !counters.Hold(limit) {
					continue
				}
				n := counters.Breaker.InFlight()
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				counters.Unhold()
			}
		})
	}
	wg.Wait()
	if most.Load() != limit {
		t.Errorf("%d held at once, the limit is %d", most.Load(), limit)
	}
	if n := counters.Breaker.InFlight(); n != 0 {
		t.Errorf("%d in flight at the end", n)
	}
}

// TestCountersAreKept checks who keeps a cluster's counters alive.
func TestCountersAreKept(t *testing.T) {
	key := resource.ServiceKey{Cluster: "orders"}
	var (
		all  *policy.Counters
		mine *policy.ClusterCounters
	)
	acquire := func() { mine = all.Acquire(key) }
	hold := func() { mine.Hold(10) }
	release := func() { mine.Release() }
	unhold := func() { mine.Unhold() }
	tests := []struct {
		name  string
		steps []func()
		found bool // whether the next tree finds the same counters
	}{
		{"another tree has them", []func(){acquire}, true},
		{"all references released", []func(){acquire, release}, false},
		{"two had them, one still has", []func(){acquire, acquire, release}, true},
		{"the cluster is removed while a pick is held", []func(){acquire, hold, release}, true},
		{"and comes back, and is removed, and the pick is still held", []func(){acquire, hold, release, acquire, release}, true},
		{"the held pick was the last", []func(){acquire, hold, release, unhold}, false},
		{"a pick of the removed cluster's last picker holds them", []func(){acquire, release, hold}, true},
		{"and gives them back", []func(){acquire, release, hold, unhold}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all = policy.NewCounters()
			for _, step := range tt.steps {
				step()
			}
			if got := all.Get(key) == mine; got != tt.found {
				t.Errorf("kept: %t, want %t", got, tt.found)
			}
			before := mine
			acquire()
			if got := mine == before; got != tt.found {
				t.Errorf("found again: %t, want %t", got, tt.found)
			}
		})
	}
}

func TestCountersOfTwoServicesAreTwo(t *testing.T) {
	all := policy.NewCounters()
	a := all.Acquire(resource.ServiceKey{Cluster: "c"})
	b := all.Acquire(resource.ServiceKey{Cluster: "c", EDSServiceName: "s"})
	if a == b {
		t.Error("cluster c and cluster c with service s share their counters")
	}
	// Counters that lost their place do not take it back.
	b.Release()
	again := all.Acquire(resource.ServiceKey{Cluster: "c", EDSServiceName: "s"})
	b.Hold(1)
	if got := all.Get(resource.ServiceKey{Cluster: "c", EDSServiceName: "s"}); got != again {
		t.Error("old counters took the place of those in use")
	}
	b.Unhold()
	if got := all.Get(resource.ServiceKey{Cluster: "c", EDSServiceName: "s"}); got != again {
		t.Error("old counters, given back, removed those in use")
	}
}

func TestCountersAcquireAndReleaseRace(t *testing.T) {
	all := policy.NewCounters()
	key := resource.ServiceKey{Cluster: "c"}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 1000 {
				c := all.Acquire(key)
				if all.Get(key) != c {
					t.Error("acquired counters are not among all")
				}
				if !c.Hold(1 << 20) {
					t.Error("the breaker is full")
				}
				last, first := c.Release, c.Unhold // the pick may end after the tree
				if i%2 == 0 {
					last, first = first, last
				}
				first()
				last()
			}
		})
	}
	wg.Wait()
	if all.Get(key) != nil {
		t.Error("counters without references are left")
	}
}

// TestLocalityLoad: how each kind of pick is counted.
func TestLocalityLoad(t *testing.T) {
	tests := []struct {
		name string
		held bool
		ends []policy.Outcome
		want resource.LoadCounts
	}{
		{"a pick without Done counts as succeeded", false, nil, resource.LoadCounts{Issued: 1, Succeeded: 1}},
		{"held", true, nil, resource.LoadCounts{Issued: 1, InProgress: 1}},
		{"went well", true, []policy.Outcome{policy.OutcomeSuccess}, resource.LoadCounts{Issued: 1, Succeeded: 1}},
		{"failed", true, []policy.Outcome{policy.OutcomeError}, resource.LoadCounts{Issued: 1, Failed: 1}},
		{"given up", true, []policy.Outcome{policy.OutcomeCancelled}, resource.LoadCounts{Issued: 1, Failed: 1}},
		{"expired", true, []policy.Outcome{policy.OutcomeExpired}, resource.LoadCounts{Issued: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			all := policy.NewCounters()
			c := all.Acquire(resource.ServiceKey{Cluster: "c"})
			zone := resource.Locality{Zone: "a"}
			load := c.Locality(zone)
			load.Start(tt.held)
			var call policy.Call
			call.HoldLoad(load)
			for _, outcome := range tt.ends {
				call.Held().Finish(outcome, policy.NoInfo)
			}
			if got := c.Loads()[zone]; got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if load != c.Locality(zone) {
				t.Error("the locality's load is not the same")
			}
		})
	}
}

// TestJudgedOnlyGrows: whatever becomes of a pick it is judged once, also when its
// category and its locality are long gone.
func TestJudgedOnlyGrows(t *testing.T) {
	c := policy.NewCounters().Acquire(resource.ServiceKey{})
	want := uint64(0)
	for i := range 50 {
		drops := []resource.Drop{{Category: strconv.Itoa(i)}}
		localities := []*resource.LocalityEndpoints{{ID: resource.Locality{Zone: strconv.Itoa(i)}}}
		c.Name(drops, localities)
		c.Drop(drops[0].Category).Add(2)
		for _, held := range []bool{false, true, true} {
			c.Locality(localities[0].ID).Start(held)
		}
		for range 2 {
			call := new(policy.Call)
			call.HoldLoad(c.Locality(localities[0].ID))
			call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
		}
		c.Breaker.Reject()
		c.Unplaced()
		c.Unname(drops, localities)
		if want += 2 + 3 + 1 + 1; c.Judged() != want {
			t.Fatalf("after %d configs %d are judged, want %d", i+1, c.Judged(), want)
		}
	}
	if n := len(c.Drops()); n == 50 || len(c.Loads()) == 50 {
		t.Errorf("%d categories and %d localities are kept: none was forgotten", n, len(c.Loads()))
	}
}

// TestHeldGivesBackEverything: breaker, load and a foreign Done, each once.
func TestHeldGivesBackEverything(t *testing.T) {
	c := policy.NewCounters().Acquire(resource.ServiceKey{})
	load := c.Locality(resource.Locality{})
	var done []balancer.DoneInfo
	var call policy.Call
	c.Hold(1)
	call.HoldBreaker(c)
	load.Start(true)
	call.HoldLoad(load)
	call.HoldDone(func(i balancer.DoneInfo) { done = append(done, i) })
	held := call.Held()
	call.Reset(t.Context()) // what is held outlives the call
	held.Finish(policy.OutcomeError, balancer.DoneInfo{Err: errRefused})
	if c.Breaker.InFlight() != 0 || load.Counts().InProgress != 0 || len(done) != 1 || !errors.Is(done[0].Err, errRefused) {
		t.Errorf("in flight %d, in progress %d, done %v", c.Breaker.InFlight(), load.Counts().InProgress, done)
	}
	policy.Held{}.Finish(policy.OutcomeSuccess, policy.NoInfo) // holds nothing
}
