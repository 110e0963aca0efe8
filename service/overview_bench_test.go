package service

import (
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

const benchmarkClusters = 10_000

// benchmarkOverview is the overview of many clusters, each with drops and three
// endpoints, that has looked once.
func benchmarkOverview(b *testing.B) *overview {
	b.Helper()
	s := New(Options{
		Logger:      slog.New(slog.DiscardHandler),
		Connectors:  map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil},
		ConnectMode: resource.ConnectNone,
	})
	b.Cleanup(s.Close)
	var updates []resolver.Update
	for i := range benchmarkClusters {
		name := fmt.Sprint("cluster-", i)
		a := &resource.Assignment{Name: name, Drops: []resource.Drop{{Category: "throttle", PerMillion: 10}}}
		l := &resource.LocalityEndpoints{ID: resource.Locality{Zone: "a"}, Weight: 1}
		for j := range 3 {
			l.Endpoints = append(l.Endpoints, &resource.Endpoint{Addresses: []string{fmt.Sprintf("10.0.0.%d:80", j)}, Weight: 1})
		}
		a.Localities = append(a.Localities, l)
		updates = append(updates, resolver.Update{Item: resource.Item{
			Key: resource.Key{Type: resource.TypeAssignment, Name: name}, Raw: []byte{}, Assignment: a,
		}, Updated: time.Now()})
	}
	names, _ := s.resolve(resource.SourcePush, updates, nil)
	if err := s.targets.settle(b.Context(), names); err != nil {
		b.Fatal(err)
	}
	o := &overview{watches: s.watches, rows: make(map[string]*row)}
	o.current.Store(&photograph{replaced: make(chan struct{})})
	o.look()
	if n := len(o.current.Load().all); n != benchmarkClusters {
		b.Fatalf("%d clusters", n)
	}
	return o
}

// BenchmarkOverviewLook is what a second costs while somebody watches 10,000
// clusters, of which some are picked from.
func BenchmarkOverviewLook(b *testing.B) {
	for _, busy := range []int{0, 100, benchmarkClusters} {
		b.Run(fmt.Sprint("busy=", busy), func(b *testing.B) {
			o := benchmarkOverview(b)
			h := o.watches.service.targets.current.Load()
			b.ReportAllocs()
			for b.Loop() {
				for i := range busy {
					h.clusters[fmt.Sprint("cluster-", i)].newest.Load().only.picks.add(resultOK)
				}
				o.look()
			}
		})
	}
}

// BenchmarkOverviewReader is what a second costs for each who watches them, where
// 100 have changed, the socket aside.
func BenchmarkOverviewReader(b *testing.B) {
	o := benchmarkOverview(b)
	h := o.watches.service.targets.current.Load()
	for i := range 100 {
		h.clusters[fmt.Sprint("cluster-", i)].newest.Load().only.picks.add(resultOK)
	}
	o.look()
	at := o.current.Load().at
	b.ReportAllocs()
	bytes := 0
	for b.Loop() {
		r := &overviewReader{overview: o, at: at - 1}
		m, _ := r.next()
		bytes = 0
		for piece := range m.Data {
			bytes += len(piece)
		}
	}
	b.ReportMetric(float64(bytes), "bytes/message")
}

// BenchmarkOverviewRemoval is what the second costs in which all 10,000 clusters go.
func BenchmarkOverviewRemoval(b *testing.B) {
	o := benchmarkOverview(b)
	full, rows := o.current.Load(), o.rows
	o.watches.service.targets.current.Store(&hosted{})
	b.ReportAllocs()
	for b.Loop() {
		before := *full
		before.replaced = make(chan struct{})
		o.current.Store(&before)
		o.rows = maps.Clone(rows)
		o.look()
	}
}
