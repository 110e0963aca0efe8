package observe

import (
	"fmt"
	"maps"
	"testing"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/test/ledgertest"
	"github.com/lbd-dev/lbd/xds/resource"
)

const benchmarkClusters = 10_000

// benchmarkOverview is the overview of many clusters, each with drops and three
// endpoints, that has looked once.
func benchmarkOverview(b *testing.B) *overview {
	b.Helper()
	s := newState(b)
	for i := range benchmarkClusters {
		name := fmt.Sprint("cluster-", i)
		a := ledgertest.Assignment(name, resource.Locality{Zone: "a"}, resource.Locality{Zone: "b"}, resource.Locality{Zone: "c"})
		a.Drops = []resource.Drop{{Category: "throttle", PerMillion: 10}}
		apply(b, s, name, ledgertest.Config(name, a))
	}
	o := newOverview(s)
	o.look(b.Context())
	if n := len(o.view.Load().all); n != benchmarkClusters {
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
			h := o.state.ledger.Hosted()
			b.ReportAllocs()
			for b.Loop() {
				for i := range busy {
					h.Own(fmt.Sprint("cluster-", i)).View().Only.CountPick(&policy.Call{Endpoint: new(resource.Endpoint)})
				}
				o.look(b.Context())
			}
		})
	}
}

// BenchmarkOverviewReader is what a second costs for each who watches them, where
// 100 have changed, the socket aside.
func BenchmarkOverviewReader(b *testing.B) {
	o := benchmarkOverview(b)
	h := o.state.ledger.Hosted()
	for i := range 100 {
		h.Own(fmt.Sprint("cluster-", i)).View().Only.CountPick(&policy.Call{Endpoint: new(resource.Endpoint)})
	}
	o.look(b.Context())
	at := o.view.Load().at
	b.ReportAllocs()
	bytes := 0
	for b.Loop() {
		r := &overviewReader{overview: o, at: at - 1}
		m, _ := r.next()
		bytes = 0
		for piece := range m.Pieces {
			bytes += len(piece)
		}
	}
	b.ReportMetric(float64(bytes), "bytes/message")
}

// BenchmarkOverviewRemoval is what the second costs in which all 10,000 clusters go.
func BenchmarkOverviewRemoval(b *testing.B) {
	o := benchmarkOverview(b)
	full, rows := o.view.Load(), o.rows
	o.state.ledger = ledger.New(ledger.Options{})
	b.ReportAllocs()
	for b.Loop() {
		o.view.Store(full)
		o.rows = maps.Clone(rows)
		o.look(b.Context())
	}
}
