package service_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/lrs"
)

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
	if err != nil {
		t.Fatal(err)
	}
	server := &reportee{all: make(chan []*endpointv3.ClusterStats, 1), first: make(chan struct{}, 1)}
	g := grpc.NewServer()
	lrsv3.RegisterLoadReportingServiceServer(g, server)
	go func() { _ = g.Serve(at) }()
	defer g.Stop()
	boot, err := bootstrap.Parse(fmt.Appendf(nil,
		`{"node":{"id":"n"},"xds_servers":[{"server_uri":%q,"channel_creds":[{"type":"insecure"}]}]}`, at.Addr()), bootstrap.Options{})
	if err != nil {
		t.Fatal(err)
	}

	s, _ := start(t, "", nil)
	r := lrs.New(lrs.Options{Node: &corev3.Node{Id: "n"}, Loads: s.Loads(), Logger: slog.New(slog.DiscardHandler)})
	defer r.Close()
	r.Report(boot.Servers[0], lrs.Key{Cluster: "orders", EDSServiceName: "orders-eds"})
	limit := func(n int) {
		push(t, s, sources.Config, "orders", encode(t, object{
			"type": "EDS", "lrs_server": object{"self": object{}}, "lrs_report_endpoint_metrics": []string{"named_metrics.q"},
			"eds_cluster_config": object{"service_name": "orders-eds"},
			"circuit_breakers":   object{"thresholds": []object{{"max_requests": n}}},
		}))
	}
	limit(1000)
	places := func(i int) {
		push(t, s, sources.Endpoints, "orders-eds", assignment(t, []object{drop("throttle", 10)},
			place{"always", 0, 1, endpoints("a", 2)}, place{fmt.Sprint(i % 50), 0, 1, endpoints("b", 2)}))
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
	outcomes := []picks.Outcome{picks.Success, picks.Failure, picks.Cancelled, ""}
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
				out, err := pick(s, request)
				switch code(err) {
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
					count(p.Locality.Zone, load{issued: 1, succeeded: 1})
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
						count(p.Locality.Zone, add)
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
				if _, err := s.EndLease(p.Lease.ID, outcome, ended); err != nil {
					t.Error(err)
				}
				count(p.Locality.Zone, add)
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
		_, err := pick(s, picks.Request{Cluster: "orders"})
		switch code(err) {
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
