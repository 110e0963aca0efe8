package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// A revision is what one transaction of etcd changed.
type revision struct {
	number int64
	events []event
}

// An event is a put or a deletion of a key.
type event struct {
	key   string // relative to the prefix
	value []byte // nil: deleted
}

// fetcher returns the content of a blob, as of a revision.
type fetcher func(ctx context.Context, r reference, revision int64) ([]byte, error)

// A replica is what a daemon has applied of etcd's revisions. Only one goroutine uses it.
type replica struct {
	// fixed
	keys  layout
	fetch fetcher
	own   func(key string, value []byte) *ownCommit

	state
}

// state is what changes of a replica. The follower publishes copies, with problems of their own: all
// else that it refers to is immutable.
type state struct {
	format   format
	cluster  uint64 // etcd's id, which differs after it was restored from a backup; 0: not known
	snapshot *store.Snapshot
	applied  int64      // all revisions up to it are applied
	pending  *batch     // that is being folded; nil: none
	blobs    references // of entries whose content is in a blob
	problems map[string]error
}

// references are the blobs of entries, by the entries' keys relative to the prefix.
type references map[string]string

// A batch is a large commit that is being folded: its changes are not all in the keys of their
// entries yet.
type batch struct {
	reference

	revision int64 // of its commit, and of the key pending
}

// index is the index of the commit of a revision.
func (r *replica) index(revision int64) uint64 { return uint64(int64(r.format.Base) + revision) }

func (r *replica) isEntry(key string) bool {
	return strings.HasPrefix(string(r.keys)+key, r.keys.resource())
}

// apply applies a revision, and returns the commit that it is, if it is one. The error is that
// of fetching a blob: then the revision is not applied.
func (r *replica) apply(ctx context.Context, rev revision) (*store.Commit, error) {
	next := step{replica: r, at: rev.number, changes: store.Changes{}, blobs: maps.Clone(r.blobs), pending: r.pending}
	for _, e := range rev.events {
		if err := next.event(ctx, e); err != nil {
			return nil, err
		}
	}
	if next.ownCommit != nil {
		maps.Copy(next.changes, next.ownCommit.changes)
	}
	r.applied = rev.number
	r.blobs, r.pending = next.blobs, next.pending
	after, changed := r.snapshot.Apply(next.changes, r.index(rev.number))
	if !next.commit && len(changed) == 0 { // a part of a fold, or the key of a writer
		return nil, nil
	}
	if len(changed) == 0 {
		after = after.At(r.index(rev.number))
	}
	r.snapshot = after
	return &store.Commit{After: after, Changed: changed}, nil
}

// A step is a revision while it is being applied.
type step struct {
	*replica

	at        int64 // the revision
	commit    bool
	changes   store.Changes // as read
	ownCommit *ownCommit    // as this daemon wrote them, with values
	blobs     references
	pending   *batch
}

// An ownCommit is what a commit of this daemon has: nothing of it is read from etcd.
type ownCommit struct {
	changes store.Changes
	blobs   references // of all its entries; an empty id is none
}

func (s *step) event(ctx context.Context, e event) error {
	switch key := string(s.keys) + e.key; {
	case key == s.keys.head():
		s.commit = true
	case key == s.keys.pending():
		return s.pendingEvent(ctx, e, s.at)
	case s.isEntry(e.key):
		return s.entryEvent(ctx, e, s.at)
	case strings.HasPrefix(key, s.keys.writers()) && e.value != nil:
		if own := s.own(e.key, e.value); own != nil {
			s.ownCommit = own
		}
	}
	return nil
}

// pendingEvent applies a large commit that was put at a revision, or ends it: it has been
// folded then.
func (s *step) pendingEvent(ctx context.Context, e event, put int64) error {
	if s.pending = nil; e.value == nil {
		s.solved(e.key)
		return nil
	}
	ref, err := decodePending(e.key, e.value)
	if err != nil {
		s.problem(e.key, err)
		return nil
	}
	s.pending = &batch{reference: ref, revision: put}
	if s.ownCommit != nil {
		for key, id := range s.ownCommit.blobs {
			s.refer(key, id)
		}
		return nil
	}
	var changes []change
	b, err := s.fetch(ctx, ref, s.at)
	if err == nil {
		changes, err = decodeBatch(b)
	}
	if err != nil {
		return s.unlessDamaged(e.key, err)
	}
	s.solved(e.key)
	for _, c := range changes {
		if err := s.entryEvent(ctx, event{c.key, c.record}, put); err != nil {
			return err
		}
	}
	return nil
}

// refer records the blob of an entry; an empty id is none.
func (s *step) refer(key, id string) {
	if id == "" {
		delete(s.blobs, key)
	} else {
		s.blobs[key] = id
	}
}

// entryEvent applies a put or a deletion of an entry, of a revision. A record that cannot be
// read leaves the entry as it is.
func (s *step) entryEvent(ctx context.Context, e event, put int64) error {
	key, err := s.keys.key(string(s.keys) + e.key)
	if err != nil {
		s.problem(e.key, fmt.Errorf("%w: %w", errDamaged, err))
		return nil
	}
	if e.value == nil {
		s.changes[key] = nil
		s.refer(e.key, "")
		s.solved(e.key)
		return nil
	}
	entry, id, err := s.entry(ctx, key, e, put)
	if err != nil {
		return s.unlessDamaged(e.key, err)
	}
	s.changes[key] = entry
	s.refer(e.key, id)
	s.solved(e.key)
	return nil
}

// entry decodes a record of a revision, and fetches its content if that is in a blob, whose id
// it returns.
func (s *step) entry(ctx context.Context, key resource.Key, e event, put int64) (*store.Entry, string, error) {
	rec, err := decodeRecord(e.key, e.value)
	if err != nil {
		return nil, "", err
	}
	if rec.revision > put || int64(s.format.Base)+rec.revision < 0 {
		return nil, "", fmt.Errorf("%w: revision %d in a commit of %d", errDamaged, rec.revision, put)
	}
	rec.revision = cmp.Or(rec.revision, put)
	entry := &store.Entry{Key: key, Raw: rec.raw, Updated: rec.updated, Index: s.index(rec.revision)}
	if rec.blob == nil {
		return entry, "", nil
	}
	// What is known already is not fetched again: of an own commit, or of a commit that is folded.
	if s.blobs[e.key] == rec.blob.id {
		if old, ok := s.snapshot.Get(key); ok {
			entry.Raw = old.Raw
			return entry, rec.blob.id, nil
		}
	}
	if s.ownCommit != nil { // whose entries replace this one
		return entry, rec.blob.id, nil
	}
	entry.Raw, err = s.fetch(ctx, *rec.blob, s.at)
	return entry, rec.blob.id, err
}

// problem records that a value cannot be read.
func (r *replica) problem(key string, err error) { r.problems[key] = err }

func (r *replica) solved(key string) { delete(r.problems, key) }

// unlessDamaged records an error about what a value is, and returns other errors.
func (r *replica) unlessDamaged(key string, err error) error {
	if !errors.Is(err, errDamaged) && !errors.Is(err, store.ErrNewer) {
		return err
	}
	r.problem(key, err)
	return nil
}

// A keyValue is one key at the revision at which all was read.
type keyValue struct {
	event

	revision int64 // at which it was put
}

// load replaces all by what etcd had at a revision, and returns the commit that leads there
// from what was there before. Entries that cannot be read stay as they were.
func (r *replica) load(ctx context.Context, number int64, all []keyValue) (*store.Commit, error) {
	was := r.snapshot
	next := step{replica: r, at: number, changes: store.Changes{}, blobs: references{}}
	problems := r.problems
	r.problems = map[string]error{}
	head := int64(0)
	var pending *keyValue
	err := func() error {
		for _, kv := range all {
			switch {
			case string(r.keys)+kv.key == r.keys.head():
				head = kv.revision
			case string(r.keys)+kv.key == r.keys.pending():
				pending = &kv
			case r.isEntry(kv.key):
				if id := r.blobs[kv.key]; id != "" { // known content is not fetched again
					next.blobs[kv.key] = id
				}
				if err := next.entryEvent(ctx, kv.event, kv.revision); err != nil {
					return err
				}
			}
		}
		if pending == nil {
			return nil
		}
		return next.pendingEvent(ctx, pending.event, pending.revision)
	}()
	if err != nil {
		r.problems = problems
		return nil, err
	}
	for key := range r.problems { // what cannot be read stays as it was
		if k, err := r.keys.key(string(r.keys) + key); err == nil && r.isEntry(key) {
			if old, ok := was.Get(k); ok {
				next.changes[k] = &old
			}
		}
	}
	for key, e := range next.changes {
		if old, ok := was.Get(key); ok && e != nil && string(old.Raw) == string(e.Raw) {
			e.Raw, e.Value = old.Raw, old.Value
		}
	}
	// Other programs may have deleted or put records without a commit.
	index := max(r.index(head), was.Index())
	for _, e := range next.changes {
		if e != nil {
			index = max(index, e.Index)
		}
	}
	after, _ := new(store.Snapshot).Apply(next.changes, index)
	after = after.At(index)
	changed := store.Difference(was, after)
	r.snapshot, r.applied, r.pending, r.blobs = after, number, next.pending, next.blobs
	return &store.Commit{After: after, Changed: changed}, nil
}
