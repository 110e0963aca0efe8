package fleet

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestRetiredCounters: a cluster that was removed and added again has other counters. What the former ones
// hold counts, and they admit nothing more.
func TestRetiredCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1, 10)
		r := s.replicas[0]
		time.Sleep(5 * time.Second)
		old := r.counters
		for range 4 {
			if !r.take(time.Second, s.clock) {
				t.Fatal("refused")
			}
		}
		all := policy.NewCounters()
		all.JoinFleet()
		next := all.Acquire(service)
		r.Unshare(old)
		r.Share(next, 10)
		synctest.Wait()
		if r.take(time.Second, s.clock) {
			t.Error("the former counters admit a request")
		}
		if got := next.SharedLimit().Limit(); got != 6 {
			t.Errorf("share %d while the former counters hold 4 of 10", got)
		}
		if demand := next.SharedLimit().State().Demand; demand != 4 {
			t.Errorf("demand %d", demand)
		}
		for range 4 {
			old.Unhold()
		}
		time.Sleep(time.Second)
		if got := next.SharedLimit().Limit(); got != 10 {
			t.Errorf("share %d after they have ended", got)
		}
		r.counters = next
		s.close()
	})
}

// TestRestoredStore: a store that was restored has older revisions. Replicas that live are not taken for
// dead.
func TestRestoredStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 2, 10)
		s.run(20*time.Second, time.Second, 20, 0) // revisions that the restored store does not have
		s.store.restore()
		time.Sleep(20 * time.Second)
		s.run(60*time.Second, time.Second, 20, 20)
		if n := len(s.store.records()[keyOf(service)].record.Entries); n != 2 {
			t.Errorf("%d entries", n)
		}
		s.close()
	})
}

// restore forgets everything but the records, whose revisions become small.
func (s *fakeStore) restore() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.expires)
	clear(s.heads)
	s.now = view{1, map[string]stored{}, map[string]member{}}
	s.log = nil
	s.restored++
}

// TestEndsBeforeSession: a replica that ends admits nothing after its session has ended, not even a longer
// ttl of a lease.
func TestEndsBeforeSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, 1, 10)
		time.Sleep(time.Second)
		r := s.replicas[0]
		s.store.onEnd = func() {
			if a := r.counters.SharedLimit().Admits(0, s.clock()); a != policy.Isolated {
				t.Errorf("admission %v when the session ends", a)
			}
		}
		s.close()
	})
}

// TestBacksOff: replicas that change one record at the same time do not repeat it all at once.
func TestBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const replicas = 60
		s := newSite(t, replicas, 600)
		time.Sleep(20 * time.Second)
		if sum := s.store.records()[keyOf(service)].record.Sum(); sum != 600 {
			t.Errorf("%d of 600 are shared", sum)
		}
		if n := s.store.attempts.Load(); n > 20*replicas {
			t.Errorf("%d attempts for %d replicas", n, replicas)
		}
		s.close()
	})
}

func TestServiceOf(t *testing.T) {
	for _, k := range []resource.ServiceKey{{Cluster: "a"}, {Cluster: "a/b", EDSServiceName: "c%2F"}, {Cluster: "ü", EDSServiceName: "/"}} {
		if got, ok := serviceOf(keyOf(k)); !ok || got != k {
			t.Errorf("%+v: %+v %v", k, got, ok)
		}
	}
	if _, ok := serviceOf("a/b/c"); ok {
		t.Error("a/b/c is a key")
	}
}
