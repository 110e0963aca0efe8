package picks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/picks/wheel"
	"github.com/lbd-dev/lbd/service/quota"
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

func owned(identity, name string) ledger.Owner { return ledger.Owner{Identity: identity, Name: name} }

// Leases that expire at one time all end, soon after it, and a renewed one does not.
func TestLeasesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, 0, nil, 5000, locality("a", 0, 1, 1))
		var renewed LeaseID
		for range 3 {
			out, err := k.pick(Request{N: 1000, TTL: time.Minute})
			if err != nil || len(out.Picks) != 1000 {
				t.Fatal(len(out.Picks), err)
			}
			renewed = out.Picks[0].Lease.ID
		}
		time.Sleep(30 * time.Second)
		if _, err := k.RenewLease(renewed, time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30*time.Second - 1)
		k.expect(3000)
		time.Sleep(3 * wheel.Tick)
		synctest.Wait()
		k.expect(1)
		time.Sleep(time.Hour)
		k.expect(0)
	})
}

// A lease whose time has come has ended, even before the wheel has seen it.
func TestExpiredLeaseHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, use := range map[string]func(k *kit, id LeaseID) error{
			"get": func(k *kit, id LeaseID) error { s, err := k.Lease(id); return errors.Join(err, expiredAt(s)) },
			"end": func(k *kit, id LeaseID) error {
				s, err := k.EndLease(id, Success, nil)
				return errors.Join(err, expiredAt(s))
			},
			"renew": func(k *kit, id LeaseID) error { _, err := k.RenewLease(id, time.Minute); return wantUnknown(err) },
		} {
			k := newKit(t, 0, nil, 10, locality("a", 0, 1, 1))
			out, err := k.pick(Request{TTL: time.Millisecond})
			noError(t, err)
			time.Sleep(time.Millisecond)
			if err := use(k, out.Picks[0].Lease.ID); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			k.expect(0)
		}
	})
}

func expiredAt(s LeaseState) error {
	if s.State != "ended" || s.Outcome != Expired {
		return fmt.Errorf("lease %+v", s)
	}
	return nil
}

func wantUnknown(err error) error {
	if code(err) != fault.UnknownLease {
		return fmt.Errorf("got %w", err)
	}
	return nil
}

func TestLeasesAreListedAndEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, 0, nil, 1024, locality("a", 0, 1, 1))
		hold := func(n int, o ledger.Owner) {
			t.Helper()
			if _, err := k.pick(Request{N: n, TTL: time.Hour, Owner: o}); err != nil {
				t.Fatal(err)
			}
		}
		web, batch := owned("web", ""), owned("web", "batch")
		hold(3, web)
		hold(4, batch)
		time.Sleep(time.Minute)
		hold(5, owned("", "batch"))
		identity := "web"
		for name, tt := range map[string]struct {
			filter LeaseFilter
			want   int
		}{
			"all":          {LeaseFilter{}, 12},
			"cluster":      {LeaseFilter{Cluster: "orders"}, 12},
			"another":      {LeaseFilter{Cluster: "users"}, 0},
			"owner":        {LeaseFilter{Owner: "batch"}, 9},
			"identity":     {LeaseFilter{Identity: &identity}, 7},
			"both":         {LeaseFilter{Identity: &identity, Owner: "batch"}, 4},
			"no identity":  {LeaseFilter{Identity: new(string)}, 5},
			"old":          {LeaseFilter{OlderThan: time.Minute}, 7},
			"hidden":       {LeaseFilter{MaySee: func(string) bool { return false }}, 0},
			"visible":      {LeaseFilter{MaySee: func(c string) bool { return c == "orders" }}, 12},
			"owner, older": {LeaseFilter{Owner: "batch", OlderThan: time.Second}, 4},
		} {
			tt.filter.Limit = 100
			if list, more := k.Leases(tt.filter); len(list) != tt.want || more {
				t.Errorf("%s: %d leases, more: %v; want %d", name, len(list), more, tt.want)
			}
		}
		calls := 0
		if k.Leases(LeaseFilter{Limit: 100, MaySee: func(string) bool { calls++; return true }}); calls != 1 {
			t.Errorf("MaySee is called %d times for one cluster", calls)
		}
		var ids []string
		for f := (LeaseFilter{Limit: 5}); ; f.After = ids[len(ids)-1] {
			list, more := k.Leases(f)
			for _, l := range list {
				ids = append(ids, l.ID.String())
			}
			if !more {
				break
			}
		}
		if !slices.IsSorted(ids) || len(slices.Compact(ids)) != 12 {
			t.Errorf("pages have the IDs %v", ids)
		}
		ended := k.EndLeases(LeaseFilter{Owner: "batch", Identity: &identity}, "")
		if len(ended) != 1 || ended[EndedLeases{"orders", batch}] != 4 {
			t.Errorf("ended %v", ended)
		}
		c := k.expect(8)
		if got := fmt.Sprint(c.Totals.Leases.Largest(time.Now())); got != "[batch (5) web (3)]" {
			t.Errorf("largest holders: %s", got)
		}
		if got := k.EndLeases(LeaseFilter{}, ""); len(got) != 2 {
			t.Errorf("ended %v", got)
		}
		k.expect(0)
	})
}

// EndLeases ends more leases than one batch has.
func TestManyLeasesEnd(t *testing.T) {
	k := newKit(t, 0, nil, 100_000, locality("a", 0, 1, 1))
	const all = 3 * leaseShards * expireAtOnce / 2
	for held := 0; held < all; held += 1000 {
		if _, err := k.pick(Request{N: min(1000, all-held), TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	k.expect(all)
	if got := k.EndLeases(LeaseFilter{Cluster: "orders"}, ""); got[EndedLeases{Cluster: "orders"}] != all {
		t.Errorf("ended %v; want %d", got, all)
	}
	k.expect(0)
}

// The leases of a cluster that is removed can be listed and ended by its name, and those that
// remain count again when it comes back.
func TestLeasesOutliveTheirCluster(t *testing.T) {
	k := newKit(t, 0, nil, 4, locality("a", 0, 1, 1))
	if _, err := k.pick(Request{N: 3, TTL: time.Hour, Owner: owned("", "stays")}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.pick(Request{N: 1, TTL: time.Hour, Owner: owned("", "goes")}); err != nil {
		t.Fatal(err)
	}
	target := resolver.Target("orders")
	config := k.ledger.Hosted().Own("orders").Cluster("orders").Config
	k.ledger.Apply([]resolver.TargetConfig{{Target: target}}).Close()
	if list, _ := k.Leases(LeaseFilter{Cluster: "orders", Limit: 10}); len(list) != 4 {
		t.Errorf("%d leases of the removed cluster", len(list))
	}
	if ended := k.EndLeases(LeaseFilter{Cluster: "orders", Owner: "goes"}, ""); ended[EndedLeases{"orders", owned("", "goes")}] != 1 {
		t.Errorf("ended %v", ended)
	}
	k.ledger.Apply([]resolver.TargetConfig{{Target: target, Config: config}})
	noError(t, k.ledger.Settle(t.Context(), []string{target}))
	if out, err := k.pick(Request{N: 4, TTL: time.Hour}); err != nil || len(out.Picks) != 1 {
		t.Errorf("%d leases beside the three, %v", len(out.Picks), err)
	}
	k.expect(4)
	k.ledger.Apply([]resolver.TargetConfig{{Target: target}}).Close()
	k.EndLeases(LeaseFilter{}, "")
	if list, _ := k.Leases(LeaseFilter{Limit: 10}); len(list) != 0 {
		t.Errorf("%d leases remain", len(list))
	}
}

func TestMaxLeaseShare(t *testing.T) {
	k := newKit(t, 0, nil, 10, locality("a", 0, 1, 1))
	k.options.MaxLeaseShare = 0.25
	greedy, other := owned("", "greedy"), owned("", "other")
	out, err := k.pick(Request{N: 5, TTL: time.Hour, Owner: greedy})
	if err != nil || len(out.Picks) != 3 { // a quarter of 10, rounded up
		t.Fatalf("%d leases, %v", len(out.Picks), err)
	}
	if _, err := k.pick(Request{TTL: time.Hour, Owner: greedy}); code(err) != fault.RateLimited || !strings.Contains(err.Error(), "greedy holds 3 leases of the cluster, as many as max_lease_share permits") {
		t.Errorf("more than the share: %v", err)
	}
	if _, err := k.pick(Request{TTL: time.Hour, Owner: other}); err != nil {
		t.Errorf("another owner: %v", err)
	}
	if _, err := k.EndLease(out.Picks[0].Lease.ID, Success, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := k.pick(Request{TTL: time.Hour, Owner: greedy}); err != nil {
		t.Errorf("after a lease ended: %v", err)
	}
	k.expect(4)
	k.options.MaxLeaseShare = 0
	if out, err = k.pick(Request{N: 7, TTL: time.Hour, Owner: greedy}); err != nil || len(out.Picks) != 6 {
		t.Fatalf("without a share: %d leases, %v", len(out.Picks), err)
	}
	_, err = k.pick(Request{})
	e, ok := errors.AsType[*ExplainedError](err)
	if want := []ledger.Holder{{Owner: greedy, Leases: 9}, {Owner: other, Leases: 1}}; !ok || code(err) != fault.CircuitBroken || !slices.Equal(e.Holders, want) {
		t.Errorf("the full breaker: %v, holders %+v", err, e)
	}
}

// The share of a cluster's own config replaces the default.
func TestMaxLeaseShareOfCluster(t *testing.T) {
	k := newKit(t, 0, nil, 10, locality("a", 0, 1, 1))
	k.options.MaxLeaseShare = 0.9
	config := *k.ledger.Hosted().Own("orders").Cluster("orders").Config
	own, cluster := *config.Clusters.Get("orders"), *config.Clusters.Get("orders").Cluster
	cluster.MaxLeaseShare = 0.5
	own.Cluster = &cluster
	config.Clusters = few.Of(map[string]*resource.ClusterConfig{"orders": &own})
	target := resolver.Target("orders")
	k.ledger.Apply([]resolver.TargetConfig{{Target: target, Config: &config}})
	noError(t, k.ledger.Settle(t.Context(), []string{target}))
	if out, err := k.pick(Request{N: 10, TTL: time.Hour}); err != nil || len(out.Picks) != 5 {
		t.Errorf("%d leases, %v; want half of 10", len(out.Picks), err)
	}
}

// Leases and idempotency keys count against the quotas of their caller until they end.
func TestQuotasOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, 0, nil, 1024, locality("a", 0, 1, 1))
		m := quota.New(quota.Options{
			Totals: map[quota.Resource]int64{quota.Leases: 3, quota.Bytes: 4*LeaseBytes + KeyBytes + AnswerBytes + 100}, Share: 1, MaxAccounts: 1,
		})
		a := m.Enter("a", nil, time.Now())
		r := Request{TTL: time.Minute, Account: a, Owner: owned("", "me"), IdempotencyKey: "k"}
		out, err := k.pick(r)
		noError(t, err)
		if used := a.Used(quota.Bytes); used != LeaseBytes+2+KeyBytes+1+AnswerBytes || a.Used(quota.Leases) != 1 {
			t.Errorf("%d bytes and %d leases are used", used, a.Used(quota.Leases))
		}
		second := r
		second.IdempotencyKey = "l"
		second.N = 100
		if _, err := k.pick(second); code(err) != fault.RateLimited || !strings.Contains(err.Error(), "bytes") {
			t.Errorf("a key without room: %v", err)
		}
		if again, err := k.pick(r); err != nil || again.Picks[0].Lease.ID != out.Picks[0].Lease.ID {
			t.Errorf("the same key: %+v, %v", again, err)
		}
		many := Request{TTL: time.Hour, Account: a, N: 5}
		if out, err := k.pick(many); err != nil || len(out.Picks) != 2 {
			t.Errorf("%d leases, %v", len(out.Picks), err)
		}
		if _, err := k.pick(many); code(err) != fault.RateLimited || !strings.Contains(err.Error(), "leases") {
			t.Errorf("more leases: %v", err)
		}
		time.Sleep(time.Minute + 3*wheel.Tick) // the key and its lease expire
		synctest.Wait()
		if used := a.Used(quota.Bytes); used != 2*LeaseBytes || a.Used(quota.Leases) != 2 {
			t.Errorf("after a minute, %d bytes and %d leases are used", used, a.Used(quota.Leases))
		}
		if again, err := k.pick(r); err != nil || again.Picks[0].Lease.ID == out.Picks[0].Lease.ID {
			t.Errorf("the key after its time: %+v, %v", again, err)
		}
		k.EndLeases(LeaseFilter{}, "")
		time.Sleep(r.TTL + time.Second)
		synctest.Wait()
		if a.Used(quota.Bytes) != 0 || a.Used(quota.Leases) != 0 {
			t.Errorf("%d bytes and %d leases are used in the end", a.Used(quota.Bytes), a.Used(quota.Leases))
		}
	})
}
