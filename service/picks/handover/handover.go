// Package handover tells the next process of a daemon, in a file, how many requests of leases are in flight.
//
// While a process runs, the file has a [policy.Ceiling] for each leaf with leases: a lease above it is granted
// after it was raised. At its end, a process replaces the ceilings by its leases. A process that finds
// ceilings was started after a crash, and takes as many requests to be in flight, for as long.
//
// The file has durations that begin with the next start, so no clock needs to be right.
package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/wake"
)

const (
	format = 1
	// lowerPeriod is the time between two looks whether ceilings can be lower.
	lowerPeriod = time.Minute
	// retryPeriod is the time between two writes while they fail.
	retryPeriod = time.Second
	// raiseWait is the longest time that a lease waits for a disk that hangs.
	raiseWait = time.Second
)

// File is the file, for leases of a type. Its methods but Covers and Raise are called by one goroutine.
type File[L any] struct {
	// Fixed after Open.
	path          string
	log           *slog.Logger
	wake          wake.One // ceilings are wanted
	stop, stopped chan struct{}

	failed atomic.Bool // the last write, or it takes long

	mu     sync.Mutex // guards wanted and done
	wanted map[*policy.ClusterCounters]ceiling
	done   chan struct{} // closed when what is wanted was written, or could not be

	// written is on disk. It is owned by run while that runs.
	written map[*policy.ClusterCounters]ceiling
}

type ceiling struct {
	requests int64
	ttl      time.Duration
}

// Content is what the last process has left.
type Content[L any] struct {
	Format int    `json:"format"`
	Leaves []Leaf `json:"leaves"`
	Leases []L    `json:"leases"`
}

// Leaf is how many requests are in flight at most, besides those of known leases, and for how long.
type Leaf struct {
	Cluster  string        `json:"cluster"`
	Service  string        `json:"service,omitempty"`
	Requests int64         `json:"requests"`
	TTL      time.Duration `json:"ttl"` // in nanoseconds
}

// Key returns what the requests count in.
func (l *Leaf) Key() resource.ServiceKey {
	return resource.ServiceKey{Cluster: l.Cluster, EDSServiceName: l.Service}
}

// LeafOf is the inverse of Key.
func LeafOf(k resource.ServiceKey, requests int64, ttl time.Duration) Leaf {
	return Leaf{k.Cluster, k.EDSServiceName, requests, ttl}
}

// Open reads a file, which need not exist. The caller counts what is in it and calls Note, then Begin. One that
// cannot be read is put aside: without it, leases of the last process do not count, and lbd starts.
func Open[L any](path string, log *slog.Logger) (f *File[L], last Content[L]) {
	f = &File[L]{
		path: path, log: log, wake: wake.NewOne(), stop: make(chan struct{}), stopped: make(chan struct{}),
		wanted: make(map[*policy.ClusterCounters]ceiling), done: make(chan struct{}), written: make(map[*policy.ClusterCounters]ceiling),
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return f, last
	}
	if err == nil {
		err = json.Unmarshal(text, &last)
	}
	if err == nil && last.Format != format {
		err = fmt.Errorf("it has format %d, not %d", last.Format, format)
	}
	if err != nil {
		last = Content[L]{}
		log.Error("leases of the last process do not count: their file cannot be read, and is kept as *.bad", "file", path,
			"error", errors.Join(err, os.Rename(path, path+".bad")))
	}
	return f, last
}

// Note makes what c has in flight its ceiling, and for at least a time.
func (f *File[L]) Note(c *policy.ClusterCounters, ttl time.Duration) {
	n := ceiling{c.Breaker.InFlight(), max(ttl, f.written[c].ttl)}
	f.written[c] = n
	c.Ceiling.Set(n.requests, n.ttl)
}

// Begin writes what was noted, before the first lease. Close must be called after it.
func (f *File[L]) Begin() {
	_ = f.write(nil) // else the file has as much as what was noted
	go f.run()
}

// Covers reports whether the next process would know of a lease that c, which may be nil, counts; or the file cannot
// be written, so that leases are granted anyway. f may be nil.
func (f *File[L]) Covers(c *policy.ClusterCounters, ttl time.Duration) bool {
	return f == nil || c == nil || f.failed.Load() || c.Ceiling.Covers(c.Breaker.InFlight(), ttl)
}

// Raise returns when the ceiling of c has what is in flight, and a ttl. If the file cannot be written, or only
// slowly, leases are granted anyway.
func (f *File[L]) Raise(c *policy.ClusterCounters, ttl time.Duration) {
	n := c.Breaker.InFlight()
	f.mu.Lock()
	w, done := f.wanted[c], f.done
	f.wanted[c] = ceiling{max(w.requests, n+n/4), max(w.ttl, ttl)} // with room for the next ones
	f.mu.Unlock()
	f.wake.Wake()
	select {
	case <-done:
	case <-f.stopped:
	case <-time.After(raiseWait):
		f.report(errSlow)
	}
}

var errSlow = fmt.Errorf("a write takes longer than %v", raiseWait)

// report keeps the result of a write, and logs the first error.
func (f *File[L]) report(err error) {
	if !f.failed.Swap(err != nil) && err != nil {
		f.log.Error("the next process may not know all leases of this one", "error", err)
	}
}

// run writes the file until Close.
func (f *File[L]) run() {
	defer close(f.stopped)
	tick, retry := time.NewTicker(lowerPeriod), time.NewTicker(retryPeriod)
	defer tick.Stop()
	defer retry.Stop()
	for {
		select {
		case <-retry.C:
			if f.failed.Load() {
				f.flush()
			}
		case <-f.wake:
			f.flush()
		case <-tick.C:
			f.lower()
		case <-f.stop:
			return
		}
	}
}

// flush writes the ceilings that are wanted, by many at once.
func (f *File[L]) flush() {
	f.mu.Lock()
	wanted, done := f.wanted, f.done
	f.wanted, f.done = make(map[*policy.ClusterCounters]ceiling), make(chan struct{})
	f.mu.Unlock()
	defer close(done)
	before := maps.Clone(f.written)
	for c, w := range wanted {
		f.written[c] = ceiling{max(before[c].requests, w.requests), max(before[c].ttl, w.ttl)}
	}
	if f.write(nil) != nil {
		f.written = before
		return
	}
	for c := range wanted {
		c.Ceiling.Set(f.written[c].requests, f.written[c].ttl)
	}
}

// lower makes ceilings lower that are far above what is in flight.
func (f *File[L]) lower() {
	lowered := false
	for c, was := range f.written {
		n := 2 * c.Breaker.InFlight()
		if 2*n > was.requests {
			continue
		}
		c.Ceiling.Set(n, was.ttl)
		if c.Breaker.InFlight() > n { // a lease that may not have seen it
			c.Ceiling.Set(was.requests, was.ttl)
			continue
		}
		lowered = true
		if f.written[c] = (ceiling{n, was.ttl}); n == 0 {
			delete(f.written, c)
		}
	}
	if lowered {
		_ = f.write(nil) // else the next process counts too many
	}
}

// Close replaces the ceilings by leases, and by the number of others: no other one is granted any more.
func (f *File[L]) Close(leases []L, others []Leaf) {
	close(f.stop)
	<-f.stopped
	_ = f.write(&Content[L]{Leases: leases, Leaves: others}) // else the next process counts too many
}

// write replaces the file; nil stands for the ceilings.
func (f *File[L]) write(next *Content[L]) error {
	if next == nil {
		next = new(Content[L])
		for c, is := range f.written {
			next.Leaves = append(next.Leaves, LeafOf(c.Key(), is.requests, is.ttl))
		}
	}
	next.Format = format
	err := replace(f.path, next)
	f.report(err)
	return err
}

// replace makes a file durable that has v as JSON.
func replace(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
