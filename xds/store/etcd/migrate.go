package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lbd-dev/lbd/xds/store"
)

// baseMargin is how much indices grow when a fleet is copied: a daemon may have applied commits
// that the copy does not have.
const baseMargin = 1 << 20

// Contents are what a fleet has stored.
type Contents struct {
	Snapshot *store.Snapshot
	// Fleet identifies the fleet; empty for what is of no fleet, such as the contents of a file.
	Fleet string
	// Running are the keys of daemons that run, or did a minute ago.
	Running []string
}

// ContentsOf returns what a local copy is of, or what is stored in the file of one daemon.
func ContentsOf(file *store.Snapshot) Contents {
	contents, f := contentsOf(file)
	if f.Fleet == "" {
		return Contents{Snapshot: file}
	}
	return Contents{Snapshot: contents, Fleet: f.Fleet}
}

// Read returns what is stored at one revision of etcd. An error says that nothing is stored, or
// which records cannot be read.
func Read(ctx context.Context, c Config) (all Contents, err error) {
	s := prepare(c, Options{})
	defer func() { err = errors.Join(err, s.Close()) }()
	f, header, err := s.readFormat(ctx)
	if err != nil {
		return all, err
	}
	s.replica.format, s.replica.cluster = f, header.ClusterId
	if err := s.load(ctx); err != nil {
		return all, err
	}
	if problems := s.replica.problems; len(problems) > 0 {
		keys := slices.Sorted(maps.Keys(problems))
		return all, fmt.Errorf("%d records cannot be read, such as %s%s: %w; push their resources again, or delete the keys", len(keys), s.keys, keys[0], problems[keys[0]])
	}
	all = Contents{Snapshot: s.Snapshot(), Fleet: f.Fleet}
	for _, prefix := range []string{s.keys.replicas(), s.keys.writers()} {
		res, err := s.do(ctx, clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()))
		if err != nil {
			return all, s.explain(err)
		}
		for _, kv := range res.Get().Kvs {
			all.Running = append(all.Running, string(kv.Key))
		}
	}
	return all, nil
}

// Create copies the contents of another store to etcd. Nothing may be under the prefix. The fleet
// keeps its id, or gets one. Times and indices of entries stay as they are, and the index, which
// Create returns, grows. Until all was read back and compared, no daemon uses the prefix; after an
// error, what was written is deleted again if etcd responds.
func Create(ctx context.Context, c Config, of Contents) (index uint64, err error) {
	s := prepare(c, Options{})
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.dial(ctx); err != nil {
		return 0, err
	}
	m := &migration{Store: s, format: format{
		Version: formatVersion, Fleet: of.Fleet, Base: of.Snapshot.Index() + baseMargin,
	}}
	if m.format.Fleet == "" {
		m.format.Fleet = randomID(fleetSize)
	}
	if err := m.begin(ctx); err != nil {
		return 0, err
	}
	if err = m.copy(ctx, of.Snapshot); err == nil {
		err = m.verify(ctx, of.Snapshot)
	}
	if err == nil {
		index, err = m.end(ctx)
	}
	if err != nil {
		// Delete what was written, unless the migration has ended. If that fails, a later attempt says what to do.
		_, _ = m.commit(context.WithoutCancel(ctx), clientv3.OpDelete(string(m.keys), clientv3.WithPrefix()))
	}
	return index, err
}

// A migration writes the contents of another store.
type migration struct {
	*Store

	format   format
	revision int64 // of the key migration
	written  writes
}

// commit is a transaction that only this migration can make.
func (m *migration) commit(ctx context.Context, ops ...clientv3.Op) (revision int64, err error) {
	res, err := m.txn(ctx, []clientv3.Cmp{unchangedAt(m.keys.migration(), m.revision)}, ops)
	if err != nil {
		return 0, m.failure(err)
	}
	if !res.Succeeded {
		return 0, fmt.Errorf("the key %s was changed by another program", m.keys.migration())
	}
	return res.Header.Revision, nil
}

// begin puts the key migration, if there is no other key.
func (m *migration) begin(ctx context.Context) (err error) {
	m.revision, err = m.occupy(ctx, clientv3.OpPut(m.keys.migration(), time.Now().UTC().Format(time.RFC3339)))
	return err
}

// copy puts a record for each entry.
func (m *migration) copy(ctx context.Context, of *store.Snapshot) error {
	var ops []clientv3.Op
	size := 0
	flush := func() error {
		_, err := m.commit(ctx, ops...)
		ops, size = nil, 0
		return err
	}
	for e := range of.All() {
		key := m.keys.entry(e.Key)
		r := record{updated: e.Updated, revision: int64(e.Index) - int64(m.format.Base), raw: e.Raw}
		if len(e.Raw) > maxInline {
			ref, err := m.putBlob(ctx, &m.written, e.Raw)
			if err != nil {
				return m.failure(err)
			}
			r.blob = &ref
		}
		value := r.encode(m.keys.relative(key))
		if len(ops) == maxOperations || len(ops) > 0 && size+len(key)+len(value) > maxBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		ops, size = append(ops, clientv3.OpPut(key, string(value))), size+len(key)+len(value)
	}
	return flush()
}

// verify reads back what was written.
func (m *migration) verify(ctx context.Context, of *store.Snapshot) error {
	m.replica.format = m.format
	if err := m.load(ctx); err != nil {
		return err
	}
	if err := store.CheckCopy(of, m.Snapshot()); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	return nil
}

// end makes the prefix one of a fleet. Its head has the index of a commit.
func (m *migration) end(ctx context.Context) (index uint64, err error) {
	revision, err := m.commit(ctx, clientv3.OpPut(m.keys.format(), m.format.encode()), clientv3.OpPut(m.keys.head(), m.id), clientv3.OpDelete(m.keys.migration()))
	return m.format.Base + uint64(revision), err
}
