package observe

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/timeline"
	"github.com/lbd-dev/lbd/test/ledgertest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// BenchmarkTimeline records a second of 10,000 clusters, each of which was picked
// from in it.
func BenchmarkTimeline(b *testing.B) {
	const clusters = 10_000
	s := newState(b)
	pick := func() {
		for t := range s.ledger.Hosted().All() {
			t.View().Only.CountPick(&policy.Call{Endpoint: new(resource.Endpoint)})
		}
	}
	for i := range clusters {
		name := fmt.Sprintf("cluster-%05d", i)
		apply(b, s, name, ledgertest.Config(name, ledgertest.Assignment(name, resource.Locality{})))
	}
	for _, busy := range []bool{true, false} {
		b.Run(fmt.Sprint("busy=", busy), func(b *testing.B) {
			h := NewTimeline(s.ledger, -1)
			h.store = timeline.NewStore(1 << 30)
			now := time.Unix(1_000_000_000, 0)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			pick()
			h.step(now)
			for b.Loop() {
				b.StopTimer()
				if busy {
					pick()
				}
				now = now.Add(time.Second)
				b.StartTimer()
				h.step(now)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(h.store.Usage().Bytes)/1e6, "MB-counted")
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB-heap")
		})
	}
}
