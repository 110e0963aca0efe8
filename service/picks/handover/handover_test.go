package handover

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
)

func open(t *testing.T, path string) (*File[int], Content[int]) {
	t.Helper()
	f, last, err := Open[int](path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return f, last
}

// Whatever is granted while ceilings are lowered: what callers hold is on disk.
func TestLeasesWhileCeilingsAreLowered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases")
	f, _ := open(t, path)
	if err := f.Begin(); err != nil {
		t.Fatal(err)
	}
	counters := policy.NewCounters().Acquire(policy.ServiceKey{Cluster: "orders", EDSServiceName: "s"})
	var held atomic.Int64
	var callers sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		callers.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				for range 1 + n%40 {
					counters.Adopt()
					if !f.Covers(counters, time.Hour) {
						f.Raise(counters, time.Hour)
					}
					held.Add(1)
				}
				runtime.Gosched()
				for range 1 + n%40 {
					held.Add(-1)
					counters.Unhold()
				}
			}
		})
	}
	for checked := 0; checked < 1000; {
		f.lower()
		f.writing.Lock()
		n := held.Load()
		_, left := open(t, path)
		f.writing.Unlock()
		if n == 0 {
			continue
		}
		checked++
		if len(left.Leaves) != 1 || left.Leaves[0].Requests < n || left.Leaves[0].TTL != time.Hour {
			t.Errorf("callers hold %d, on disk is %+v", n, left)
			break
		}
	}
	close(stop)
	callers.Wait()
	f.Close([]int{7}, nil)
	if _, left := open(t, path); len(left.Leaves) != 0 || len(left.Leases) != 1 {
		t.Errorf("%+v is left", left)
	}
}

// A file that cannot be written refuses no lease, and one that cannot be read is not replaced.
func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "leases")
	f, _ := open(t, path)
	if err := f.Begin(); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	c := policy.NewCounters().Acquire(policy.ServiceKey{Cluster: "orders"})
	f.Raise(c, time.Hour)
	if f.Covers(c, time.Hour) {
		t.Error("a lease is covered that is not on disk")
	}
	if err := os.Remove(path + ".new"); err != nil {
		t.Fatal(err)
	}
	if f.Raise(c, time.Hour); !f.Covers(c, time.Hour) {
		t.Error("a lease is not covered")
	}
	f.Close(nil, nil)
	for _, text := range []string{"", `{"format":1,"leaves":[`, `{"format":2}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Open[int](path, nil); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
