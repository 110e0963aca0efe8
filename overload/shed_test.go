package overload

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The level rises at once to what memory requires, and falls by one each time it was calm.
func TestShedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var percent atomic.Int64
		monitor := NewMonitor(func() error { return nil })
		defer monitor.Close()
		s := NewShedder(Signals{Memory: func() float64 { return float64(percent.Load()) / 100 }, Monitor: monitor})
		var changes []string
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Run(ctx, func(l Level) { changes = append(changes, fmt.Sprint(time.Since(start), " ", int(l))) }, func() {})
		time.Sleep(100 * time.Millisecond) // between two measurements
		for _, p := range []int64{69, 86, 72} {
			percent.Store(p)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if current := monitor.Current(); len(current) != 1 || current[0].Resource != MemoryLimit || monitor.Short() {
			t.Errorf("shortages: %v", current)
		}
		time.Sleep(20 * time.Second)
		percent.Store(10)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		want := []string{"1.5s 3", "7s 2", "12s 1", "28s 0"}
		if !slices.Equal(changes, want) || s.Level() != ShedNothing {
			t.Errorf("levels %q; want %q", changes, want)
		}
		if current := monitor.Current(); len(current) != 0 {
			t.Errorf("shortages that do not end: %v", current)
		}
	})
}

func TestShedLevels(t *testing.T) {
	for _, tt := range []struct {
		memory float64
		wait   time.Duration
		short  Resource
		want   Level
	}{
		{0.6, 0, "", ShedNothing},
		{0.70, 0, "", ShedStreams},
		{0.80, 0, "", ShedSnapshots},
		{0.85, 0, "", ShedPushes},
		{0.90, 0, "", ShedLeases},
		{0, 400 * time.Millisecond, "", ShedNothing},
		{0, 600 * time.Millisecond, "", ShedSnapshots},
		{0.95, 600 * time.Millisecond, "", ShedLeases},
		{0, 0, Descriptors, ShedStreams},
		{0, 0, LocalPorts, ShedNothing},
	} {
		synctest.Test(t, func(t *testing.T) {
			monitor := NewMonitor(func() error { return nil })
			defer monitor.Close()
			s := NewShedder(Signals{Memory: func() float64 { return tt.memory }, Wait: func() time.Duration { return tt.wait }, Monitor: monitor})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go s.Run(ctx, func(Level) {}, func() {})
			time.Sleep(slowTime)
			if tt.wait > slowWait && tt.memory == 0 && s.Level() != ShedNothing {
				t.Error("sheds before CPU was short for long")
			}
			if tt.short != "" {
				monitor.Report(tt.short, fmt.Errorf("no %s", tt.short))
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if got := s.Level(); got != tt.want {
				t.Errorf("%+v: level %d", tt, got)
			}
		})
	}
}

// A nil Shedder is that of a daemon without limits.
func TestNoShedder(t *testing.T) {
	var s *Shedder
	if s.Sheds(ShedStreams) {
		t.Error("nil sheds")
	}
}

func TestMemoryUse(t *testing.T) {
	if got := MemoryUse(math.MaxInt64)(); got != 0 {
		t.Errorf("without a limit: %v", got)
	}
	block := make([]byte, 64<<20)
	runtime.GC()
	if got := MemoryUse(256 << 20)(); got < 0.25 || got > 0.9 {
		t.Errorf("64 MiB and a little of 256 MiB: %v", got)
	}
	runtime.KeepAlive(block)
}

func TestPercentile(t *testing.T) {
	buckets := []float64{math.Inf(-1), 0.001, 0.1, 1, math.Inf(1)}
	for _, tt := range []struct {
		counts []uint64
		want   time.Duration
	}{
		{[]uint64{0, 0, 0, 0}, 0},
		{[]uint64{1000, 0, 0, 0}, 0},
		{[]uint64{0, 995, 5, 0}, time.Millisecond},
		{[]uint64{0, 980, 10, 10}, 100 * time.Millisecond},
		{[]uint64{0, 0, 0, 1}, time.Second},
	} {
		if got := percentile(buckets, tt.counts, 0.99); got != tt.want {
			t.Errorf("%v: %v; want %v", tt.counts, got, tt.want)
		}
	}
	wait := SchedulingWait()
	wait()
	if got := wait(); got < 0 || got > time.Minute {
		t.Errorf("waited for %v", got)
	}
}
