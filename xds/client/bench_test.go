package client

import (
	"fmt"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
)

// BenchmarkFirstLoad is from a client without anything to 1,000 clusters of 100
// endpoints each, from a control plane on loopback.
func BenchmarkFirstLoad(b *testing.B) {
	c := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	resources, names := many(1000, 100)
	snapshot(b, c, "1", resources)
	p := newControlPlane(b, c)
	b.ReportAllocs()
	for b.Loop() {
		f := follow(b, p)
		f.wantAll(names)
		f.untilAll(names, "1")
		f.client.Close()
	}
}

// BenchmarkOneChange is a change of one endpoint among those: the control plane
// sends all assignments again.
func BenchmarkOneChange(b *testing.B) {
	c := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	resources, names := many(1000, 100)
	snapshot(b, c, "0", resources)
	f := follow(b, newControlPlane(b, c))
	f.wantAll(names)
	f.untilAll(names, "0")
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		version := fmt.Sprint(i)
		resources[eds.URL()][500] = assignmentProto(names[500], 98+i%2, 80)
		snapshot(b, c, version, map[string][]types.Resource{cds.URL(): resources[cds.URL()], eds.URL(): resources[eds.URL()]})
		f.untilVersion(eds, names[500], version)
	}
}

// BenchmarkStatus is what a scrape costs with 10,000 resources.
func BenchmarkStatus(b *testing.B) {
	c := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	resources, names := many(5000, 1)
	snapshot(b, c, "0", resources)
	f := follow(b, newControlPlane(b, c))
	f.wantAll(names)
	f.untilAll(names, "0")
	b.ReportAllocs()
	for b.Loop() {
		f.client.Status()
	}
}

func BenchmarkAway(b *testing.B) {
	f := follow(b, newControlPlane(b, cache.NewSnapshotCache(false, cache.IDHash{}, nil)))
	for _, name := range []string{"orders", "xdstp://a/envoy.config.cluster.v3.Cluster/orders"} {
		b.Run(name[:5], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f.client.Away("t", name)
			}
		})
	}
}
