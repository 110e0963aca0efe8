package picks

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/quota"
)

// A caller with many idempotency keys makes lbd forget its own oldest answers, not those of callers
// that have fewer.
func TestIdempotencyKeysPerCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total, own = 8, 4
		k := newKit(t, 0, nil, 1024, locality("a", 0, 1, 1))
		m := quota.New(quota.Options{Totals: map[quota.Resource]int64{quota.IdempotentLeases: total}, MaxAccounts: 3})
		accounts := map[string]*quota.Account{}
		for _, name := range []string{"flood", "web", "late"} {
			accounts[name] = m.Enter(name, nil, time.Now())
		}
		// id returns the ID of the first lease of a request with a key.
		id := func(caller string, key, n int) LeaseID {
			t.Helper()
			out, err := k.pick(Request{N: n, TTL: time.Minute, Account: accounts[caller], IdempotencyKey: fmt.Sprint(caller, key)})
			noError(t, err)
			return out.Picks[0].Lease.ID
		}
		used := func(want ...int64) {
			t.Helper()
			for i, caller := range []string{"flood", "web", "late"} {
				if got := accounts[caller].Used(quota.IdempotentLeases); got != want[i] {
					t.Errorf("%s has %d; want %d", caller, got, want[i])
				}
			}
		}
		web := id("web", 0, 2)
		flood := map[int]LeaseID{}
		for i := range 20 {
			flood[i] = id("flood", i, 1)
		}
		used(own, 2, 0)
		if id("web", 0, 2) != web || id("flood", 19, 1) != flood[19] || id("flood", 16, 1) != flood[16] {
			t.Error("an answer was forgotten that has room")
		}
		if id("flood", 0, 1) == flood[0] {
			t.Error("an old answer was kept")
		}
		tooMany := Request{N: own + 1, TTL: time.Minute, Account: accounts["flood"], IdempotencyKey: "many"}
		if _, err := k.pick(tooMany); code(err) != fault.RateLimited || !strings.Contains(err.Error(), "idempotent_leases") {
			t.Errorf("more leases than the limit: %v", err)
		}
		used(own, 2, 0)
		id("flood", 40, own)
		for i := range own {
			id("flood", 50+i, 1)
		}
		late := id("late", 0, 2)
		used(own, 2, 2)
		id("late", 1, 1) // all are used: flood has the most
		used(own-1, 2, 3)
		id("late", 2, 1) // flood has as many: late loses its own oldest, with 2
		id("late", 3, 1)
		for key := range 5 {
			id("flood", 60+key, 1)
		}
		used(3, 2, 3)
		if id("web", 0, 2) != web || id("late", 0, 2) == late {
			t.Error("a caller lost an answer to one that has as many or more")
		}

		time.Sleep(2 * time.Minute)
		synctest.Wait()
		used(0, 0, 0)
		if len(k.leases.keys.own) != 0 || len(k.leases.keys.entries) != 0 {
			t.Errorf("keys remain: %v", k.leases.keys.own)
		}
	})
}

// A key is that of its leases as long as they are held: also of renewed ones, and never of one that has ended.
func TestIdempotencyKeyLivesAsLongAsItsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, 0, nil, 2, locality("a", 0, 1, 1))
		r := Request{N: 2, TTL: 10 * time.Second, IdempotencyKey: "k"}
		pick := func(r Request, want int) []Pick {
			t.Helper()
			out, err := k.pick(r)
			if len(out.Picks) != want || (err == nil) != (want > 0) {
				t.Fatalf("%d leases, %v; want %d", len(out.Picks), err, want)
			}
			return out.Picks
		}
		first := pick(r, 2)
		if _, err := k.EndLease(first[0].Lease.ID, Success, nil); err != nil {
			t.Fatal(err)
		}
		for range 7 { // until 70 s, beyond every ttl
			time.Sleep(10*time.Second - 1)
			state, err := k.RenewLease(first[1].Lease.ID, 10*time.Second)
			noError(t, err)
			if again := pick(r, 1)[0].Lease; again.ID != first[1].Lease.ID || again.ExpiresAt != state.ExpiresAt {
				t.Fatalf("%+v after a renewal until %v", again, state.ExpiresAt)
			}
		}
		other := r
		other.N = 1
		if _, err := k.pick(other); code(err) != fault.InvalidArgument {
			t.Errorf("the key with another n: %v", err)
		}
		if _, err := k.EndLease(first[1].Lease.ID, Success, nil); err != nil {
			t.Fatal(err)
		}
		taken := pick(Request{N: 2, TTL: time.Minute}, 2) // by others
		pick(r, 0)                                        // the limit is reached
		if _, err := k.EndLease(taken[0].Lease.ID, Success, nil); err != nil {
			t.Fatal(err)
		}
		if next := pick(other, 1)[0].Lease.ID; next == first[0].Lease.ID || next == first[1].Lease.ID {
			t.Error("a lease that has ended")
		}
		k.expect(2)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(k.leases.keys.entries) != 0 {
			t.Errorf("keys remain: %v", k.leases.keys.entries)
		}
	})
}

// What is kept of a request does not keep its URL, of which its texts are parts.
func TestLeasesDoNotKeepTheRequest(t *testing.T) {
	k := newKit(t, 0, nil, 1024, locality("a", 0, 1, 1))
	var kept weak.Pointer[[32 << 10]byte]
	func() {
		url := new([32 << 10]byte)
		kept = weak.Make(url)
		part := func(at int, text string) string {
			copy(url[at:], text)
			return unsafe.String(&url[at], len(text))
		}
		r := Request{Cluster: part(0, "orders"), IdempotencyKey: part(100, "key"), Owner: owned("", part(200, "job-1")), N: 2, TTL: time.Hour}
		noError(t, k.Pick(t.Context(), &r, new(Picks)))
	}()
	runtime.GC()
	if kept.Value() != nil {
		t.Error("the URL is still in memory")
	}
	k.expect(2)
}

// A request that gets fewer leases than it asked for, or none, counts only what it got.
func TestIdempotencyKeyCountsItsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, 2, nil, 1024, locality("a", 0, 1, 1)) // two leases
		m := quota.New(quota.Options{Totals: map[quota.Resource]int64{quota.IdempotentLeases: 10}, Share: 1, MaxAccounts: 1})
		a := m.Enter("a", nil, time.Now())
		for key, want := range map[string]int64{"some": 2, "none": 2} {
			_, _ = k.pick(Request{N: 5, TTL: time.Minute, Account: a, IdempotencyKey: key})
			if got := a.Used(quota.IdempotentLeases); got != want {
				t.Errorf("%s: %d are counted", key, got)
			}
		}
	})
}
