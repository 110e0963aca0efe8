package main

import (
	"maps"
	"sync"
	"time"

	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// reportEvery is the load reporting interval that the server sets.
const reportEvery = 2 * time.Second

// load is the sum of all reports on one cluster.
type load struct {
	Issued    uint64 `json:"issued"`
	Succeeded uint64 `json:"succeeded"`
	Failed    uint64 `json:"failed"`
	Dropped   uint64 `json:"dropped"`
}

// loads receives load reports (LRS) and adds them up.
type loads struct {
	loadv3.UnimplementedLoadReportingServiceServer

	mu    sync.Mutex
	total map[string]load // by cluster
}

func newLoads() *loads { return &loads{total: make(map[string]load)} }

// StreamLoadStats requests reports on all clusters, and adds them up.
func (l *loads) StreamLoadStats(s loadv3.LoadReportingService_StreamLoadStatsServer) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	err := s.Send(&loadv3.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(reportEvery)})
	for err == nil {
		var r *loadv3.LoadStatsRequest
		if r, err = s.Recv(); err == nil {
			l.add(r)
		}
	}
	return err
}

func (l *loads) add(r *loadv3.LoadStatsRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range r.GetClusterStats() {
		t := l.total[c.GetClusterName()]
		t.Dropped += c.GetTotalDroppedRequests()
		for _, at := range c.GetUpstreamLocalityStats() {
			t.Issued += at.GetTotalIssuedRequests()
			t.Succeeded += at.GetTotalSuccessfulRequests()
			t.Failed += at.GetTotalErrorRequests()
		}
		l.total[c.GetClusterName()] = t
	}
}

// read returns the sums so far, by cluster.
func (l *loads) read() map[string]load {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.total)
}
