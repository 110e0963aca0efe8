package handover

import (
	"context"
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
	"github.com/lbd-dev/lbd/test/must"
	"github.com/lbd-dev/lbd/xds/resource"
)

var noError = must.NoError

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
					counters.Adopt(false)
					if !f.Covers(counters, time.Hour) {
						_ = f.Raise(t.Context(), counters, 0, time.Hour)
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
			f.lower(0)
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
	f.Close([]int{7}, nil, time.Minute)
	if _, left := open(t, path); len(left.Leaves) != 0 || len(left.Leases) != 1 {
		t.Errorf("%+v is left", left)
	}
}

// While others are in flight, a ceiling follows what was: to twice the requests, and to a ttl that is asked for or left.
func TestCeilingsFollow(t *testing.T) {
	f, _ := open(t, filepath.Join(t.TempDir(), "leases"))
	c := policy.NewCounters().Acquire(resource.ServiceKey{Cluster: "orders"})
	f.Known(c, 0)
	hold := func(n int64, ttl time.Duration) {
		for c.Breaker.InFlight() < n {
			c.Adopt(false)
		}
		for c.Breaker.InFlight() > n {
			c.Unhold()
		}
		if !f.Covers(c, ttl) {
			f.noted.raise(c, ceiling{withRoom(n), ttl})
			f.flush()
			c.Ceiling.Set(f.noted[c].requests, f.noted[c].ttl)
		}
	}
	for i, step := range []struct {
		n    int64
		ttl  time.Duration
		want ceiling
	}{
		{100, time.Minute, ceiling{125, time.Minute}},
		{100, 5 * time.Second, ceiling{125, 50 * time.Second}},
		{50, 50 * time.Second, ceiling{62, 50 * time.Second}},
		{40, 10 * time.Second, ceiling{62, 40 * time.Second}},
		{40, 35 * time.Second, ceiling{62, 35 * time.Second}},
		{0, time.Second, ceiling{}},
	} {
		hold(step.n, step.ttl)
		f.lower(10 * time.Second)
		if is := f.noted[c]; is != step.want {
			t.Errorf("step %d: %+v, want %+v", i, is, step.want)
		}
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
	c.Adopt(false)
	noError(t, f.Raise(t.Context(), c, 0, time.Hour))
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
	if noError(t, f.Raise(t.Context(), c, 10, time.Hour)); !c.Ceiling.Covers(10, time.Hour) {
		t.Error("the leases of a request are not covered by one write")
	}
	err := error(syscall.EEXIST)
	for errors.Is(err, syscall.EEXIST) { // while a write goes on
		err = syscall.Mkfifo(path+".new", 0o600) // to open it takes forever
	}
	if err != nil {
		t.Fatal(err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := f.Raise(gone, c, 0, 2*time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that has gone: %v", err)
	}
	if noError(t, f.Raise(t.Context(), c, 0, 2*time.Hour)); !f.failed.Load() {
		t.Error("a disk that hangs is not reported")
	}
	f.Close(nil, nil, 0) // does not wait for it
	pipe, err := os.OpenFile(path+".new", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	<-f.stopped
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
