package overload

import (
	"context"
	"fmt"
	"math"
	"runtime/metrics"
	"slices"
	"sync/atomic"
	"time"
)

// Level says which work is shed. Each level includes those before it. Picks without a
// lease are never shed.
type Level int32

// The levels, in the order in which work is shed.
const (
	// ShedNothing is the level without overload.
	ShedNothing Level = iota
	// ShedStreams ends watches of callers without identity, and rejects new ones.
	ShedStreams
	// ShedSnapshots rejects requests that read or replace the resources of many clusters.
	ShedSnapshots
	// ShedPushes rejects pushes and deletions.
	ShedPushes
	// ShedLeases rejects new leases.
	ShedLeases
)

var levelTexts = map[Level]string{
	ShedNothing:   "nothing is rejected",
	ShedStreams:   "watches of callers without identity are ended and rejected",
	ShedSnapshots: "snapshots are rejected, and watches of callers without identity are ended and rejected",
	ShedPushes:    "pushes and snapshots are rejected, and watches of callers without identity are ended and rejected",
	ShedLeases:    "new leases, pushes and snapshots are rejected, and watches of callers without identity are ended and rejected",
}

// String says what is rejected.
func (l Level) String() string { return levelTexts[l] }

const (
	shedInterval = 500 * time.Millisecond
	// shedCalm is the time after which the level falls by one if no signal requires it.
	shedCalm = 5 * time.Second
	// slowTime is the time for which goroutines have to wait for slowWait before CPU is
	// considered short.
	slowTime = 5 * time.Second
	slowWait = 500 * time.Millisecond
)

// memoryLevels are the parts of the memory limit at which each level begins.
var memoryLevels = []struct {
	use   float64
	level Level
}{
	{0.90, ShedLeases},
	{0.85, ShedPushes},
	{0.80, ShedSnapshots},
	{0.70, ShedStreams},
}

// Signals are what a [Shedder] measures. A nil function is never a reason to shed.
type Signals struct {
	// Memory returns the use of memory as a part of its limit.
	Memory func() float64
	// Wait returns how long goroutines have waited for a CPU since the last call, at the
	// 99th percentile.
	Wait func() time.Duration
	// Monitor has the shortages: a process-wide one is a reason for ShedStreams. It gets
	// the shortages MemoryLimit and CPU.
	Monitor *Monitor
}

// Shedder decides which work is shed.
type Shedder struct {
	signals Signals
	level   atomic.Int32

	// Used by Run only.
	reached   time.Time // when a signal last required the level
	slowSince time.Time // zero unless CPU is short
}

// NewShedder returns a Shedder at ShedNothing. Run measures.
func NewShedder(s Signals) *Shedder { return &Shedder{signals: s} }

// Level returns the current level. A nil Shedder sheds nothing.
func (s *Shedder) Level() Level {
	if s == nil {
		return ShedNothing
	}
	return Level(s.level.Load())
}

// Sheds reports whether the work of a level is shed now.
func (s *Shedder) Sheds(l Level) bool { return s.Level() >= l }

// Run measures until ctx ends. It calls changed after each change of the level, and measured after
// each measurement, which is the time to end work of the level.
func (s *Shedder) Run(ctx context.Context, changed func(Level), measured func()) {
	tick := time.NewTicker(shedInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if level, ok := s.next(now); ok {
				s.level.Store(int32(level))
				changed(level)
			}
			measured()
		}
	}
}

// next returns the level that the signals require now, and whether it differs from the
// current one. It rises at once, and falls in steps.
func (s *Shedder) next(now time.Time) (Level, bool) {
	required := max(s.memory(), s.cpu(now), s.shortage())
	current := s.Level()
	if required >= current {
		s.reached = now
		return required, required > current
	}
	if now.Sub(s.reached) < shedCalm {
		return current, false
	}
	s.reached = now
	return current - 1, true
}

func (s *Shedder) memory() Level {
	if s.signals.Memory == nil {
		return ShedNothing
	}
	use := s.signals.Memory()
	for _, l := range memoryLevels {
		if use >= l.use {
			s.signals.Monitor.Report(MemoryLimit, fmt.Errorf("%.0f %% of the memory limit are in use", 100*use))
			return l.level
		}
	}
	return ShedNothing
}

func (s *Shedder) cpu(now time.Time) Level {
	if s.signals.Wait == nil {
		return ShedNothing
	}
	wait := s.signals.Wait()
	if wait < slowWait {
		s.slowSince = time.Time{}
		return ShedNothing
	}
	if s.slowSince.IsZero() {
		s.slowSince = now
	}
	if now.Sub(s.slowSince) < slowTime {
		return ShedNothing
	}
	s.signals.Monitor.Report(CPU, fmt.Errorf("work waits for %v for a CPU", wait))
	return ShedSnapshots
}

func (s *Shedder) shortage() Level {
	if s.signals.Monitor.Short() {
		return ShedStreams
	}
	return ShedNothing
}

// MemoryUse returns a function for [Signals.Memory]: [LiveMemory] as a part of a limit. Without a limit,
// which is math.MaxInt64, it returns 0.
func MemoryUse(limit int64) func() float64 {
	live := LiveMemory()
	return func() float64 {
		if limit == math.MaxInt64 {
			return 0
		}
		bytes, _ := live()
		return float64(bytes) / float64(limit)
	}
}

// SchedulingWait returns a function for [Signals.Wait].
func SchedulingWait() func() time.Duration {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	var last []uint64
	return func() time.Duration {
		metrics.Read(sample)
		h := sample[0].Value.Float64Histogram()
		counts := slices.Clone(h.Counts)
		for i := range last {
			counts[i] -= last[i]
		}
		last = slices.Clone(h.Counts)
		return percentile(h.Buckets, counts, 0.99)
	}
}

// percentile returns the lower bound of the bucket that has a percentile.
func percentile(buckets []float64, counts []uint64, p float64) time.Duration {
	total := uint64(0)
	for _, n := range counts {
		total += n
	}
	rest := uint64(float64(total) * (1 - p))
	for i, n := range slices.Backward(counts) {
		if n > rest {
			return time.Duration(max(0, buckets[i]) * float64(time.Second))
		}
		rest -= n
	}
	return 0
}
