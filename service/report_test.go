package service_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/quota"
	"github.com/lbd-dev/lbd/service/reports"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// report reports requests to endpoints of orders within 5 s, and expects which are unknown.
func report(t *testing.T, s *service.Service, by, unknown string, list ...reports.Endpoint) {
	t.Helper()
	is, err := s.Reports.Take(&reports.Report{Reporter: ledger.Owner{Name: by}, Interval: 5 * time.Second}, &reports.Cluster{Cluster: "orders", Endpoints: list})
	servicetest.Must(t, err)
	servicetest.Expect(t, "unknown endpoints", strings.Join(is, " "), unknown)
}

// Reported failures eject an endpoint as leases that end badly do, for the same reason.
func TestReportsEject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Config, "orders", detecting())
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 3))
		report(t, s, "one", "a-9:80",
			reports.Endpoint{Address: "a-0:80", Requests: 5, Latency: time.Second}, reports.Endpoint{Address: "a-1:80", Requests: 3, Errors: 2, Latency: time.Second},
			reports.Endpoint{Address: "a-9:80", Requests: 7, Errors: 7})
		report(t, s, "two", "", reports.Endpoint{Address: "a-1:80", Requests: 3, Errors: 2, Cancelled: 1, ConnectFailures: 1}) // lbd makes no connects: an error
		time.Sleep(10 * time.Second)
		synctest.Wait()
		e := clusterState(t, s, "orders", "", true).Priorities[0].Localities[0].Endpoints
		const reason = "ejected by outlier detection: failure percentage 83.3% of 6 requests is above 50%"
		if e[1].State != "EJECTED" || e[1].LastError != reason || e[0].State != "READY" {
			t.Errorf("%+v", e)
		}
		service.CompareSeries(t, s.Metrics, `
lbd_reported_connect_failures_total{cluster="orders"} 1
lbd_reported_request_seconds_total{cluster="orders"} 2
lbd_reported_requests_total{cluster="orders",outcome="cancelled"} 1
lbd_reported_requests_total{cluster="orders",outcome="error"} 11
lbd_reported_requests_total{cluster="orders",outcome="success"} 6
`)
	})
}

// Leases of requests that could not be sent are errors of the endpoint only if lbd makes no connections to it.
func TestUnreachableLeases(t *testing.T) {
	for mode, want := range map[resource.ConnectMode]string{resource.ConnectNone: "EJECTED", resource.ConnectTCP: "READY"} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := servicetest.Start(t, "", func(o *service.Options) {
					if mode == resource.ConnectTCP {
						o.Connectors[resource.ConnectDefault] = &outage{begins: time.Now().Add(time.Hour), ends: time.Now().Add(time.Hour)}
					}
				})
				servicetest.Push(t, s, sources.Config, "orders", detecting())
				servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
				time.Sleep(time.Second) // both are connected
				loads := s.Loads.Open(resource.ServiceKey{Cluster: "orders"})
				defer loads.Close()
				for range 10 {
					p := mustPick(t, s, picks.Request{Cluster: "orders", TTL: time.Minute, Exclude: []string{"a-1:80"}, Wait: time.Second}).Picks[0]
					endLease(t, s, p.Lease.ID, picks.Unreachable, nil)
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				servicetest.Expect(t, "state", clusterState(t, s, "orders", "", true).Priorities[0].Localities[0].Endpoints[0].State, want)
				servicetest.Expect(t, "failed", loads.Read().Localities[0].Failed, 10)
				service.CompareSeries(t, s.Metrics, `lbd_leases_finished_total{cluster="orders",outcome="unreachable"} 10`+"\n")
			})
		})
	}
}

// Many reports in one interval do not overflow the counts, which are one word.
func TestReportsDoNotOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Config, "orders", detecting())
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 3))
		for range math.MaxUint32/reports.MaxRequests + 2 {
			report(t, s, "one", "", reports.Endpoint{Address: "a-0:80", Requests: reports.MaxRequests, Errors: reports.MaxRequests})
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		e := clusterState(t, s, "orders", "", true).Priorities[0].Localities[0].Endpoints[0]
		if e.State != "EJECTED" || !strings.Contains(e.LastError, fmt.Sprintf("100.0%% of %d requests", uint32(math.MaxUint32))) {
			t.Errorf("%+v", e)
		}
	})
}

// What is in flight counts for least_request until the reporter's next report, or for two intervals.
func TestReportsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Config, "orders", servicetest.Encode(servicetest.Object{"type": "EDS", "lb_policy": "LEAST_REQUEST", "least_request_lb_config": servicetest.Object{"choice_count": 10}}))
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
		inFlight := func(want string) {
			t.Helper()
			is := map[string]float64{}
			for range 20 {
				out := mustPick(t, s, picks.Request{Cluster: "orders", Explain: true})
				steps := out.Picks[0].Explain
				for _, c := range steps[len(steps)-1].Endpoint.Compared {
					is[c.Address] = c.InFlight
				}
			}
			servicetest.Expect(t, "in flight", fmt.Sprint(is), want)
		}
		inFlight("map[a-0:80:0 a-1:80:0]")
		report(t, s, "one", "", reports.Endpoint{Address: "a-0:80", InFlight: 2.5})
		report(t, s, "two", "", reports.Endpoint{Address: "a-0:80", InFlight: 0.25}, reports.Endpoint{Address: "a-1:80", InFlight: 1})
		_, err := s.Reports.Take(&reports.Report{Reporter: ledger.Owner{Name: "one"}}, &reports.Cluster{Cluster: "orders", Endpoints: []reports.Endpoint{{Address: "a-1:80", ConnectFailures: 3}}})
		servicetest.Must(t, err) // without an interval it replaces nothing
		inFlight("map[a-0:80:2.75 a-1:80:1]")
		lease := mustPick(t, s, picks.Request{Cluster: "orders", TTL: time.Minute}).Picks[0]
		servicetest.Expect(t, "the pick", lease.Address, "a-1:80")
		inFlight("map[a-0:80:2.75 a-1:80:2]")
		endLease(t, s, lease.Lease.ID, picks.Success, nil)
		time.Sleep(9 * time.Second)
		report(t, s, "one", "", reports.Endpoint{Address: "a-0:80", InFlight: 0.5}) // replaces its last
		inFlight("map[a-0:80:0.75 a-1:80:1]")
		servicetest.Expect(t, "endpoints", s.Reports.InFlight(), 3)
		time.Sleep(2 * time.Second) // of two
		inFlight("map[a-0:80:0.5 a-1:80:0]")
		time.Sleep(10 * time.Second)
		inFlight("map[a-0:80:0 a-1:80:0]")
		servicetest.Expect(t, "endpoints", s.Reports.InFlight(), 0)
		report(t, s, "one", "", reports.Endpoint{Address: "a-0:80", InFlight: 7})
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
		inFlight("map[a-0:80:7]")
		report(t, s, "one", "a-1:80", reports.Endpoint{Address: "a-1:80", InFlight: 7})
		inFlight("map[a-0:80:0]")
		report(t, s, "one", "", reports.Endpoint{Address: "a-0:80", InFlight: 7}) // which Close ends
	})
}

// Load reports have what was reported, and not the picks for it.
func TestReportsAreLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Config, "orders", servicetest.Encode(servicetest.Object{"type": "EDS"}))
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
		loads := s.Loads.Open(resource.ServiceKey{Cluster: "orders"})
		defer loads.Close()
		mustPick(t, s, picks.Request{Cluster: "orders", N: 100, Reported: true})
		mustPick(t, s, picks.Request{Cluster: "orders", N: 3})
		report(t, s, "one", "", reports.Endpoint{Address: "a-0:80", Requests: 40, Errors: 4, Cancelled: 1, ConnectFailures: 9, InFlight: 1.6}, reports.Endpoint{Address: "a-1:80", Requests: 2, InFlight: 1.3})
		l := loads.Read().Localities
		if len(l) != 1 || l[0].Issued != 45 || l[0].Succeeded != 40 || l[0].Failed != 5 || l[0].InProgress != 3 {
			t.Errorf("%+v", l)
		}
	})
}

// Every policy takes reports, also below an aggregate.
func TestPoliciesTakeReports(t *testing.T) {
	const typed = "type.googleapis.com/envoy.extensions.load_balancing_policies."
	policies := map[string]servicetest.Object{
		"round_robin": {"type": "EDS"}, "least_request": {"type": "EDS", "lb_policy": "LEAST_REQUEST"}, "ring_hash": {"type": "EDS", "lb_policy": "RING_HASH"},
		"pick_first": {"type": "EDS", "load_balancing_policy": servicetest.Object{"policies": []servicetest.Object{{"typed_extension_config": servicetest.Object{
			"name": "pick_first", "typed_config": servicetest.Object{"@type": typed + "pick_first.v3.PickFirst"},
		}}}}},
	}
	for name, cluster := range policies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := servicetest.Start(t, "", nil)
				servicetest.Push(t, s, sources.Config, "leaf", servicetest.Encode(cluster))
				servicetest.Push(t, s, sources.Endpoints, "leaf", servicetest.Usable("a", 1))
				servicetest.Push(t, s, sources.Config, "orders", servicetest.Encode(servicetest.Object{"cluster_type": servicetest.Object{
					"name":         "envoy.clusters.aggregate",
					"typed_config": servicetest.Object{"@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig", "clusters": []string{"leaf"}},
				}}))
				loads := s.Loads.Open(resource.ServiceKey{Cluster: "leaf"})
				defer loads.Close()
				mustPick(t, s, picks.Request{Cluster: "orders", Wait: time.Second}) // ring_hash connects
				report(t, s, "one", "", reports.Endpoint{Address: "a-0:80", Requests: 40})
				mustPick(t, s, picks.Request{Cluster: "leaf", Wait: time.Second})
				_, err := s.Reports.Take(&reports.Report{Interval: time.Second}, &reports.Cluster{Cluster: "leaf", Endpoints: []reports.Endpoint{{Address: "a-0:80", Requests: 2}}})
				servicetest.Must(t, err)
				if l := loads.Read().Localities; len(l) != 1 || l[0].Issued != 44 {
					t.Errorf("%+v", l)
				}
			})
		})
	}
}

func TestReportsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Config, "orders", servicetest.Encode(servicetest.Object{"type": "EDS"}))
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
		quotas := quota.New(quota.Options{Totals: map[quota.Resource]int64{quota.Bytes: 3 * reports.InFlightBytes}, Share: 1})
		account := quotas.Enter("one", nil, time.Now())
		defer account.Leave()
		take := func(by, cluster, target string, n int) fault.Code {
			part := &reports.Cluster{Cluster: cluster, Target: target}
			for range n {
				part.Endpoints = append(part.Endpoints, reports.Endpoint{Address: "a-0:80", InFlight: 1})
			}
			_, err := s.Reports.Take(&reports.Report{Reporter: ledger.Owner{Name: by}, Interval: time.Second, Account: account}, part)
			return servicetest.Code(err)
		}
		servicetest.Expect(t, "another cluster", take("a", "other", "", 1), fault.UnknownCluster)
		servicetest.Expect(t, "another target", take("a", "orders", "other", 1), fault.UnknownTarget)
		servicetest.Expect(t, "too many", take("a", "orders", "", 4), fault.RateLimited)
		servicetest.Expect(t, "some", take("a", "orders", "", 2), "")
		servicetest.Expect(t, "too many beside them", take("b", "orders", "", 2), fault.RateLimited)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		servicetest.Expect(t, "later", take("b", "orders", "", 2), "")
	})
}

// Reports at the same time as changes, picks and the end.
func TestReportsConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Config, "orders", servicetest.Encode(servicetest.Object{"type": "EDS", "lb_policy": "LEAST_REQUEST"}))
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 3))
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for j := range 50 {
					r := &reports.Report{Reporter: ledger.Owner{Name: fmt.Sprint(i / 2)}, Interval: time.Duration(1+j%3) * time.Second}
					_, err := s.Reports.Take(r, &reports.Cluster{Cluster: "orders", Endpoints: []reports.Endpoint{{Address: fmt.Sprintf("a-%d:80", j%3), Requests: 1, InFlight: 1}}})
					servicetest.Must(t, err)
				}
			})
		}
		for i := range 20 {
			servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2+i%2))
			_, _ = servicetest.Pick(s, picks.Request{Cluster: "orders", N: 3, TTL: time.Second})
		}
		all.Wait()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		servicetest.Expect(t, "endpoints", s.Reports.InFlight(), 0)
		out := mustPick(t, s, picks.Request{Cluster: "orders", Explain: true})
		steps := out.Picks[0].Explain
		for _, c := range steps[len(steps)-1].Endpoint.Compared {
			servicetest.Expect(t, "in flight at "+c.Address, c.InFlight, 0)
		}
	})
}
