package lrs_test

import (
	"fmt"
	"testing"
	"time"

	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lbd-dev/lbd/xds/lrs"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestReports: what a report has, and what time it covers.
func TestReports(t *testing.T) {
	runTest(t, func(k *kit) {
		k.Report(k.at("one"), keys("a", "b")...)
		pass(3 * time.Second)
		s := k.answered("one", 10*time.Second)
		if got := k.status(); !got.Connected || got.Interval != 10*time.Second || got.Requested != nil || got.Since != time.Now() || !got.LastReport.IsZero() {
			k.Errorf("status %+v", got)
		}
		k.counts.add("a", 5, 3, 1)
		pass(10*time.Second - 1)
		s.expect()
		pass(1)
		s.expect("a/a-eds 13s rzs 5/3/1/1") // since it was first to be reported
		if got := k.status(); got.LastReport != time.Now() || got.Clusters != 2 {
			k.Errorf("status %+v", got)
		}
		pass(10 * time.Second)
		s.expect("a/a-eds 10s rzs 0/0/0/1") // requests in progress are in each report
		k.counts.add("a", 0, 1, 0)
		k.counts.drop("b", 2)
		pass(10 * time.Second)
		s.expect("a/a-eds 10s rzs 0/1/0/0; b/b-eds 10s dropped=2 x=2") // b's last report was the one without b
		pass(20 * time.Second)
		s.expect("", "") // empty reports are sent as well
		k.counts.add("b", 1, 1, 0)
		pass(10 * time.Second)
		s.expect("b/b-eds 10s rzs 1/1/0/0")
	})
}

// fixed is the same load for ever.
type fixed struct{ load resource.Load }

func (f fixed) Open(resource.ServiceKey) lrs.Counters { return f }
func (f fixed) Read() resource.Load                   { return f.load }
func (fixed) Acknowledge()                            {}
func (fixed) Close()                                  {}

// Each value of a load has its field.
func TestLocalityReport(t *testing.T) {
	load := resource.Load{
		Dropped: 9, Drops: map[string]uint64{"y": 3, "x": 2},
		Localities: []resource.LocalityLoad{
			{Locality: resource.Locality{Region: "r"}, LoadCounts: resource.LoadCounts{Issued: 8, Succeeded: 4, Failed: 2, InProgress: 1}, Metrics: map[string]resource.MetricLoad{
				"cpu_utilization": {Requests: 1, Total: 0.5}, "mem_utilization": {Requests: 2, Total: 0.25},
				"application_utilization": {Requests: 3, Total: 2}, "named_metrics.q": {Requests: 4, Total: -1},
			}},
			{Locality: resource.Locality{Zone: "z", SubZone: "s"}, LoadCounts: resource.LoadCounts{Issued: 1}},
		},
	}
	runTest(t, func(k *kit) {
		k.Report(k.at("one"), resource.ServiceKey{Cluster: "a"})
		s := k.answered("one", time.Minute)
		pass(time.Minute)
		got := <-s.requests
		l := got.GetClusterStats()[0].GetUpstreamLocalityStats()[0]
		if m := l.GetMemUtilization(); m.GetNumRequestsFinishedWithMetric() != 2 || m.GetTotalMetricValue() != 0.25 {
			k.Errorf("mem %v", m)
		}
		if m := l.GetApplicationUtilization(); m.GetNumRequestsFinishedWithMetric() != 3 || m.GetTotalMetricValue() != 2 {
			k.Errorf("application %v", m)
		}
		l.MemUtilization, l.ApplicationUtilization = nil, nil
		if got := report(got); got != "a/ 1m0s dropped=9 x=2 y=3 r 8/4/2/1 cpu=1/0.5 named_metrics.q=4/-1 zs 1/0/0/0" {
			k.Errorf("report %q", got)
		}
	}, func(o *lrs.Options) { o.Loads = fixed{load} })
}

// TestRequestedClusters: the clusters that a server names, or all.
func TestRequestedClusters(t *testing.T) {
	const a, b = "a/a-eds 10s rzs 1/1/0/0", "b/b-eds 10s rzs 1/1/0/0"
	tests := []struct {
		name   string
		answer *lrsv3.LoadStatsResponse
		want   string
	}{
		{"all", &lrsv3.LoadStatsResponse{SendAllClusters: true}, a + "; " + b},
		{"all, and names", &lrsv3.LoadStatsResponse{SendAllClusters: true, Clusters: []string{"b"}}, a + "; " + b},
		{"none named is all, as in grpc-go", &lrsv3.LoadStatsResponse{}, a + "; " + b},
		{"one", &lrsv3.LoadStatsResponse{Clusters: []string{"b"}}, b},
		{"one twice, and one that is not known", &lrsv3.LoadStatsResponse{Clusters: []string{"b", "x", "b"}}, b},
		{"none that is known", &lrsv3.LoadStatsResponse{Clusters: []string{"x"}}, ""},
		{"each endpoint", &lrsv3.LoadStatsResponse{SendAllClusters: true, ReportEndpointGranularity: true}, a + "; " + b},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runTest(t, func(k *kit) {
				k.Report(k.at("one"), keys("a", "b")...)
				s := k.stream("one")
				tt.answer.LoadReportingInterval = durationpb.New(10 * time.Second)
				s.send(tt.answer)
				k.counts.add("a", 1, 1, 0)
				k.counts.add("b", 1, 1, 0)
				pass(10 * time.Second)
				s.expect(tt.want)
			})
		})
	}
}

// TestLaterResponse: an answer counts from when it comes, and what was not
// asked for before is reported then, from where its last report ended.
func TestLaterResponse(t *testing.T) {
	runTest(t, func(k *kit) {
		k.Report(k.at("one"), keys("a", "b")...)
		s := k.stream("one")
		s.answer(10*time.Second, "a")
		k.counts.add("a", 1, 1, 0)
		k.counts.add("b", 2, 2, 0)
		pass(10 * time.Second)
		s.expect("a/a-eds 10s rzs 1/1/0/0")
		k.counts.add("b", 1, 0, 1)
		pass(5 * time.Second)
		s.answer(10*time.Second, "b") // the same interval: the next report is not put off
		pass(5 * time.Second)
		s.expect("b/b-eds 20s rzs 3/2/1/0")
		s.answer(3 * time.Second)
		k.counts.add("a", 1, 1, 0)
		pass(3 * time.Second)
		s.expect("a/a-eds 13s rzs 1/1/0/0")
		if got := k.status(); got.Interval != 3*time.Second || got.Requested != nil {
			k.Errorf("status %+v", got)
		}
		s.answer(time.Nanosecond, "z", "a")
		if got := k.status(); got.Interval != 1 || fmt.Sprint(got.Requested) != "[a z]" {
			k.Errorf("status %+v", got)
		}
		pass(time.Second)
		if n := len(s.reports()); n != 20 {
			k.Errorf("%d reports in a second, want 20 at most", n)
		}
	})
}

// A large report is sent in several messages.
func TestLargeReports(t *testing.T) {
	load := resource.Load{Localities: make([]resource.LocalityLoad, 15_000)}
	for i := range load.Localities {
		load.Localities[i] = resource.LocalityLoad{Locality: resource.Locality{Region: fmt.Sprintf("%0100d", i)}, LoadCounts: resource.LoadCounts{Issued: 1}}
	}
	runTest(t, func(k *kit) {
		k.Report(k.at("one"), keys("a", "b", "c")...)
		s := k.answered("one", time.Minute)
		pass(time.Minute)
		var all []string
		for range 3 {
			for _, c := range (<-s.requests).GetClusterStats() {
				all = append(all, fmt.Sprint(c.GetClusterName(), len(c.GetUpstreamLocalityStats())))
			}
		}
		if fmt.Sprint(all) != "[a15000 b15000 c15000]" {
			k.Errorf("reported %v", all)
		}
		s.expect()
	}, func(o *lrs.Options) { o.Loads = fixed{load} })
}
