package service_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/lrs"
	"github.com/lbd-dev/lbd/xds/resource"
)

// weighted is an EDS cluster whose endpoints take turns by their loads.
func weighted() []byte {
	return servicetest.Encode(servicetest.Object{"type": "EDS", "load_balancing_policy": servicetest.Object{"policies": []servicetest.Object{{"typed_extension_config": servicetest.Object{
		"name": "weighted",
		"typed_config": servicetest.Object{
			"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality",
			"endpoint_picking_policy": servicetest.Object{"policies": []servicetest.Object{{"typed_extension_config": servicetest.Object{
				"name":         "weighted",
				"typed_config": servicetest.Object{"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin"},
			}}}},
		},
	}}}}})
}

// TestLoadsWeighPicks: the load that is told with a lease's end gives its
// endpoint its share of picks.
func TestLoadsWeighPicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Config, "orders", weighted())
		two := servicetest.Endpoints("a", 2)
		two[1]["load_balancing_weight"] = 3
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, two)))
		shares := func(a, b float64, says string) {
			t.Helper()
			c := clusterState(t, s, "orders", "", true)
			e := c.Priorities[0].Localities[0].Endpoints
			if math.Abs(*e[0].Share-a) > 1e-9 || math.Abs(*e[1].Share-b) > 1e-9 {
				t.Errorf("shares %g and %g, want %g and %g", *e[0].Share, *e[1].Share, a, b)
			}
			got := map[string]int{}
			for range 100 {
				out := mustPick(t, s, picks.Request{Cluster: "orders"})
				got[out.Picks[0].Address]++
			}
			if math.Abs(float64(got["a-0:80"])-100*a) > 2 {
				t.Errorf("100 picks reach %v, want shares of %g and %g", got, a, b)
			}
			out := mustPick(t, s, picks.Request{Cluster: "orders", Exclude: []string{"a-0:80"}, Explain: true})
			steps := out.Picks[0].Explain
			last := steps[len(steps)-1]
			if !strings.Contains(last.Says, says) || last.Endpoint.Turn == nil || math.Abs(last.Endpoint.Turn.Share-b) > 1e-9 {
				t.Errorf("explained %s, %+v; want %s", last.Says, last.Endpoint.Turn, says)
			}
		}
		const took = "number 1 of 2 in rotation, which has "
		shares(0.25, 0.75, took+"75.0% of the turns by its weight of 3 from eds (")

		for range 11 { // past the blackout
			out := mustPick(t, s, picks.Request{Cluster: "orders", N: 10, TTL: time.Minute})
			for _, p := range out.Picks {
				load := picks.Load{RPSFractional: 90, CPUUtilization: 1, EPS: 0}
				if p.Address == "a-1:80" {
					load = picks.Load{RPSFractional: 90, CPUUtilization: 0.9, ApplicationUtilization: 4, EPS: 45}
				}
				endLease(t, s, p.Lease.ID, picks.Success, &load)
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		shares(90/110., 20/110., took+"18.2% of the turns by its weight of 20 from loads (")
	})
}

// reportee is a management server that takes load reports every 50 ms.
type reportee struct {
	lrsv3.UnimplementedLoadReportingServiceServer

	all   chan []*endpointv3.ClusterStats // once the client has said all
	first chan struct{}                   // of size 1: a report with load came
}

func (l *reportee) StreamLoadStats(stream lrsv3.LoadReportingService_StreamLoadStatsServer) error {
	var all []*endpointv3.ClusterStats
	if err := stream.Send(&lrsv3.LoadStatsResponse{
		SendAllClusters: true, LoadReportingInterval: durationpb.New(50 * time.Millisecond),
	}); err != nil {
		return err
	}
	for {
		request, err := stream.Recv()
		if err != nil {
			l.all <- all
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		all = append(all, request.GetClusterStats()...)
		if len(request.GetClusterStats()) > 0 {
			select {
			case l.first <- struct{}{}:
			default:
			}
		}
	}
}

// load is what picks came to, of one zone.
type load struct {
	issued, succeeded, failed, inProgress uint64
	metrics, total                        float64
}

// TestReportedLoadAddsUp: the reports to a management server match the picks, by
// many at once, while the places change where picks go.
func TestReportedLoadAddsUp(t *testing.T) {
	at, err := net.Listen("tcp", "127.0.0.1:0")
	servicetest.Must(t, err)
	server := &reportee{all: make(chan []*endpointv3.ClusterStats, 1), first: make(chan struct{}, 1)}
	g := grpc.NewServer()
	lrsv3.RegisterLoadReportingServiceServer(g, server)
	go func() { _ = g.Serve(at) }()
	defer g.Stop()
	boot, err := bootstrap.Parse(fmt.Appendf(nil,
		`{"node":{"id":"n"},"xds_servers":[{"server_uri":%q,"channel_creds":[{"type":"insecure"}]}]}`, at.Addr()), bootstrap.Options{})
	servicetest.Must(t, err)

	s, _ := servicetest.Start(t, "", nil)
	r := lrs.New(lrs.Options{Node: &corev3.Node{Id: "n"}, Loads: s.Loads, Logger: slog.New(slog.DiscardHandler)})
	defer r.Close()
	r.Report(boot.Servers[0], resource.ServiceKey{Cluster: "orders", EDSServiceName: "orders-eds"})
	limit := func(n int) {
		servicetest.Push(t, s, sources.Config, "orders", servicetest.Encode(servicetest.Object{
			"type": "EDS", "lrs_server": servicetest.Object{"self": servicetest.Object{}}, "lrs_report_endpoint_metrics": []string{"named_metrics.q"},
			"eds_cluster_config": servicetest.Object{"service_name": "orders-eds"},
			"circuit_breakers":   servicetest.Object{"thresholds": []servicetest.Object{{"max_requests": n}}},
		}))
	}
	limit(1000)
	places := func(i int) {
		servicetest.Push(t, s, sources.Endpoints, "orders-eds", servicetest.Assignment([]servicetest.Object{servicetest.Drop("throttle", 10)},
			servicetest.Place("always", 0, 1, servicetest.Endpoints("a", 2)), servicetest.Place(fmt.Sprint(i%50), 0, 1, servicetest.Endpoints("b", 2))))
	}
	places(0)

	var mu sync.Mutex
	want := map[string]load{}
	var dropped uint64
	count := func(zone string, add load) {
		mu.Lock()
		defer mu.Unlock()
		l := want[zone]
		want[zone] = load{
			l.issued + add.issued, l.succeeded + add.succeeded, l.failed + add.failed,
			l.inProgress + add.inProgress, l.metrics + add.metrics, l.total + add.total,
		}
	}
	outcomes := []picks.Outcome{picks.Success, picks.Failure, picks.Cancelled, picks.Unreachable, ""}
	var picking, changes sync.WaitGroup
	for worker := range 8 {
		picking.Go(func() {
			draw := rand.New(rand.NewPCG(1, uint64(worker)))
			for range 1000 {
				request := picks.Request{Cluster: "orders", Wait: 10 * time.Second}
				leased := draw.IntN(2) == 0
				if leased {
					request.TTL = time.Hour
				}
				out, err := servicetest.Pick(s, request)
				switch servicetest.Code(err) {
				case "":
				case fault.Dropped:
					mu.Lock()
					dropped++
					mu.Unlock()
					continue
				default:
					t.Error(err)
					return
				}
				p := out.Picks[0]
				if !leased {
					count(p.Endpoint.Locality.Zone, load{issued: 1, succeeded: 1})
					continue
				}
				add := load{issued: 1}
				outcome := outcomes[draw.IntN(len(outcomes))]
				switch outcome {
				case picks.Success:
					add.succeeded = 1
				case "": // held until the end, a few
					if draw.IntN(100) == 0 {
						add.inProgress = 1
						count(p.Endpoint.Locality.Zone, add)
						continue
					}
					outcome = picks.Failure
					add.failed = 1
				default:
					add.failed = 1
				}
				var ended *picks.Load
				if draw.IntN(2) == 0 {
					ended = &picks.Load{NamedMetrics: map[string]float64{"q": 0.5, "other": 1}}
					add.metrics, add.total = 1, 0.5
				}
				endLease(t, s, p.Lease.ID, outcome, ended)
				count(p.Endpoint.Locality.Zone, add)
			}
		})
	}
	done := make(chan struct{})
	changes.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-done:
				return
			default:
				places(i)
			}
		}
	})
	picking.Wait()
	close(done)
	changes.Wait()
	limit(0)
	var broken uint64
	for range 20 {
		_, err := servicetest.Pick(s, picks.Request{Cluster: "orders"})
		switch servicetest.Code(err) {
		case fault.CircuitBroken:
			broken++
		case fault.Dropped:
			dropped++
		default:
			t.Errorf("err %v", err)
		}
	}
	<-server.first // some of it came while picks were made, or will
	r.Close()

	got := map[string]load{}
	var reportedDropped, reportedThrottled uint64
	reports := 0
	for _, c := range <-server.all {
		reports++
		if c.GetClusterName() != "orders" || c.GetClusterServiceName() != "orders-eds" {
			t.Errorf("reported %q, %q", c.GetClusterName(), c.GetClusterServiceName())
		}
		reportedDropped += c.GetTotalDroppedRequests()
		for _, d := range c.GetDroppedRequests() {
			reportedThrottled += d.GetDroppedCount()
		}
		for zone, l := range got {
			l.inProgress = 0
			got[zone] = l
		}
		for _, l := range c.GetUpstreamLocalityStats() {
			sum := got[l.GetLocality().GetZone()]
			sum.issued += l.GetTotalIssuedRequests()
			sum.succeeded += l.GetTotalSuccessfulRequests()
			sum.failed += l.GetTotalErrorRequests()
			sum.inProgress = l.GetTotalRequestsInProgress()
			for _, m := range l.GetLoadMetricStats() {
				if m.GetMetricName() != "named_metrics.q" {
					t.Errorf("reported metric %s", m.GetMetricName())
				}
				sum.metrics += float64(m.GetNumRequestsFinishedWithMetric())
				sum.total += m.GetTotalMetricValue()
			}
			got[l.GetLocality().GetZone()] = sum
		}
	}
	for zone := range got {
		if _, ok := want[zone]; !ok {
			t.Errorf("reported zone %s", zone)
		}
	}
	for zone, w := range want {
		if got[zone] != w {
			t.Errorf("zone %s: reported %+v, want %+v", zone, got[zone], w)
		}
	}
	if reportedThrottled != dropped || reportedDropped != dropped+broken {
		t.Errorf("reported %d drops, %d by category; want %d and %d", reportedDropped, reportedThrottled, dropped+broken, dropped)
	}
	if dropped == 0 || broken == 0 || len(want) < 2 || want["always"].metrics == 0 {
		t.Errorf("the picks show little: %d dropped, %+v", dropped, want)
	}
	t.Logf("%d reports, %d zones, %d dropped, %d broken", reports, len(want), dropped, broken)
}

// detecting is an EDS cluster that ejects what fails more than half of its
// requests.
func detecting() []byte {
	return servicetest.Encode(servicetest.Object{"type": "EDS", "outlier_detection": servicetest.Object{
		"interval": "10s", "base_ejection_time": "30s", "max_ejection_percent": 50, "enforcing_success_rate": 0,
		"failure_percentage_threshold": 50, "enforcing_failure_percentage": 100,
		"failure_percentage_minimum_hosts": 1, "failure_percentage_request_volume": 3,
	}})
}

// TestEjectionsAreCounted: of three endpoints that fail, a half may be ejected, and
// the third is spared.
func TestEjectionsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		counted := func(enforced, spared int) {
			t.Helper()
			want := fmt.Sprintf(`
lbd_ejections_total{cluster="orders",enforced="false"} %d
lbd_ejections_total{cluster="orders",enforced="true"} %d
`, spared, enforced)
			service.CompareSeries(t, s.Metrics, want)
		}
		servicetest.Push(t, s, sources.Config, "orders", detecting())
		servicetest.Push(t, s, sources.Config, "plain", servicetest.Encode(servicetest.Object{"type": "EDS"})) // has no such series
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 3))
		counted(0, 0)
		out := mustPick(t, s, picks.Request{Cluster: "orders", N: 15, TTL: time.Minute})
		for _, p := range out.Picks {
			endLease(t, s, p.Lease.ID, picks.Failure, nil)
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
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Config, "orders", detecting())
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 3))
		out, err := servicetest.Pick(s, picks.Request{Cluster: "orders", N: 15, TTL: time.Minute})
		if err != nil || len(out.Picks) != 15 {
			t.Fatal(out, err)
		}
		for _, p := range out.Picks {
			outcome := picks.Success
			if p.Address == "a-1:80" {
				outcome = picks.Failure
			}
			endLease(t, s, p.Lease.ID, outcome, nil)
		}
		start := time.Now()
		time.Sleep(10 * time.Second)
		synctest.Wait()

		const reason = "failure percentage 100.0% of 5 requests is above 50%"
		c := clusterState(t, s, "orders", "", true)
		e := c.Priorities[0].Localities[0].Endpoints[1]
		if until := start.Add(40 * time.Second); e.State != "EJECTED" || e.LastError != "ejected by outlier detection: "+reason ||
			e.EjectedUntil == nil || !e.EjectedUntil.Equal(until) || e.Share == nil || *e.Share != 0 {
			t.Errorf("the endpoint: %+v until %v, want %v", e, e.EjectedUntil, until)
		}
		if n := c.Endpoints; n.Ejected != 1 || n.Ready != 2 || n.TransientFailure != 0 || n.Total != 3 {
			t.Errorf("counted %+v", n)
		}
		service.CompareSeries(t, s.Metrics, `
lbd_endpoints{cluster="orders",priority="0",state="ejected",target=""} 1
lbd_endpoints{cluster="orders",priority="0",state="ready",target=""} 2
`)
		for range 20 {
			if out, err := servicetest.Pick(s, picks.Request{Cluster: "orders"}); err != nil || out.Picks[0].Address == "a-1:80" {
				t.Errorf("picked %+v, %v", out.Picks, err)
			}
		}
		ejected := s.Events.Last(observe.EventFilter{Types: []observe.EventType{observe.EventEjected}, Limit: 9})
		if len(ejected) != 1 || ejected[0].Cluster != "orders" || ejected[0].Address != "a-1:80" || ejected[0].Reason != reason ||
			!strings.Contains(ejected[0].Says, reason) || !ejected[0].Until.Equal(*e.EjectedUntil) {
			t.Errorf("events %+v", ejected)
		}

		time.Sleep(30 * time.Second)
		synctest.Wait()
		if c, err = s.State.Cluster(t.Context(), "orders", "", true); err != nil {
			t.Fatal(err)
		}
		if e := c.Priorities[0].Localities[0].Endpoints[1]; e.State != "READY" || e.LastError != "" || e.EjectedUntil != nil || c.Endpoints.Ejected != 0 {
			t.Errorf("given back: %+v of %+v", e, c.Endpoints)
		}
		back := s.Events.Last(observe.EventFilter{Types: []observe.EventType{observe.EventUnejected}, Limit: 9})
		if len(back) != 1 || back[0].Cluster != "orders" || back[0].Address != "a-1:80" || back[0].Says == "" || back[0].Until != nil {
			t.Errorf("events %+v", back)
		}
		// Nothing happened to its connection.
		if n := len(s.Events.Last(observe.EventFilter{Types: []observe.EventType{observe.EventConnectionChanged}, Limit: 99})); n != 3 {
			t.Errorf("%d events of connections, want those of the 3 endpoints", n)
		}
		service.CompareSeries(t, s.Metrics, `
lbd_connect_attempts_total{cluster="orders",result="ok",target=""} 3
lbd_endpoints{cluster="orders",priority="0",state="ready",target=""} 3
`)
	})
}

// TestCancelledLeasesDoNotEject: a cancelled request is no verdict on the
// endpoint, and neither does one who forgets it.
func TestCancelledLeasesDoNotEject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Config, "orders", detecting())
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
		out := mustPick(t, s, picks.Request{Cluster: "orders", N: 20, TTL: 5 * time.Second})
		for _, p := range out.Picks[:10] {
			endLease(t, s, p.Lease.ID, picks.Cancelled, nil)
		}
		time.Sleep(20 * time.Second) // the others expire
		synctest.Wait()
		if ejected := s.Events.Last(observe.EventFilter{Types: []observe.EventType{observe.EventEjected}, Limit: 9}); len(ejected) != 0 {
			t.Errorf("ejected %+v", ejected)
		}
	})
}
