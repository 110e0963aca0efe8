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
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
)

const (
	format = 1
	// lowerPeriod is the time between two looks whether ceilings can be lower.
	lowerPeriod = time.Minute
)

// File is the file, for leases of a type. Its methods but Covers and Raise are called by one goroutine at a
// time.
type File[L any] struct {
	path string // fixed
	log  *slog.Logger

	mu     sync.Mutex // guards wanted
	wanted map[*policy.ClusterCounters]ceiling

	writing sync.Mutex // held while the file is written; guards the rest
	written map[*policy.ClusterCounters]ceiling
	failed  bool // the last time

	stop, stopped chan struct{}
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
func (l *Leaf) Key() policy.ServiceKey {
	return policy.ServiceKey{Cluster: l.Cluster, EDSServiceName: l.Service}
}

// LeafOf is the inverse of Key.
func LeafOf(k policy.ServiceKey, requests int64, ttl time.Duration) Leaf {
	return Leaf{k.Cluster, k.EDSServiceName, requests, ttl}
}

// Open reads a file, which need not exist. The caller counts what is in it and calls Note, then Begin.
func Open[L any](path string, log *slog.Logger) (f *File[L], last Content[L], err error) {
	f = &File[L]{
		path: path, log: log, wanted: make(map[*policy.ClusterCounters]ceiling), written: make(map[*policy.ClusterCounters]ceiling),
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return f, last, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &last)
	}
	if err == nil && last.Format != format {
		err = fmt.Errorf("it has format %d, not %d", last.Format, format)
	}
	if err != nil {
		err = fmt.Errorf("%s cannot be read (move it away, and leases of the last process do not count): %w", path, err)
	}
	return f, last, err
}

// Note makes what c has in flight its ceiling, and for at least a time.
func (f *File[L]) Note(c *policy.ClusterCounters, ttl time.Duration) {
	n := ceiling{c.Breaker.InFlight(), max(ttl, f.written[c].ttl)}
	f.written[c] = n
	c.Ceiling.Set(n.requests, n.ttl)
}

// Begin writes what was noted, before the first lease. Close must be called after it.
func (f *File[L]) Begin() error {
	f.writing.Lock()
	defer f.writing.Unlock()
	go f.lowerUntilStopped()
	return f.write(nil)
}

// Covers reports whether the next process would know of a lease that c, which may be nil, counts. f may be nil.
func (f *File[L]) Covers(c *policy.ClusterCounters, ttl time.Duration) bool {
	return f == nil || c == nil || c.Ceiling.Covers(c.Breaker.InFlight(), ttl)
}

// Raise returns when the ceiling of c has what is in flight, and a ttl. If the file cannot be written, leases
// are granted anyway.
func (f *File[L]) Raise(c *policy.ClusterCounters, ttl time.Duration) {
	n := c.Breaker.InFlight()
	f.mu.Lock()
	w := f.wanted[c]
	f.wanted[c] = ceiling{max(w.requests, n+n/4), max(w.ttl, ttl)} // with room for the next ones
	f.mu.Unlock()
	f.writing.Lock() // many wait here for one write
	defer f.writing.Unlock()
	f.flush()
}

// flush writes the ceilings that are wanted. The caller holds writing.
func (f *File[L]) flush() {
	f.mu.Lock()
	wanted := f.wanted
	f.wanted = make(map[*policy.ClusterCounters]ceiling)
	f.mu.Unlock()
	for c, w := range wanted {
		was := f.written[c]
		f.written[c] = ceiling{max(was.requests, w.requests), max(was.ttl, w.ttl)}
	}
	if len(wanted) == 0 || f.write(nil) != nil {
		return
	}
	for c := range wanted {
		c.Ceiling.Set(f.written[c].requests, f.written[c].ttl)
	}
}

// lower makes ceilings lower that are far above what is in flight.
func (f *File[L]) lower() {
	f.writing.Lock()
	defer f.writing.Unlock()
	f.flush()
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

func (f *File[L]) lowerUntilStopped() {
	defer close(f.stopped)
	tick := time.NewTicker(lowerPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.lower()
		case <-f.stop:
			return
		}
	}
}

// Close replaces the ceilings by leases, and by the number of others: no other one is granted any more.
func (f *File[L]) Close(leases []L, others []Leaf) {
	close(f.stop)
	<-f.stopped
	f.writing.Lock()
	defer f.writing.Unlock()
	clear(f.written)
	_ = f.write(&Content[L]{Leases: leases, Leaves: others}) // else the next process counts too many
}

// write replaces the file; nil stands for the ceilings. The caller holds writing.
func (f *File[L]) write(next *Content[L]) error {
	if next == nil {
		next = new(Content[L])
		for c, is := range f.written {
			next.Leaves = append(next.Leaves, LeafOf(c.Key(), is.requests, is.ttl))
		}
	}
	next.Format = format
	err := replace(f.path, next)
	if err != nil && !f.failed {
		f.log.Error("the next process may not know all leases of this one", "error", err)
	}
	f.failed = err != nil
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
