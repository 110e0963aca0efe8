package etcd

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lbd-dev/lbd/xds/backoff"
)

// Status describes how well the store follows etcd.
type Status struct {
	// Fleet identifies what is stored; empty until it is known.
	Fleet string
	// Loaded: the contents are those of etcd, or of a copy of it. Until then, nothing is known.
	Loaded bool
	// Live: the contents were read from etcd, and not only from the copy.
	Live bool
	// Index is the index of the contents; Last that of the last commit that etcd is known to
	// have.
	Index, Last uint64
	// Current is when the contents were last known to be all that etcd has; zero if never. It
	// has a monotonic clock reading.
	Current time.Time
	// Err is why etcd does not respond; nil if it does.
	Err error
	// Problems says why records cannot be read, by key. Their entries stay as they were.
	Problems map[string]error
	// Outdated says which members of etcd are older than lbd needs.
	Outdated []string
	// CopyErr is why the local copy cannot be written.
	CopyErr error
}

// seen is the last response of etcd.
type seen struct {
	head    int64
	current time.Time
}

// publish makes the follower's state visible, and logs records that cannot be read.
func (s *Store) publish() {
	now := s.replica.state
	now.problems = maps.Clone(now.problems)
	was := s.state.Swap(&now)
	for _, key := range slices.Sorted(maps.Keys(now.problems)) {
		if was == nil || fmt.Sprint(was.problems[key]) != now.problems[key].Error() {
			s.logger.Error("a record in etcd cannot be read; what it was before stays in use", "key", string(s.keys)+key, "reason", now.problems[key])
		}
	}
}

// Status returns the state of the store.
func (s *Store) Status() Status {
	now := s.state.Load()
	st := Status{
		Fleet: now.format.Fleet, Loaded: now.loaded(), Live: now.applied > 0,
		Index: now.snapshot.Index(), Last: now.snapshot.Index(), Err: s.Err(), Problems: now.problems,
	}
	if last := s.seen.Load(); last != nil {
		st.Last, st.Current = max(st.Last, now.format.Base+uint64(last.head)), last.current
	}
	if old := s.old.Load(); old != nil {
		st.Outdated = *old
	}
	if err := s.copyErr.Load(); err != nil {
		st.CopyErr = *err
	}
	return st
}

// Loaded is that of [store.Store].
func (s *Store) Loaded() bool { return s.state.Load().loaded() }

// loaded reports whether the contents are those of etcd, or of a copy.
func (s *state) loaded() bool { return s.applied > 0 || s.snapshot.Index() > 0 }

// usedBlobs returns the blobs that are referred to, and false if that is not known.
func (s *Store) usedBlobs() (map[string]bool, bool) {
	now := s.state.Load()
	used := map[string]bool{}
	for _, id := range now.blobs {
		used[id] = true
	}
	if now.pending != nil {
		used[now.pending.id] = true
	}
	return used, len(now.problems) == 0 && now.applied > 0
}

// probe checks that etcd responds, and what its last commit is.
func (s *Store) probe(ctx context.Context) {
	var behind time.Time // since when a commit was not delivered
	for ctx.Err() == nil {
		backoff.Sleep(ctx, probeInterval/2+rand.N(probeInterval))
		watch := s.watching.Load()
		if watch == nil {
			continue // the follower connects
		}
		began := time.Now()
		got, err := s.do(ctx, clientv3.OpGet(s.keys.head()))
		res := got.Get()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.setLost(s.diagnose(ctx, s.explain(err)))
			continue
		}
		if now := s.state.Load(); res.Header.Revision < now.applied || res.Header.ClusterId != now.cluster {
			(*watch)(errRestored)
			continue
		}
		s.setLost(nil)
		if s.probed(res, began) {
			behind = time.Time{}
		} else if behind.IsZero() {
			behind = began
		} else if time.Since(behind) > stuckAfter {
			behind = time.Time{}
			(*watch)(errStuck)
		}
	}
}

// probed records a response, and reports whether its last commit is applied.
func (s *Store) probed(res *clientv3.GetResponse, began time.Time) bool {
	last := seen{}
	if was := s.seen.Load(); was != nil {
		last = *was
	}
	for _, kv := range res.Kvs {
		last.head = kv.ModRevision
	}
	current := last.head <= s.state.Load().applied
	if current {
		last.current = began
	}
	s.seen.Store(&last)
	return current
}
