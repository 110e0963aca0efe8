package service_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
)

// detecting is an EDS cluster that ejects what fails more than half of its
// requests.
func detecting(t *testing.T) []byte {
	t.Helper()
	return encode(t, object{"type": "EDS", "outlier_detection": object{
		"interval": "10s", "base_ejection_time": "30s", "max_ejection_percent": 50, "enforcing_success_rate": 0,
		"failure_percentage_threshold": 50, "enforcing_failure_percentage": 100,
		"failure_percentage_minimum_hosts": 1, "failure_percentage_request_volume": 3,
	}})
}

// TestEjectionsAreCounted: of three endpoints that fail, a half may be ejected, and
// the third is spared.
func TestEjectionsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := start(t, "", nil)
		defer stop()
		counted := func(enforced, spared int) {
			t.Helper()
			want := fmt.Sprintf(`
# HELP lbd_ejections_total Outliers found. enforced="false": not ejected because of max_ejection_percent or the enforcement percentage. A rise means that requests to some endpoints fail more than to others.
# TYPE lbd_ejections_total counter
lbd_ejections_total{cluster="orders",enforced="false"} %d
lbd_ejections_total{cluster="orders",enforced="true"} %d
`, spared, enforced)
			if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), "lbd_ejections_total"); err != nil {
				t.Error(err)
			}
		}
		push(t, s, sources.Config, "orders", detecting(t))
		push(t, s, sources.Config, "plain", encode(t, object{"type": "EDS"})) // has no such series
		push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 3)}))
		counted(0, 0)
		out, err := pick(s, picks.Request{Cluster: "orders", N: 15, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range out.Picks {
			if _, err := s.EndLease(p.Lease.ID, picks.Failure, nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		counted(2, 1)
		time.Sleep(time.Minute) // all are back, and nothing was asked of them
		synctest.Wait()
		counted(2, 1)
	})
}

// TestEjection: leases that end badly at one endpoint take it away from picks for
// a while, and state, events and metrics say so.
func TestEjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := start(t, "", nil)
		defer stop()
		push(t, s, sources.Config, "orders", detecting(t))
		push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 3)}))
		out, err := pick(s, picks.Request{Cluster: "orders", N: 15, TTL: time.Minute})
		if err != nil || len(out.Picks) != 15 {
			t.Fatal(out, err)
		}
		for _, p := range out.Picks {
			outcome := picks.Success
			if p.Address == "a-1:80" {
				outcome = picks.Failure
			}
			if _, err := s.EndLease(p.Lease.ID, outcome, nil); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		time.Sleep(10 * time.Second)
		synctest.Wait()

		const reason = "failure percentage 100.0% of 5 requests is above 50%"
		c, err := s.Cluster(t.Context(), "orders", "", true)
		if err != nil {
			t.Fatal(err)
		}
		e := c.Priorities[0].Localities[0].Endpoints[1]
		if until := start.Add(40 * time.Second); e.State != "EJECTED" || e.LastError != "ejected by outlier detection: "+reason ||
			e.EjectedUntil == nil || !e.EjectedUntil.Equal(until) || e.Share == nil || *e.Share != 0 {
			t.Errorf("the endpoint: %+v until %v, want %v", e, e.EjectedUntil, until)
		}
		if n := c.Endpoints; n.Ejected != 1 || n.Ready != 2 || n.TransientFailure != 0 || n.Total != 3 {
			t.Errorf("counted %+v", n)
		}
		compare := func(want string, names ...string) {
			t.Helper()
			if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), names...); err != nil {
				t.Error(err)
			}
		}
		compare(`
# HELP lbd_endpoints Endpoints by priority and state.
# TYPE lbd_endpoints gauge
lbd_endpoints{cluster="orders",priority="0",state="ejected",target=""} 1
lbd_endpoints{cluster="orders",priority="0",state="ready",target=""} 2
`, "lbd_endpoints")
		for range 20 {
			if out, err := pick(s, picks.Request{Cluster: "orders"}); err != nil || out.Picks[0].Address == "a-1:80" {
				t.Errorf("picked %+v, %v", out.Picks, err)
			}
		}
		ejected := s.Events(observe.EventFilter{Types: []observe.EventType{observe.EventEjected}, Limit: 9})
		if len(ejected) != 1 || ejected[0].Cluster != "orders" || ejected[0].Address != "a-1:80" || ejected[0].Reason != reason ||
			!strings.Contains(ejected[0].Says, reason) || !ejected[0].Until.Equal(*e.EjectedUntil) {
			t.Errorf("events %+v", ejected)
		}

		time.Sleep(30 * time.Second)
		synctest.Wait()
		if c, err = s.Cluster(t.Context(), "orders", "", true); err != nil {
			t.Fatal(err)
		}
		if e := c.Priorities[0].Localities[0].Endpoints[1]; e.State != "READY" || e.LastError != "" || e.EjectedUntil != nil || c.Endpoints.Ejected != 0 {
			t.Errorf("given back: %+v of %+v", e, c.Endpoints)
		}
		back := s.Events(observe.EventFilter{Types: []observe.EventType{observe.EventUnejected}, Limit: 9})
		if len(back) != 1 || back[0].Cluster != "orders" || back[0].Address != "a-1:80" || back[0].Says == "" || back[0].Until != nil {
			t.Errorf("events %+v", back)
		}
		// Nothing happened to its connection.
		if n := len(s.Events(observe.EventFilter{Types: []observe.EventType{observe.EventConnectionChanged}, Limit: 99})); n != 3 {
			t.Errorf("%d events of connections, want those of the 3 endpoints", n)
		}
		compare(`
# HELP lbd_connect_attempts_total Connection attempts by result: ok, error.
# TYPE lbd_connect_attempts_total counter
lbd_connect_attempts_total{cluster="orders",result="ok",target=""} 3
# HELP lbd_endpoints Endpoints by priority and state.
# TYPE lbd_endpoints gauge
lbd_endpoints{cluster="orders",priority="0",state="ready",target=""} 3
`, "lbd_endpoints", "lbd_connect_attempts_total")
	})
}

// TestCancelledLeasesDoNotEject: a cancelled request is no verdict on the
// endpoint, and neither does one who forgets it.
func TestCancelledLeasesDoNotEject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := start(t, "", nil)
		defer stop()
		push(t, s, sources.Config, "orders", detecting(t))
		push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 2)}))
		out, err := pick(s, picks.Request{Cluster: "orders", N: 20, TTL: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range out.Picks[:10] {
			if _, err := s.EndLease(p.Lease.ID, picks.Cancelled, nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20 * time.Second) // the others expire
		synctest.Wait()
		if ejected := s.Events(observe.EventFilter{Types: []observe.EventType{observe.EventEjected}, Limit: 9}); len(ejected) != 0 {
			t.Errorf("ejected %+v", ejected)
		}
	})
}
