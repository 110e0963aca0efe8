package service_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestMetricsCountEveryPick(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Config, "orders", servicetest.Config(2))
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment([]servicetest.Object{servicetest.Drop("throttle", 0)},
		servicetest.Place("a", 0, 1, append(servicetest.Endpoints("a", 2), servicetest.Object{"health_status": "DRAINING", "endpoint": servicetest.Endpoint("gone")["endpoint"]}))))
	servicetest.Push(t, s, sources.Endpoints, "shed", servicetest.Assignment([]servicetest.Object{servicetest.Drop("all", 100)}, servicetest.Place("a", 0, 1, servicetest.Endpoints("a", 1))))
	for range 3 {
		mustPick(t, s, picks.Request{Cluster: "orders"})
		if _, err := servicetest.Pick(s, picks.Request{Cluster: "shed"}); err == nil {
			t.Fatal("not dropped")
		}
	}
	out := mustPick(t, s, picks.Request{Cluster: "orders", N: 2, TTL: time.Minute})
	mustRefuse(t, s, picks.Request{Cluster: "orders"}, fault.CircuitBroken)
	endLease(t, s, out.Picks[0].Lease.ID, picks.Cancelled, nil)
	if _, err := servicetest.Pick(s, picks.Request{Cluster: "unknown"}); err == nil {
		t.Fatal("picked from an unknown cluster")
	}

	want := `
lbd_circuit_breaker_in_flight{cluster="orders"} 1
lbd_circuit_breaker_in_flight{cluster="shed"} 0
lbd_circuit_breaker_rejections_total{cluster="orders"} 1
lbd_circuit_breaker_rejections_total{cluster="shed"} 0
lbd_drop_ratio{category="all",cluster="shed"} 1
lbd_drop_ratio{category="throttle",cluster="orders"} 0
lbd_drops_total{category="all",cluster="shed"} 3
lbd_drops_total{category="throttle",cluster="orders"} 0
lbd_endpoints{cluster="orders",priority="0",state="ready",target=""} 2
lbd_endpoints{cluster="orders",priority="0",state="unhealthy",target=""} 1
lbd_endpoints{cluster="shed",priority="0",state="ready",target=""} 1
lbd_judged_picks_total{cluster="orders"} 6
lbd_judged_picks_total{cluster="shed"} 3
lbd_leases_active{cluster="orders"} 1
lbd_leases_active{cluster="shed"} 0
lbd_leases_finished_total{cluster="orders",outcome="cancelled"} 1
lbd_locality_picks_total{cluster="orders",locality="/a/",priority="0",target=""} 5
lbd_picks_total{cluster="orders",result="circuit_broken",target=""} 1
lbd_picks_total{cluster="orders",result="ok",target=""} 5
lbd_picks_total{cluster="shed",result="dropped",target=""} 3
lbd_picks_total{cluster="shed",result="ok",target=""} 0
`
	service.CompareSeries(t, s.Metrics, want)
	problems, err := testutil.GatherAndLint(s.Metrics)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %+v, %v", problems, err)
	}
}

func TestSeriesGoWithTheirCluster(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	count := func() int {
		n, err := testutil.GatherAndCount(s.Metrics)
		servicetest.Must(t, err)
		return n
	}
	none := count()
	for i := range 10 {
		servicetest.Push(t, s, sources.Endpoints, fmt.Sprint("c", i), servicetest.Assignment(
			[]servicetest.Object{servicetest.Drop("a", 0), servicetest.Drop("b", 1)}, servicetest.Place("a", 0, 1, servicetest.Endpoints("a", 3)), servicetest.Place("b", 1, 1, servicetest.Endpoints("b", 3))))
	}
	if all := count() - none; all != 10*25 {
		t.Errorf("10 idle clusters have %d series, want 25 each", all)
	}
	for i := range 10 {
		deleteEndpoints(t, s, fmt.Sprint("c", i))
	}
	if left := count() - none; left != 0 {
		t.Errorf("%d series are left of clusters that are gone", left)
	}
}

func TestSeriesAreThoseOfTheNewestConfig(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	for i := range 5 {
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment([]servicetest.Object{servicetest.Drop(fmt.Sprint("c", i), 0)},
			servicetest.Place(fmt.Sprint("z", i), 0, 1, servicetest.Endpoints("a", 1)), servicetest.Place("kept", 1, 1, servicetest.Endpoints("b", 1))))
		for range 2 {
			mustPick(t, s, picks.Request{Cluster: "orders"})
			mustRefuse(t, s, picks.Request{Cluster: "orders", Exclude: []string{"a-0:80"}}, fault.AllExcluded)
		}
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment([]servicetest.Object{servicetest.Drop(fmt.Sprint("c", i), 0)},
			servicetest.Place("kept", 0, 1, servicetest.Endpoints("b", 1))))
		mustPick(t, s, picks.Request{Cluster: "orders"})
	}
	want := `
lbd_drop_ratio{category="c4",cluster="orders"} 0
lbd_drops_total{category="c4",cluster="orders"} 0
lbd_locality_picks_total{cluster="orders",locality="/kept/",priority="0",target=""} 1
lbd_picks_total{cluster="orders",result="all_excluded",target=""} 10
lbd_picks_total{cluster="orders",result="ok",target=""} 15
`
	service.CompareSeries(t, s.Metrics, want)
}

func TestACategoryThatIsThereTwiceIsOneSeries(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment([]servicetest.Object{servicetest.Drop("a", 50), servicetest.Drop("b", 0), servicetest.Drop("a", 50), servicetest.Drop("c", 100)}, servicetest.Place("z", 0, 1, servicetest.Endpoints("a", 1))))
	dropped := 0
	for range 100 {
		_, err := servicetest.Pick(s, picks.Request{Cluster: "orders"})
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != fault.Dropped {
			t.Fatal(err)
		}
		if e.Category == "a" {
			dropped++
		}
	}
	want := fmt.Sprintf(`
lbd_drop_ratio{category="a",cluster="orders"} 0.75
lbd_drop_ratio{category="b",cluster="orders"} 0
lbd_drop_ratio{category="c",cluster="orders"} 1
lbd_drops_total{category="a",cluster="orders"} %d
lbd_drops_total{category="b",cluster="orders"} 0
lbd_drops_total{category="c",cluster="orders"} %d
`, dropped, 100-dropped)
	service.CompareSeries(t, s.Metrics, want)
}

func TestCountersOutliveTheEndpoints(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Config, "orders", servicetest.Config(0))
	shed := servicetest.Assignment([]servicetest.Object{servicetest.Drop("half", 50)}, servicetest.Place("z", 0, 1, servicetest.Endpoints("a", 1)))
	servicetest.Push(t, s, sources.Endpoints, "orders", shed)
	dropped, rejected := 0, 0
	for range 20 {
		switch _, err := servicetest.Pick(s, picks.Request{Cluster: "orders"}); servicetest.Code(err) {
		case fault.Dropped:
			dropped++
		case fault.CircuitBroken:
			rejected++
		default:
			t.Fatal(err)
		}
	}
	// Without endpoints the tree fails, and lets go of all below it.
	deleteEndpoints(t, s, "orders")
	mustRefuse(t, s, picks.Request{Cluster: "orders"}, fault.NoReadyEndpoint)
	servicetest.Push(t, s, sources.Endpoints, "orders", shed)
	want := fmt.Sprintf(`
lbd_circuit_breaker_rejections_total{cluster="orders"} %d
lbd_drops_total{category="half",cluster="orders"} %d
`, rejected, dropped)
	service.CompareSeries(t, s.Metrics, want)
}

// TestSwitchesBeginAtZero: the first of each reason is a rise, where a switch can
// be. The others are no series.
func TestSwitchesBeginAtZero(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Endpoints, "one", servicetest.Usable("a", 1))
	servicetest.Push(t, s, sources.Endpoints, "two", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints("a", 1)), servicetest.Place("b", 1, 1, servicetest.Endpoints("b", 1))))
	const want = `
lbd_priority_switches_total{cluster="two",reason="failure",target=""} 0
lbd_priority_switches_total{cluster="two",reason="init_timeout",target=""} 0
lbd_priority_switches_total{cluster="two",reason="recovered",target=""} 0
lbd_priority_switches_total{cluster="two",reason="update",target=""} 0
`
	service.CompareSeries(t, s.Metrics, want)
}

// TestPushesCountByWhatBecameOfThem: rejected is what breaks a rule, and nothing else.
func TestPushesCountByWhatBecameOfThem(t *testing.T) {
	s, stop := servicetest.Start(t, "", nil)
	good := servicetest.Usable("a", 1)
	for _, r := range []sources.PushRequest{
		{Body: good},
		{Body: good}, // changes nothing
		{Body: good, Options: sources.ChangeOptions{DryRun: true}},
		{Body: []byte("{"), Options: sources.ChangeOptions{DryRun: true}},
		{Body: servicetest.Assignment(nil), Options: sources.ChangeOptions{DryRun: true}},
		{Body: []byte("{")},
		{Body: servicetest.Assignment(nil)},
		{Body: good, Options: sources.ChangeOptions{Precondition: sources.Precondition{IfNoneMatch: true}}},
	} {
		r.Kind, r.Cluster = sources.Endpoints, "orders"
		_, _ = s.Sources.Push(t.Context(), &r)
	}
	for _, dry := range []bool{false, true} {
		if _, err := s.Sources.Delete(t.Context(), sources.Config, "unknown", sources.ChangeOptions{DryRun: dry}); servicetest.Code(err) != fault.UnknownCluster {
			t.Error(err)
		}
	}
	if _, err := s.Sources.DropTarget(t.Context(), "unknown", sources.ChangeOptions{}); servicetest.Code(err) != fault.UnknownTarget {
		t.Error(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := s.Sources.Push(ended, &sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Body: good}); servicetest.Code(err) != fault.CallerGone {
		t.Error(err)
	}
	stop()
	if _, err := s.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Body: good}); servicetest.Code(err) != fault.ShuttingDown {
		t.Error(err)
	}
	const want = `
lbd_pushes_total{result="applied"} 1
lbd_pushes_total{result="blocked"} 1
lbd_pushes_total{result="cancelled"} 1
lbd_pushes_total{result="dry_run"} 4
lbd_pushes_total{result="internal"} 0
lbd_pushes_total{result="not_found"} 2
lbd_pushes_total{result="precondition_failed"} 1
lbd_pushes_total{result="rate_limited"} 0
lbd_pushes_total{result="rejected"} 1
lbd_pushes_total{result="shutting_down"} 1
lbd_pushes_total{result="storage_failed"} 0
lbd_pushes_total{result="store_unavailable"} 0
lbd_pushes_total{result="unchanged"} 1
`
	service.CompareSeries(t, s.Metrics, want)
	var refused []string
	for _, e := range s.Events.Last(observe.EventFilter{Types: []observe.EventType{observe.EventPushRefused}, Limit: 100}) {
		refused = append(refused, e.Reason)
	}
	if want := "[shutting_down cancelled precondition_failed blocked invalid_argument]"; fmt.Sprint(refused) != want {
		t.Errorf("events of refused pushes %v, want %s", refused, want)
	}
}

// slammingConnector connects, and loses the connection at once.
type slammingConnector struct{}

func (slammingConnector) Start(addresses []string, report func(lb.Connection)) (stop func()) {
	go func() {
		report(lb.Connection{Address: addresses[0]})
		report(lb.Connection{Err: errors.New("closed by the peer")})
	}()
	return func() {}
}

// TestConnectionLostAtOnce: it was an attempt that went well, and then a loss.
func TestConnectionLostAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", func(o *service.Options) {
			o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: slammingConnector{}}
		})
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
		synctest.Wait()
		var got []string
		for _, e := range s.Events.Last(observe.EventFilter{Types: []observe.EventType{observe.EventConnectionChanged}, Limit: 100}) {
			got = append(got, fmt.Sprintf("%s: %s to %s", e.Says, e.From, e.To))
		}
		want := []string{"connection lost immediately: READY to TRANSIENT_FAILURE", "connected: CONNECTING to READY"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		const series = `
lbd_connect_attempts_total{cluster="orders",result="ok",target=""} 1
lbd_disconnects_total{cluster="orders",reason="lost",target=""} 1
`
		service.CompareSeries(t, s.Metrics, series)
	})
}

func TestEndpointMetrics(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Endpoints, "a", servicetest.Assignment(nil,
		servicetest.Place("x", 0, 3, append(servicetest.Endpoints("x", 1), servicetest.Object{
			"health_status": "DRAINING", "load_balancing_weight": 7, "endpoint": servicetest.Endpoint("gone")["endpoint"],
		})),
		servicetest.Place("y", 0, 1, servicetest.Endpoints("y", 2)),
		servicetest.Place("x", 1, 1, servicetest.Endpoints("spare", 1))))
	servicetest.Push(t, s, sources.Endpoints, "b/c", servicetest.Assignment(nil, servicetest.Place("", 0, 1, servicetest.Endpoints("b", 1))))
	servicetest.Push(t, s, sources.Config, "homeless", servicetest.Config(1))
	const want = `
lbd_endpoint_series_truncated 0
lbd_endpoint_share{address="b-0:80",cluster="b/c",locality="//",priority="0",target=""} 1
lbd_endpoint_share{address="gone:80",cluster="a",locality="/x/",priority="0",target=""} 0
lbd_endpoint_share{address="spare-0:80",cluster="a",locality="/x/",priority="1",target=""} 0
lbd_endpoint_share{address="x-0:80",cluster="a",locality="/x/",priority="0",target=""} 0.75
lbd_endpoint_share{address="y-0:80",cluster="a",locality="/y/",priority="0",target=""} 0.125
lbd_endpoint_share{address="y-1:80",cluster="a",locality="/y/",priority="0",target=""} 0.125
lbd_endpoint_state{address="b-0:80",cluster="b/c",locality="//",priority="0",state="ready",target=""} 1
lbd_endpoint_state{address="gone:80",cluster="a",locality="/x/",priority="0",state="unhealthy",target=""} 1
lbd_endpoint_state{address="spare-0:80",cluster="a",locality="/x/",priority="1",state="idle",target=""} 1
lbd_endpoint_state{address="x-0:80",cluster="a",locality="/x/",priority="0",state="ready",target=""} 1
lbd_endpoint_state{address="y-0:80",cluster="a",locality="/y/",priority="0",state="ready",target=""} 1
lbd_endpoint_state{address="y-1:80",cluster="a",locality="/y/",priority="0",state="ready",target=""} 1
lbd_endpoint_weight{address="b-0:80",cluster="b/c",locality="//",priority="0",target=""} 1
lbd_endpoint_weight{address="gone:80",cluster="a",locality="/x/",priority="0",target=""} 7
lbd_endpoint_weight{address="spare-0:80",cluster="a",locality="/x/",priority="1",target=""} 1
lbd_endpoint_weight{address="x-0:80",cluster="a",locality="/x/",priority="0",target=""} 1
lbd_endpoint_weight{address="y-0:80",cluster="a",locality="/y/",priority="0",target=""} 1
lbd_endpoint_weight{address="y-1:80",cluster="a",locality="/y/",priority="0",target=""} 1
`
	service.CompareSeries(t, s.Metrics.EndpointMetrics(t.Context(), nil), want)
	if problems, err := testutil.GatherAndLint(s.Metrics.EndpointMetrics(t.Context(), nil)); err != nil || len(problems) > 0 {
		t.Errorf("lint: %+v, %v", problems, err)
	}
	all, err := s.Metrics.Gather()
	servicetest.Must(t, err)
	for _, f := range all {
		if strings.HasPrefix(f.GetName(), "lbd_endpoint_") {
			t.Errorf("%s is among the metrics of everybody", f.GetName())
		}
	}
}

// gathered sums the values of each family.
func gathered(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	servicetest.Must(t, err)
	sums := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			sums[f.GetName()] += m.GetGauge().GetValue()
		}
	}
	return sums
}

// stuck is a logger's handler that waits when something is told of a cluster.
type stuck struct {
	slog.Handler
	cluster string
	until   chan struct{}
}

func (stuck) Enabled(context.Context, slog.Level) bool { return true }

func (h stuck) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h stuck) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "cluster" && a.Value.String() == h.cluster && r.Message == "cluster state changed" {
			<-h.until
		}
		return true
	})
	return nil
}

// A tree that does not answer is waited for a second, and the others are there.
func TestEndpointMetricsWaitForNoTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		s, stop := servicetest.Start(t, "", func(o *service.Options) {
			o.Logger = slog.New(stuck{Handler: slog.DiscardHandler, cluster: "b", until: until})
		})
		servicetest.Push(t, s, sources.Endpoints, "a", servicetest.Usable("x", 2))
		servicetest.Push(t, s, sources.Endpoints, "c", servicetest.Usable("x", 3))
		pushed := make(chan struct{})
		go func() {
			defer close(pushed)
			servicetest.Push(t, s, sources.Endpoints, "b", servicetest.Usable("x", 4))
		}()
		synctest.Wait()
		began := time.Now()
		got := gathered(t, s.Metrics.EndpointMetrics(t.Context(), nil))
		if took := time.Since(began); took != time.Second || got["lbd_endpoint_state"] != 5 || got["lbd_endpoint_series_truncated"] != 1 {
			t.Errorf("after %v: %v", took, got)
		}
		left, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		if got := gathered(t, s.Metrics.EndpointMetrics(left, nil)); time.Since(began) != 0 || got["lbd_endpoint_series_truncated"] != 1 {
			t.Errorf("the caller is gone; after %v: %v", time.Since(began), got)
		}
		close(until)
		<-pushed
		if got := gathered(t, s.Metrics.EndpointMetrics(t.Context(), nil)); got["lbd_endpoint_state"] != 9 || got["lbd_endpoint_series_truncated"] != 0 {
			t.Errorf("once it answers: %v", got)
		}
		stop()
	})
}
