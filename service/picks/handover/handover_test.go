package handover

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

func open(t *testing.T, path string) (*File[int], Content[int]) {
	t.Helper()
	return Open[int](path, slog.New(slog.DiscardHandler))
}

// Whatever is granted while ceilings are lowered: what callers hold is on disk.
func TestLeasesWhileCeilingsAreLowered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases")
	f, _ := open(t, path)
	counters := policy.NewCounters().Acquire(resource.ServiceKey{Cluster: "orders", EDSServiceName: "s"})
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
	for checked := 0; checked < 300; {
		select { // instead of run
		case <-f.wake:
			f.flush()
		default:
			f.lower()
		}
		n := int64(0)
		for range 100 { // nothing is written meanwhile
			n = max(n, held.Load())
			runtime.Gosched()
		}
		_, left := open(t, path)
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
	f.Begin()
	callers.Wait()
	f.Close([]int{7}, nil)
	if _, left := open(t, path); len(left.Leaves) != 0 || len(left.Leases) != 1 {
		t.Errorf("%+v is left", left)
	}
}

// A file that cannot be written refuses no lease, and one that cannot be read is put aside.
func TestBadFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "leases")
	f, _ := open(t, path)
	f.Begin()
	if err := os.Mkdir(path+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	c := policy.NewCounters().Acquire(resource.ServiceKey{Cluster: "orders"})
	c.Adopt()
	f.Raise(c, time.Hour)
	if c.Ceiling.Covers(1, time.Hour) || !f.Covers(c, time.Hour) {
		t.Error("a lease is on disk that was not written, or is refused")
	}
	if err := os.Remove(path + ".new"); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); f.failed.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the file is not written again")
		}
	}
	if f.Raise(c, time.Hour); !c.Ceiling.Covers(1, time.Hour) {
		t.Error("a lease is not covered")
	}
	err := error(syscall.EEXIST)
	for errors.Is(err, syscall.EEXIST) { // while a write goes on
		err = syscall.Mkfifo(path+".new", 0o600) // to open it takes forever
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Raise(c, 2*time.Hour)
	if !f.failed.Load() {
		t.Error("a disk that hangs is not reported")
	}
	pipe, err := os.OpenFile(path+".new", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close(nil, nil)
	if err := errors.Join(pipe.Close(), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", `{"format":1,"leaves":[`, `{"format":2}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, last := open(t, path)
		if left, err := os.ReadFile(path + ".bad"); last.Format != 0 || err != nil || string(left) != text {
			t.Errorf("%q: %+v is read, %q is kept: %v", text, last, left, err)
		}
	}
}
