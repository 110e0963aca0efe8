package picks

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/test/ledgertest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// shares is a fleet whose shares the test sets.
type shares map[*policy.ClusterCounters]int

func (s shares) Share(c *policy.ClusterCounters, _ uint32) { s[c]++ }
func (s shares) Unshare(c *policy.ClusterCounters)         { s[c]-- }

func newFleetKit(t testing.TB) (*kit, *policy.SharedLimit) {
	t.Helper()
	config := ledgertest.Config("orders", &resource.Assignment{Name: "orders", Localities: []*resource.LocalityEndpoints{locality("a", 0, 1, 2)}})
	config.Clusters.Get("orders").Cluster.MaxRequests = 10
	config.Clusters.Get("orders").Cluster.FleetLimit = true
	all := shares{}
	k := newKitOf(t, 0, config, all)
	for c, n := range all {
		if n != 1 {
			t.Errorf("shared %d times", n)
		}
		return k, c.SharedLimit()
	}
	t.Fatal("not shared")
	return nil, nil
}

// TestFleetLimit: a lease of a limit of the fleet is granted before the deadline only, and for a ttl that others
// know.
func TestFleetLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, l := newFleetKit(t)
		now := policy.Clock()
		refused := func(r Request, want fault.Code) {
			t.Helper()
			if _, err := k.pick(r); code(err) != want {
				t.Errorf("%v, want %v", err, want)
			}
		}
		refused(Request{TTL: time.Minute}, fault.CircuitBroken)
		l.Set(2, time.Minute, now+time.Hour)
		out, err := k.pick(Request{TTL: time.Minute})
		if err != nil || k.Confirm(&out) != nil {
			t.Fatal(err)
		}
		id := out.Picks[0].Lease.ID

		// A longer ttl waits until others know it, if it may.
		refused(Request{TTL: time.Minute + 1, NoWait: true}, fault.Internal)
		refused(Request{TTL: time.Minute + 1}, fault.RateLimited)
		if asked := l.TakeLongest(); asked != time.Minute+1 {
			t.Errorf("%v was asked for", asked)
		}
		time.AfterFunc(100*time.Millisecond, func() { l.Set(2, 2*time.Minute, now+time.Hour) })
		if out, err = k.pick(Request{TTL: 2 * time.Minute}); err != nil {
			t.Error(err)
		}
		k.expect(2)

		// The deadline passes before the response is written.
		l.Set(2, 2*time.Minute, policy.Clock())
		if err := k.Confirm(&out); code(err) != fault.CircuitBroken {
			t.Errorf("confirmed after the deadline: %v", err)
		}
		k.expect(1)
		refused(Request{TTL: time.Minute}, fault.CircuitBroken)
		if _, err := k.RenewLease(id, time.Minute); code(err) != fault.CircuitBroken {
			t.Errorf("renewed after the deadline: %v", err)
		}
		l.Set(2, 2*time.Minute, policy.Clock()+time.Hour)
		if _, err := k.RenewLease(id, 3*time.Minute); code(err) != fault.RateLimited {
			t.Errorf("renewed for too long: %v", err)
		}
		if _, err := k.RenewLease(id, time.Minute); err != nil {
			t.Error(err)
		}
		k.expect(1)
		k.close()
	})
}

// TestFleetLimitWithKey: an answer that is repeated is confirmed once.
func TestFleetLimitWithKey(t *testing.T) {
	k, l := newFleetKit(t)
	l.Set(2, time.Minute, policy.Clock()+time.Hour)
	r := Request{TTL: time.Minute, IdempotencyKey: "k"}
	first, err := k.pick(r)
	noError(t, err)
	l.Set(0, 0, 0)
	again, err := k.pick(r)
	if err != nil || k.Confirm(&again) != nil || again.Picks[0].Lease != first.Picks[0].Lease {
		t.Errorf("%+v, %v", again, err)
	}
	k.expect(1)
}

// TestFleetLimitIsExplained: a refused pick says whether the share of this replica is used up, or that it may
// admit nothing.
func TestFleetLimitIsExplained(t *testing.T) {
	k, l := newFleetKit(t)
	explain := func(r Request) (last Step, all []Step) {
		t.Helper()
		r.Explain = true
		_, err := k.pick(r)
		var explained *ExplainedError
		if !errors.As(err, &explained) || len(explained.Explain) == 0 {
			t.Fatalf("%v is not explained", err)
		}
		return explained.Explain[len(explained.Explain)-1], explained.Explain
	}
	l.Set(0, time.Minute, policy.Clock()+time.Hour)
	l.Describe(policy.ShareState{Joined: true, Spare: 4})
	b, _ := explain(Request{TTL: time.Second})
	if want := "the circuit breaker refuses the pick: 0 in flight of at most 0, the share of this replica of 10; other replicas do not need 4 of theirs"; b.Says != want || *b.Breaker.Share != 0 {
		t.Errorf("%q", b.Says)
	}
	l.Set(3, time.Minute, 0)
	last, all := explain(Request{TTL: time.Second})
	if last.Step != "failure" || !strings.Contains(last.Says, "lost the store of the fleet") || len(all) < 3 {
		t.Errorf("%+v", all)
	}
	k.expect(0)
}
