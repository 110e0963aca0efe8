package fleet

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/fleet/share"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var service = resource.ServiceKey{Cluster: "orders", EDSServiceName: "a/b"}

// replica is a daemon with callers.
type replica struct {
	*Fleet

	link     *link
	counters *policy.ClusterCounters
	wants    atomic.Int64 // callers that send one request after the other
	held     atomic.Int64
	stop     context.CancelFunc
	ended    chan struct{}
}

// site is some replicas, and the upstream that counts all requests.
type site struct {
	t        *testing.T
	store    *fakeStore
	limit    int64
	inFlight atomic.Int64
	over     atomic.Int64 // the most above the limit
	callers  sync.WaitGroup
	start    time.Time
	replicas []*replica
}

func newSite(t *testing.T, replicas int, limit uint32) *site {
	s := &site{t: t, store: newFakeStore(), limit: int64(limit), start: time.Now()}
	for range replicas {
		s.add()
	}
	return s
}

func (s *site) clock() time.Duration { return time.Since(s.start) }

func (s *site) add() *replica {
	all := policy.NewCounters()
	all.JoinFleet()
	r := &replica{link: &link{fakeStore: s.store}, counters: all.Acquire(service), ended: make(chan struct{})}
	r.Fleet = newFleet(r.link, Options{MaxTTL: 10 * time.Minute, Log: slog.New(slog.DiscardHandler)})
	r.Fleet.clock = s.clock
	r.Share(r.counters, uint32(s.limit))
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go func() { defer close(r.ended); _ = r.Run(ctx) }()
	s.replicas = append(s.replicas, r)
	return r
}

// call is one caller, as picks admit it.
func (s *site) call(ctx context.Context, r *replica, number int64) {
	const ttl = time.Second
	for ctx.Err() == nil {
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		if number >= r.wants.Load() || !r.take(ttl, s.clock) {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		n := s.inFlight.Add(1)
		r.held.Add(1)
		for {
			most := s.over.Load()
			if n-s.limit <= most || s.over.CompareAndSwap(most, n-s.limit) {
				break
			}
		}
		time.Sleep(time.Duration(50+rand.IntN(200)) * time.Millisecond)
		r.held.Add(-1)
		s.inFlight.Add(-1)
		r.counters.Unhold()
	}
}

func (r *replica) take(ttl time.Duration, clock func() time.Duration) bool {
	l := r.counters.SharedLimit()
	if !r.counters.Hold(l.Limit()) {
		r.counters.Breaker.Reject()
		return false
	}
	l.Ask(ttl)
	if l.Exceeded(r.counters.Breaker.InFlight()) || l.Admits(ttl, clock()) != policy.Admitted {
		r.counters.Unhold()
		r.counters.Breaker.Reject()
		return false
	}
	return true
}

// run has callers at each replica for a time, and returns the mean number of requests in flight after the
// first part of it.
func (s *site) run(d, settle time.Duration, wants ...int64) float64 {
	ctx, cancel := context.WithCancel(context.Background())
	for i, r := range s.replicas {
		r.wants.Store(wants[i])
		for n := range wants[i] {
			s.callers.Go(func() { s.call(ctx, r, n) })
		}
	}
	time.Sleep(settle)
	sum, samples := int64(0), int64(0)
	for end := time.Now().Add(d - settle); time.Now().Before(end); time.Sleep(7 * time.Millisecond) {
		sum += s.inFlight.Load()
		samples++
	}
	cancel()
	s.callers.Wait()
	return float64(sum) / float64(samples)
}

func (s *site) close() {
	for _, r := range s.replicas {
		r.stop()
		<-r.ended
	}
	if over := s.over.Load(); over > 0 {
		s.t.Errorf("%d requests above the limit", over)
	}
}

// TestDemandMoves: the limit is never exceeded, and used where there is demand.
func TestDemandMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 3, 40)
		time.Sleep(time.Second)
		for _, wants := range [][]int64{{80, 0, 0}, {80, 80, 80}, {0, 10, 100}, {100, 2, 0}, {30, 30, 0}} {
			if used := s.run(5*time.Second, time.Second, wants...); used < 0.9*40 { // callers pause between requests
				t.Errorf("wants %d: %.1f in flight", wants, used)
			}
		}
		s.close()
		if r := s.store.records(); len(r) != 0 {
			t.Errorf("all have left: %+v", r)
		}
	})
}

// TestCutOff: a replica that is cut off stops admitting, and others get its share after its session and the
// ttl of its leases; it is back when it is connected again.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2, 20)
		s.run(3*time.Second, time.Second, 20, 20) // leases of 1 s
		cut := s.replicas[0]
		cut.link.setCut(true)
		s.run(4*time.Second, 3*time.Second, 40, 40)
		if n := cut.held.Load(); n != 0 || cut.take(time.Second, s.clock) {
			t.Errorf("%d requests at the replica that is cut off", n)
		}
		if cut.Joined() {
			t.Error("the replica that is cut off reports a session")
		}
		if used := s.run(10*time.Second, 9*time.Second, 40, 40); used < 15 {
			t.Errorf("%.1f in flight at the other replica", used)
		}
		cut.link.setCut(false)
		s.run(12*time.Second, 11*time.Second, 40, 40)
		if share := cut.counters.SharedLimit().Limit(); share != 10 {
			t.Errorf("a share of %d after it is connected again", share)
		}
		if !cut.Joined() {
			t.Error("no session is reported after it is connected again")
		}
		s.close()
	})
}

// TestLeavesWithLeases: a replica that ends leaves what it holds in the record, for as long as its leases
// may live.
func TestLeavesWithLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2, 10)
		time.Sleep(5 * time.Second)
		a, b := s.replicas[0], s.replicas[1]
		if a.take(30*time.Second, s.clock) {
			t.Error("the others do not know of leases for so long")
		}
		time.Sleep(time.Second)
		for range 3 {
			if !a.take(30*time.Second, s.clock) {
				t.Error("refused")
			}
		}
		a.stop()
		<-a.ended
		if a.take(time.Second, s.clock) {
			t.Error("admits after its end")
		}
		b.wants.Store(10)
		s.replicas = s.replicas[1:]
		s.run(5*time.Second, time.Second, 20)
		if share := b.counters.SharedLimit().Limit(); share != 7 {
			t.Errorf("share %d while 3 leases may be held", share)
		}
		s.run(40*time.Second, time.Second, 20)
		if share := b.counters.SharedLimit().Limit(); share != 10 {
			t.Errorf("share %d after they have ended", share)
		}
		s.close()
	})
}

// TestLimitsComeAndGo: a limit that no config has any more leaves the store.
func TestLimitsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2, 10)
		time.Sleep(time.Second)
		for _, r := range s.replicas {
			r.Share(r.counters, 6)
			r.Unshare(r.counters)
		}
		time.Sleep(5 * time.Second)
		if got := s.store.records()[keyOf(service)].record.Sum(); got != 6 {
			t.Errorf("%d published of a limit of 6", got)
		}
		for _, r := range s.replicas {
			r.Unshare(r.counters)
		}
		time.Sleep(time.Second)
		if len(s.store.records()) != 0 || s.replicas[0].counters.SharedLimit().Limit() != 0 {
			t.Errorf("%+v", s.store.records())
		}
		s.close()
	})
}

// TestDamaged: a record that cannot be read is not replaced.
func TestDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1, 10)
		time.Sleep(time.Second)
		s.store.mu.Lock()
		s.store.commit(func(c changes) {
			c.records[keyOf(service)] = stored{revision: s.store.now.revision, exists: true, err: share.ErrNewer}
		})
		s.store.mu.Unlock()
		s.run(10*time.Second, time.Second, 20)
		if s.store.records()[keyOf(service)].err == nil {
			t.Error("was replaced")
		}
		s.store.mu.Lock()
		s.store.commit(func(c changes) { c.records[keyOf(service)] = stored{revision: s.store.now.revision} })
		s.store.mu.Unlock()
		s.run(10*time.Second, time.Second, 20)
		if got := s.replicas[0].counters.SharedLimit().Limit(); got != 10 {
			t.Errorf("share %d after it was removed", got)
		}
		s.close()
	})
}

func TestKeys(t *testing.T) {
	seen := make(map[string]resource.ServiceKey)
	for _, pair := range [][2]string{{"a", ""}, {"a", "b"}, {"a/b", ""}, {"a%2Fb", ""}, {"a", "b/c"}, {"a/b", "c"}} {
		k := resource.ServiceKey{Cluster: pair[0], EDSServiceName: pair[1]}
		key := keyOf(k)
		if other, ok := seen[key]; ok {
			t.Errorf("%+v and %+v are %q", k, other, key)
		}
		seen[key] = k
	}
}
