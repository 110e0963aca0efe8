package quota

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Unix(1_000_000, 0)

func TestAcquire(t *testing.T) {
	m := New(Options{Totals: map[Resource]int64{Streams: 6}, MaxAccounts: 10})
	small := &Class{Limits: map[Resource]int64{Streams: 1}}
	a, b, local := m.Enter("a", nil, start), m.Enter("b", small, start), m.Enter("local", m.Whole(), start)
	if m.Enter("a", nil, start) != a {
		t.Error("one key has two accounts")
	}
	for n, step := range []struct {
		account *Account
		n       int64
		err     string
	}{
		{a, 3, ""},
		{a, 1, "the caller's limit of streams is reached (3)"},
		{b, 2, "the caller's limit of streams is reached (1)"},
		{b, 1, ""},
		{local, 2, ""},
		{local, 1, "the limit of streams is reached (6)"},
		{a, -3, ""},
		{local, 3, ""},
		{a, 1, "the limit of streams is reached (6)"},
		{local, -5, ""},
		{a, 3, ""},
	} {
		if step.n < 0 {
			step.account.Release(Streams, -step.n)
			continue
		}
		err := step.account.Acquire(Streams, step.n)
		if step.err == "" && err != nil || step.err != "" && (err == nil || err.Error() != step.err) {
			t.Fatalf("step %d: %v", n, err)
		}
	}
	if got := m.used[Streams].Load(); got != 4 || a.Used(Streams) != 3 || m.Use(Streams) != 4.0/6 {
		t.Errorf("%d are used, %d by a; want 4 and 3", got, a.Used(Streams))
	}
	if err := a.Acquire(Leases, 1<<40); err != nil || m.Use(Leases) != 0 {
		t.Errorf("a resource without a total: %v", err)
	}
	want := `
# HELP lbd_quota_rejected_total Requests rejected because a limit was reached, by scope: caller (its own limit) or total (that of all callers).
# TYPE lbd_quota_rejected_total counter
lbd_quota_rejected_total{resource="streams",scope="caller"} 2
lbd_quota_rejected_total{resource="streams",scope="total"} 2
# HELP lbd_quota_used Use of a resource by all API callers, to compare with lbd_quota_limit.
# TYPE lbd_quota_used gauge
lbd_quota_used{resource="streams"} 4
`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want), "lbd_quota_rejected_total", "lbd_quota_used"); err != nil {
		t.Error(err)
	}
}

// A caller that comes back with another class has its limits at once.
func TestClassChanges(t *testing.T) {
	m := New(Options{Totals: map[Resource]int64{Leases: 10}, MaxAccounts: 10})
	a := m.Enter("a", nil, start)
	noError(t, a.Acquire(Leases, 5))
	m.Enter("a", &Class{Limits: map[Resource]int64{Leases: 6}}, start)
	if err := errors.Join(a.Acquire(Leases, 1)); err != nil {
		t.Error(err)
	}
	if err := a.Acquire(Leases, 1); err == nil {
		t.Error("more than the limit of the new class was acquired")
	}
}

// What many callers acquire at the same time never exceeds a limit, and is
// returned when they have released it.
func TestConcurrentAcquire(t *testing.T) {
	m := New(Options{Totals: map[Resource]int64{Bytes: 100}, Share: 0.4, MaxAccounts: 3})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range int64(2000) {
				a := m.Enter(fmt.Sprint((int64(i)+n)%6), nil, start)
				if err := a.Acquire(Bytes, n%50); err == nil {
					a.Release(Bytes, n%50)
				} else if e, ok := errors.AsType[*LimitError](err); !ok || e.Own && e.Limit != 40 || !e.Own && e.Limit != 100 {
					t.Error(err)
				}
				a.Leave()
			}
		})
	}
	wg.Wait()
	if got := m.used[Bytes].Load(); got != 0 {
		t.Errorf("%d are used after all are released", got)
	}
	m.anonymous.accounts.Range(func(key, value any) bool {
		if a, ok := value.(*Account); !ok || a.pins.Load() != 0 || a.used[Bytes].Load() != 0 {
			t.Errorf("account %v: %+v", key, value)
		}
		return true
	})
}

func TestRequest(t *testing.T) {
	m := New(Options{Default: &Class{Rate: 10, Burst: 3}, MaxAccounts: 10})
	a := m.Enter("a", nil, start)
	for _, step := range []struct {
		at    time.Duration
		n     int
		retry time.Duration
	}{
		{0, 1, 0},
		{0, 2, 0},
		{0, 1, 100 * time.Millisecond},
		{60 * time.Millisecond, 1, 40 * time.Millisecond},
		{100 * time.Millisecond, 1, 0},
		{100 * time.Millisecond, 1, 100 * time.Millisecond},
		{time.Hour, 3, 0},
		{time.Hour, 1, 100 * time.Millisecond},
		{2 * time.Hour, 5, 0}, // more than the burst: from a full bucket
		{2 * time.Hour, 1, 300 * time.Millisecond},
	} {
		err := a.Request(step.n, start.Add(step.at))
		e, limited := errors.AsType[*RateError](err)
		if limited != (step.retry > 0) || limited && e.RetryAfter != step.retry {
			t.Errorf("%+v: %v, %+v", step, err, e)
		}
	}
	if err := m.Enter("b", nil, start).Request(3, start); err != nil {
		t.Errorf("another caller: %v", err)
	}
	if err := m.Enter("c", &Class{}, start).Request(1_000_000, start); err != nil {
		t.Errorf("a class without a rate: %v", err)
	}
}

func TestMaxAccounts(t *testing.T) {
	m := New(Options{Totals: map[Resource]int64{Leases: 10}, Default: &Class{Rate: 1}, MaxAccounts: 4})
	enter := func(key string, at time.Time) *Account {
		a := m.Enter(key, nil, at)
		a.Leave()
		return a
	}
	busy, recent := enter("busy", start), enter("recent", start)
	pinned := m.Enter("pinned", nil, start)
	enter("idle", start)
	noError(t, errors.Join(busy.Acquire(Leases, 1), recent.Request(1, start)))
	fifth := enter("fifth", start) // in the place of idle
	if fifth == m.overflow || enter("busy", start) != busy || enter("recent", start) != recent || enter("pinned", start) != pinned {
		t.Error("an account in use was removed")
	}
	noError(t, fifth.Acquire(Leases, 1))
	if enter("sixth", start) != m.overflow || enter("idle", start) != m.overflow {
		t.Error("callers beyond the limit do not share an account")
	}
	// After a second the request does not count any more.
	if enter("seventh", start.Add(time.Second)) == m.overflow {
		t.Error("an account that became idle was not removed")
	}
}

// Callers without identity leave room for the accounts of identities, and the reverse.
func TestIdentitiesHaveAccounts(t *testing.T) {
	m := New(Options{Totals: map[Resource]int64{Leases: 10}, MaxAccounts: 2})
	for _, key := range []string{"1", "2", "3"} {
		_ = m.Enter(key, nil, start).Acquire(Leases, 1)
	}
	a, b := m.EnterIdentity("1", nil, start), m.EnterIdentity("b", nil, start)
	if a == m.overflow || b == m.overflow || a == b || a == m.Enter("1", nil, start) {
		t.Error("an identity shares its account")
	}
	if m.EnterIdentity("c", nil, start) != m.overflow {
		t.Error("accounts of identities have no limit")
	}
	const want = "# HELP lbd_quota_callers Callers whose use is counted.\n# TYPE lbd_quota_callers gauge\nlbd_quota_callers 4\n"
	if err := testutil.CollectAndCompare(m, strings.NewReader(want), "lbd_quota_callers"); err != nil {
		t.Error(err)
	}
}

// Callers beyond MaxAccounts do not each search all accounts.
func TestSearchesForIdleAccounts(t *testing.T) {
	m := New(Options{Totals: map[Resource]int64{Leases: 10}, MaxAccounts: 1})
	busy := m.Enter("busy", nil, start)
	if m.Enter("other", nil, start) != m.overflow {
		t.Error("an account in use was removed")
	}
	busy.Leave()
	if m.Enter("other", nil, start.Add(sweepInterval-1)) != m.overflow {
		t.Error("two searches within the interval")
	}
	if m.Enter("other", nil, start.Add(sweepInterval)) == m.overflow {
		t.Error("no search after the interval")
	}
}

// A caller that enters while its account is being removed, but then is not, has it once.
func TestEnterDuringASearch(t *testing.T) {
	m := New(Options{MaxAccounts: 1})
	a := m.Enter("a", nil, start)
	a.Leave()
	const removing = math.MinInt64 / 2
	a.pins.Store(removing)
	var wg sync.WaitGroup
	wg.Go(func() {
		if m.Enter("a", nil, start) != a {
			t.Error("another account")
		}
	})
	for a.pins.Load() == removing {
		runtime.Gosched()
	}
	a.pins.Add(-removing)
	wg.Wait()
	if pins := a.pins.Load(); pins != 1 {
		t.Errorf("the account is in use %d times; want 1", pins)
	}
}

func BenchmarkRequest(b *testing.B) {
	m := New(Options{Totals: map[Resource]int64{Leases: 1 << 40}, Default: &Class{Rate: 1e9, Burst: 1e9}, MaxAccounts: 10})
	now := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			a := m.Enter("a", nil, now)
			if a.Request(1, now) != nil || a.Acquire(Leases, 1) != nil {
				b.Fail()
			}
			a.Release(Leases, 1)
			a.Leave()
		}
	})
}

// A request that is counted twice is refunded once.
func TestRefund(t *testing.T) {
	m := New(Options{Default: &Class{Rate: 1, Burst: 2}, MaxAccounts: 1})
	a := m.Enter("a", nil, start)
	for range 5 {
		noError(t, a.Request(1, start))
		a.Refund(1)
	}
	for n, want := range []bool{true, true, false} {
		if err := a.Request(1, start); (err == nil) != want {
			t.Errorf("request %d: %v", n, err)
		}
	}
	unlimited := m.Enter("a", &Class{}, start)
	unlimited.Refund(1)
	if err := unlimited.Request(1, start); err != nil {
		t.Error(err)
	}
}
