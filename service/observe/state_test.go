package observe

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/test/ledgertest"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// newState returns a state whose tests apply configs themselves.
func newState(tb testing.TB) *State {
	tb.Helper()
	draining, drain := context.WithCancel(tb.Context())
	log := slog.New(slog.DiscardHandler)
	events := NewEvents(log)
	l := ledger.New(ledger.Options{
		Channel: lb.Options{
			Registry: lb.Policies(), Draw: rand.Uint64,
			Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil},
		},
		Report: events.Report, Draining: draining,
	})
	s := NewState(StateOptions{Logger: log, Events: events, Ledger: l, Draining: draining})
	tb.Cleanup(func() {
		drain()
		s.Close()
		l.Close()
	})
	return s
}

// apply gives a cluster a tree of its own.
func apply(tb testing.TB, s *State, cluster string, config *resource.Config) {
	tb.Helper()
	s.ledger.Apply([]resolver.TargetConfig{{Target: resolver.Target(cluster), Config: config}})
	if err := s.ledger.Settle(tb.Context(), []string{resolver.Target(cluster)}); err != nil {
		tb.Fatal(err)
	}
}

// TestFeedsEndWithTheirLastWatcher: without watchers, no feed runs.
func TestFeedsEndWithTheirLastWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState(t)
		ws := NewWatches(s, 0)
		apply(t, s, "orders", ledgertest.Config("orders", ledgertest.Assignment("orders", resource.Locality{})))
		for name, begin := range map[string]func() (*Watch, error){
			"cluster":  func() (*Watch, error) { return ws.WatchCluster(nil, "orders", "", true, "") },
			"overview": func() (*Watch, error) { return ws.WatchClusters(nil, "", "") },
			"daemon":   func() (*Watch, error) { return ws.WatchDaemon(nil) },
		} {
			for range 2 {
				first, err := begin()
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				second, err := begin()
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				first.Close()
				if _, err := second.Next(t.Context()); err != nil {
					t.Errorf("%s after the first watcher left: %v", name, err)
				}
				second.Close()
				ws.running.Wait()
			}
		}
	})
}

// TestFeedReadsWhatChanged: the feed of an idle cluster reads no state, and changes that
// come together are read together.
func TestFeedReadsWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState(t)
		ws := NewWatches(s, 0)
		apply(t, s, "orders", ledgertest.Config("orders", ledgertest.Assignment("orders", resource.Locality{})))
		w, err := ws.WatchCluster(nil, "orders", "", true, "")
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		feed, ok := w.feed.feed.(*clusterFeed)
		if !ok {
			t.Fatalf("the feed is a %T", w.feed.feed)
		}
		reads := func() uint64 {
			t.Helper()
			synctest.Wait()
			return feed.view.Load().reads
		}
		own := s.ledger.Hosted().Own("orders")
		offer := func() {
			a := ledgertest.Assignment("orders", resource.Locality{Zone: "a"})
			apply(t, s, "orders", ledgertest.Config("orders", a))
		}
		for _, c := range []struct {
			name  string
			do    func()
			after time.Duration
			want  uint64
		}{
			{"at first", func() {}, 0, 1},
			{"idle", func() {}, time.Hour, 1},
			{"picks", func() { own.View().Only.CountPick(&policy.Call{Endpoint: new(resource.Endpoint)}) }, time.Hour, 1},
			{"batches that change nothing", func() {
				for range 100 {
					own.Changed.Notify()
				}
			}, time.Hour, 1},
			{"a picker", offer, 0, 2},
			{"more pickers at once", func() {
				for range 10 {
					offer()
				}
			}, 0, 2},
			{"and then", func() {}, stateInterval, 3},
			{"another hour", func() {}, time.Hour, 3},
			{"of the same generation", func() { own.View().Only.SetStale(true) }, 0, 3},
			{"a second later", func() {}, countInterval, 4},
		} {
			c.do()
			time.Sleep(c.after)
			if got := reads(); got != c.want {
				t.Errorf("%s: %d reads of the state, want %d", c.name, got, c.want)
			}
		}
	})
}

// TestEndpointMetricsAreBounded: one more than the bound, in another cluster or in the
// same, is reported and left out.
func TestEndpointMetricsAreBounded(t *testing.T) {
	s := newState(t)
	m := NewMetrics(prometheus.NewRegistry(), s, NewTimeline(s.ledger, -1))
	m.maxEndpoints = 7
	zones := []resource.Locality{{Zone: "a"}, {Zone: "b"}, {Zone: "c"}, {Zone: "d"}, {Zone: "e"}}
	apply(t, s, "a", ledgertest.Config("a", ledgertest.Assignment("a", zones...)))
	apply(t, s, "empty", ledgertest.Config("empty", ledgertest.Assignment("empty")))
	for _, c := range []struct {
		cluster              string
		n, states, truncated int
	}{
		{cluster: "b", n: 1, states: 6},
		{cluster: "b", n: 2, states: 7},
		{cluster: "b", n: 3, states: 7, truncated: 1},
		{cluster: "b", n: 2, states: 7},
		{cluster: "c", n: 1, states: 7, truncated: 1},
	} {
		apply(t, s, c.cluster, ledgertest.Config(c.cluster, ledgertest.Assignment(c.cluster, zones[:c.n]...)))
		for name, want := range map[string]int{"lbd_endpoint_state": c.states, "lbd_endpoint_weight": c.states} {
			if n, err := testutil.GatherAndCount(m.EndpointMetrics(t.Context(), nil), name); err != nil || n != want {
				t.Errorf("%d endpoints in %s: %d of %s, %v; want %d", c.n, c.cluster, n, name, err, want)
			}
		}
		want := fmt.Sprintf(`# HELP lbd_endpoint_series_truncated 1 if endpoints are missing because there are more than 100000 or a cluster did not answer in time, else 0.
# TYPE lbd_endpoint_series_truncated gauge
lbd_endpoint_series_truncated %d
`, c.truncated)
		if err := testutil.GatherAndCompare(m.EndpointMetrics(t.Context(), nil), strings.NewReader(want), "lbd_endpoint_series_truncated"); err != nil {
			t.Errorf("%d endpoints in %s: %v", c.n, c.cluster, err)
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEjectedOrNot: an endpoint is shown as ejected while it fails because of
// that, and not once it is given back and connects, whose last error it still is.
func TestEjectedOrNot(t *testing.T) {
	until := time.Unix(1e9, 0)
	why := &policy.EjectedError{Reason: "it was bad", Until: until}
	for state, want := range map[connectivity.State]string{connectivity.TransientFailure: "EJECTED", connectivity.Connecting: "CONNECTING"} {
		l := LocalityState{Endpoints: []EndpointState{{Address: "a:80", Share: new(0.0)}}}
		fillEndpoints(&l, policy.Node{Endpoints: []policy.EndpointNode{{
			Endpoint: &resource.Endpoint{Addresses: []string{"a:80"}}, State: state, LastErr: why,
		}}}, 1)
		e := l.Endpoints[0]
		if e.State != want || e.LastError != why.Error() || (e.EjectedUntil != nil) != (want == "EJECTED") {
			t.Errorf("%v: %+v, want %s", state, e, want)
		}
		if e.EjectedUntil != nil && !e.EjectedUntil.Equal(until) {
			t.Errorf("until %v, want %v", e.EjectedUntil, until)
		}
	}
}
