// Package handover tells the next process of a daemon, in a file, how many requests of leases are in flight.
//
// While a process runs, the file has a [policy.Ceiling] for each leaf with leases: a lease above it is granted
// after it was raised. At its end, a process replaces the ceilings by its leases. A process that finds
// ceilings was started after a crash: their requests are lost, and count for the ttl. It writes them again with the
// time at which that ends, for the case that it crashes, too.
//
// Other times in the file are durations that begin with the next start.
package handover

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
	lowerPeriod = 10 * time.Second
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
	wanted ceilings
	done   chan struct{} // closed when what is wanted was written, or could not be

	// Owned by run while that runs.
	noted ceilings // are on disk, unless failed
	lost  []lost   // the last to expire first

	left Content[L] // by this process; fixed before stop
}

type ceilings map[*policy.ClusterCounters]ceiling

type ceiling struct {
	requests int64
	ttl      time.Duration
}

// raise makes a ceiling at least as high as another one.
func (cs ceilings) raise(c *policy.ClusterCounters, to ceiling) {
	cs[c] = ceiling{max(cs[c].requests, to.requests), max(cs[c].ttl, to.ttl)}
}

// lost are requests of a process that crashed; fewer of them count when some were ended.
type lost struct {
	counters *policy.ClusterCounters
	leaf     Leaf
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
	// ExpiresAt is set of requests that are lost. TTL holds as well, if the clock was set back since.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// Key returns what the requests count in.
func (l *Leaf) Key() resource.ServiceKey {
	return resource.ServiceKey{Cluster: l.Cluster, EDSServiceName: l.Service}
}

// LeafOf is the inverse of Key.
func LeafOf(k resource.ServiceKey, requests int64, ttl time.Duration) Leaf {
	return Leaf{Cluster: k.Cluster, Service: k.EDSServiceName, Requests: requests, TTL: ttl}
}

// Open reads a file, which need not exist. The caller counts what is in it and calls Known and Lost, then Begin. One
// that cannot be read is put aside: without it, leases of the last process do not count, and lbd starts.
func Open[L any](path string, log *slog.Logger) (f *File[L], last Content[L]) {
	f = &File[L]{
		path: path, log: log, wake: wake.NewOne(), stop: make(chan struct{}), stopped: make(chan struct{}),
		wanted: make(ceilings), done: make(chan struct{}), noted: make(ceilings),
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
	now := time.Now()
	for i := range last.Leaves {
		l := &last.Leaves[i]
		if l.ExpiresAt.IsZero() {
			l.ExpiresAt = now.Add(l.TTL)
		}
		l.TTL = min(l.TTL, l.ExpiresAt.Sub(now))
	}
	slices.SortFunc(last.Leaves, func(a, b Leaf) int { return cmp.Compare(b.TTL, a.TTL) })
	return f, last
}

// Known makes what c has in flight, but is not lost, its ceiling, and for at least a time.
func (f *File[L]) Known(c *policy.ClusterCounters, ttl time.Duration) {
	f.noted.raise(c, ceiling{inFlight(c), ttl})
	c.Ceiling.Set(f.noted[c].requests, f.noted[c].ttl)
}

// Lost keeps requests of a leaf that c counts as lost, in the order of Open.
func (f *File[L]) Lost(c *policy.ClusterCounters, leaf Leaf) { f.lost = append(f.lost, lost{c, leaf}) }

// Begin writes what was noted: until then, the file has as much. Close must be called after it.
func (f *File[L]) Begin() {
	f.wake.Wake()
	go f.run()
}

func inFlight(c *policy.ClusterCounters) int64 { return c.Breaker.InFlight() - c.Ceiling.Lost() }

// Covers reports whether the next process would know of a lease that c, which may be nil, counts; or the file cannot
// be written, so that leases are granted anyway. f may be nil.
func (f *File[L]) Covers(c *policy.ClusterCounters, ttl time.Duration) bool {
	return f == nil || c == nil || c.Ceiling.Covers(c.Breaker.InFlight(), ttl) || f.failed.Load()
}

// Raise returns when it Covers what is in flight, and a ttl: with one write so many requests, or some more than now.
// It returns the error of a context that ends before that.
func (f *File[L]) Raise(ctx context.Context, c *policy.ClusterCounters, requests int64, ttl time.Duration) error {
	for !f.Covers(c, ttl) {
		f.mu.Lock()
		f.wanted.raise(c, ceiling{max(requests, withRoom(inFlight(c))), ttl})
		done := f.done
		f.mu.Unlock()
		f.wake.Wake()
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		case <-f.stopped:
			return nil
		case <-time.After(raiseWait):
			f.report(errSlow)
		}
	}
	return nil
}

// withRoom returns a ceiling for n requests and the next ones.
func withRoom(n int64) int64 { return n + n/4 }

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
	retry, lower := time.NewTicker(retryPeriod), time.NewTimer(lowerPeriod)
	defer retry.Stop()
	defer lower.Stop()
	for {
		select {
		case <-f.wake:
			f.flush()
		case <-retry.C:
			if f.failed.Load() {
				f.flush()
			}
		case <-lower.C:
			f.lower(lowerPeriod - raiseWait) // a lease may be granted raiseWait after it was asked for
			lower.Reset(lowerPeriod)
		case <-f.stop:
			f.left.Format = format
			f.report(replace(f.path, &f.left)) // else the next process counts too many
			return
		}
	}
}

// flush writes the ceilings that are wanted, by many at once.
func (f *File[L]) flush() {
	f.mu.Lock()
	wanted, done := f.wanted, f.done
	f.wanted, f.done = make(ceilings), make(chan struct{})
	f.mu.Unlock()
	defer close(done)
	for c, w := range wanted {
		f.noted.raise(c, w)
	}
	if f.write() {
		for c := range wanted {
			c.Ceiling.Set(f.noted[c].requests, f.noted[c].ttl)
		}
	}
}

// lower makes ceilings lower: at most twice what is in flight, and a ttl that leases can have left, which are granted so
// long before.
func (f *File[L]) lower(passed time.Duration) {
	before := maps.Clone(f.noted)
	for c, was := range before {
		n, is := inFlight(c), ceiling{was.requests, min(was.ttl, max(c.Ceiling.TakeLongest(), was.ttl-passed))}
		if n == 0 {
			is = ceiling{}
		} else if was.requests > 2*n {
			is.requests = withRoom(n)
		}
		if c.Ceiling.Set(is.requests, is.ttl); inFlight(c) > is.requests || c.Ceiling.Longest() > is.ttl {
			is = was // for a lease that may not have seen it
			c.Ceiling.Set(is.requests, is.ttl)
		}
		if f.noted[c] = is; is.requests == 0 {
			delete(f.noted, c)
		}
	}
	n := len(f.lost)
	f.lost = slices.DeleteFunc(f.lost, func(l lost) bool { return l.counters.Ceiling.Lost() == 0 })
	if len(f.lost) < n || !maps.Equal(before, f.noted) {
		f.write() // else the next process counts too many
	}
}

// Close replaces the ceilings by leases, and by the number of others: no other one is granted any more. It waits at
// most so long for a disk that hangs.
func (f *File[L]) Close(leases []L, others []Leaf, wait time.Duration) {
	f.left = Content[L]{Leases: leases, Leaves: others}
	close(f.stop)
	select {
	case <-f.stopped:
	case <-time.After(max(wait, raiseWait)):
		f.report(errSlow)
	}
}

// write replaces the file by what is noted, and lost.
func (f *File[L]) write() (ok bool) {
	next := Content[L]{Format: format}
	for c, is := range f.noted {
		next.Leaves = append(next.Leaves, LeafOf(c.Key(), is.requests, is.ttl))
	}
	listed := make(map[*policy.ClusterCounters]int64)
	for _, l := range f.lost {
		l.leaf.Requests = min(l.leaf.Requests, l.counters.Ceiling.Lost()-listed[l.counters])
		if listed[l.counters] += l.leaf.Requests; l.leaf.Requests > 0 {
			next.Leaves = append(next.Leaves, l.leaf)
		}
	}
	err := replace(f.path, &next)
	f.report(err)
	return err == nil
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
