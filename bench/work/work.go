// Package work has the work that is measured without HTTP, in a process of its own for
// each subject.
package work

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/bench/process"
)

// Do does the work once, on one goroutine.
type Do func() error

// A kind of work starts what it needs in dir, an empty directory. Each goroutine gets a Do
// of its own.
type start func(ctx context.Context, o Options) (newDo func() Do, stop func(), err error)

// Options are the size of the work.
type Options struct {
	Localities int `json:"localities"`
	Each       int `json:"each"` // endpoints in a locality
	// Dir is an empty directory, for work that stores on disk.
	Dir string `json:"dir"`
	// Profile is the file of a CPU profile, which each measurement replaces; empty for none.
	Profile string `json:"profile,omitempty"`
}

// kinds is the work by name.
var kinds = map[string]start{
	"lbd-pick":   lbdPick,
	"lean-pick":  leanPick,
	"grpc-pick":  grpcPick,
	"lbd-lease":  lbdLease,
	"lean-lease": leanLease,

	"lbd-update":       lbdUpdate,
	"lbd-update-store": lbdUpdateStore,
	"unmarshal":        unmarshal,
	"lbd-update-json":  lbdUpdateJSON,
	"unmarshal-json":   unmarshalJSON,

	"lbd-push": lbdPush,
	"bbolt":    bboltPush,
}

// Names lists the kinds of work.
func Names() []string {
	var names []string
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Request asks a worker to work.
type Request struct {
	Duration   time.Duration `json:"duration"`
	Goroutines int           `json:"goroutines"`
}

// Result is what a worker measured.
type Result struct {
	Count   int64         `json:"count"`
	Elapsed time.Duration `json:"elapsed"`
	CPU     time.Duration `json:"cpu"`
	// Allocations are the heap objects that were allocated.
	Allocations uint64 `json:"allocations"`
}

// Started is work that can be measured.
type Started struct {
	newDo   func() Do
	stop    func()
	profile string
}

// Start starts the work of a name.
func Start(ctx context.Context, name string, o Options) (*Started, error) {
	kind := kinds[name]
	if kind == nil {
		return nil, fmt.Errorf("work %q does not exist", name)
	}
	newDo, stop, err := kind(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return &Started{newDo, stop, o.Profile}, nil
}

// Stop ends the work.
func (s *Started) Stop() { s.stop() }

// NewDo returns the work of one goroutine.
func (s *Started) NewDo() Do { return s.newDo() }

// maxGoroutines bounds a request.
const maxGoroutines = 1024

// Measure works for a time.
func (s *Started) Measure(r Request) (Result, error) {
	if r.Goroutines < 1 || r.Goroutines > maxGoroutines || r.Duration <= 0 {
		return Result{}, fmt.Errorf("%d goroutines, %s: not from 1 to %d, or not positive", r.Goroutines, r.Duration, maxGoroutines)
	}
	var total atomic.Int64
	errs := make([]error, r.Goroutines)
	var group sync.WaitGroup
	dos := make([]Do, r.Goroutines)
	for i := range dos {
		dos[i] = s.newDo()
		if err := dos[i](); err != nil { // warm up
			return Result{}, err
		}
	}
	stopProfile, err := startProfile(s.profile)
	if err != nil {
		return Result{}, err
	}
	defer stopProfile()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used, err := process.CPU(os.Getpid())
	if err != nil {
		return Result{}, err
	}
	begin := time.Now()
	for i := range dos {
		group.Go(func() {
			n, err := repeat(dos[i], begin.Add(r.Duration))
			total.Add(n)
			errs[i] = err
		})
	}
	group.Wait()
	elapsed := time.Since(begin)
	usedAfter, err := process.CPU(os.Getpid())
	if err != nil {
		return Result{}, err
	}
	runtime.ReadMemStats(&after)
	for _, err := range errs {
		if err != nil {
			return Result{}, err
		}
	}
	return Result{Count: total.Load(), Elapsed: elapsed, CPU: usedAfter - used, Allocations: after.Mallocs - before.Mallocs}, nil
}

// startProfile starts a CPU profile, if path is not empty.
func startProfile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close() // a profile that is cut off is not read
	}, nil
}

// clockInterval is about how often repeat reads the clock.
const clockInterval = 100 * time.Microsecond

// repeat works until end, and counts.
func repeat(do Do, end time.Time) (n int64, err error) {
	batch := int64(1)
	for last := time.Now(); last.Before(end); {
		for range batch {
			if err := do(); err != nil {
				return n, err
			}
		}
		n += batch
		now := time.Now()
		if now.Sub(last) < clockInterval {
			batch *= 2
		} else if now.Sub(last) > 4*clockInterval && batch > 1 {
			batch /= 2
		}
		last = now
	}
	return n, nil
}
