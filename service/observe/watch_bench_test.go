//go:build unix

package observe

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/test/ledgertest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// BenchmarkIdleWatchers measures the CPU time that watchers take in each second in
// which nothing happens: all on one cluster, or each on a cluster of its own. One
// iteration is one second of real time.
func BenchmarkIdleWatchers(b *testing.B) {
	const watchers = 100
	for _, clusters := range []int{1, watchers} {
		b.Run(fmt.Sprint("clusters=", clusters), func(b *testing.B) {
			s := newState(b)
			ws := NewWatches(s, 0)
			ctx, cancel := context.WithCancel(b.Context())
			var reading sync.WaitGroup
			for i := range watchers {
				name := fmt.Sprint("cluster-", i%clusters)
				if i < clusters {
					apply(b, s, name, ledgertest.Config(name, ledgertest.Assignment(name, resource.Locality{Zone: "a"}, resource.Locality{Zone: "b"})))
				}
				w, err := ws.WatchCluster(nil, name, "", true, "")
				if err != nil {
					b.Fatal(err)
				}
				reading.Go(func() {
					defer w.Close()
					for err := error(nil); err == nil; {
						_, err = w.Next(ctx)
					}
				})
			}
			time.Sleep(time.Second) // the first messages
			used, seconds := -cpuTime(b), 0.0
			for b.Loop() {
				time.Sleep(time.Second)
				seconds++
			}
			used += cpuTime(b)
			b.ReportMetric(float64(used.Microseconds())/seconds, "cpu-µs/s")
			cancel()
			reading.Wait()
		})
	}
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
