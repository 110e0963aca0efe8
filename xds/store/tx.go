package store

import (
	"fmt"
	"iter"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// A Batch runs the functions of Updates that a store commits together, on one snapshot. Only
// implementations of stores use it, in one goroutine.
type Batch struct {
	base     *Snapshot
	now      time.Time
	maxReads int
	written  Changes
	reads    Reads
}

// NewBatch returns an empty batch. now dates the entries that are written. The batch records
// up to maxReads keys that are read, and beyond that only that all was read; with 0, it
// records nothing.
func (s *Snapshot) NewBatch(now time.Time, maxReads int) *Batch {
	return &Batch{base: s, now: now, maxReads: maxReads, written: Changes{}}
}

// Begin returns a transaction that reads the snapshot and what the batch has written.
func (b *Batch) Begin() *Tx { return &Tx{batch: b, own: Changes{}} }

// Add adds what a transaction wrote and read to the batch. A transaction that failed only has
// reads: its error depends on them.
func (b *Batch) Add(tx *Tx) {
	if !tx.failed {
		maps.Copy(b.written, tx.own)
	}
	b.reads.add(tx.reads, b.maxReads)
}

// Written returns what the batch has written. The batch adds to it.
func (b *Batch) Written() Changes { return b.written }

// Reads returns what the batch has read of its snapshot.
func (b *Batch) Reads() Reads { return b.reads }

// Reads are the keys of a snapshot on which a result depends.
type Reads struct {
	// All: it depends on all entries, and on the absence of others.
	All bool
	// Keys are the keys whose entries, or absence, were read. It is nil if All is true.
	Keys map[resource.Key]struct{}
	// Types are those of which no entry may have been put since the snapshot. It is nil if All is true.
	Types map[resource.Type]struct{}
}

// AddKey adds a key, or everything if there are more than most keys; nothing if that is 0.
func (r *Reads) AddKey(key resource.Key, most int) {
	if most == 0 || r.All {
		return
	}
	if r.Keys == nil {
		r.Keys = map[resource.Key]struct{}{}
	}
	if r.Keys[key] = struct{}{}; len(r.Keys) > most {
		r.addAll(most)
	}
}

func (r *Reads) addAll(most int) {
	if most > 0 {
		*r = Reads{All: true}
	}
}

func (r *Reads) addType(kind resource.Type, most int) {
	if most == 0 || r.All {
		return
	}
	if r.Types == nil {
		r.Types = map[resource.Type]struct{}{}
	}
	r.Types[kind] = struct{}{}
}

func (r *Reads) add(other Reads, most int) {
	if other.All {
		r.addAll(most)
	}
	for key := range other.Keys {
		r.AddKey(key, most)
	}
	for kind := range other.Types {
		r.addType(kind, most)
	}
}

// Tx is the transaction of one Update. It reads its own writes and those of earlier Updates
// of the same commit. Only the function of the Update may use it.
type Tx struct {
	batch  *Batch
	own    Changes
	reads  Reads
	failed bool
}

// Run calls fn, and turns its panic into a [*PanicError]. After an error, the transaction has
// no writes.
func (tx *Tx) Run(fn func(*Tx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
		tx.failed = err != nil
	}()
	return fn(tx)
}

// Written returns what the transaction wrote.
func (tx *Tx) Written() Changes { return tx.own }

// Get returns the entry of key, and whether there is one.
func (tx *Tx) Get(key resource.Key) (Entry, bool) {
	for _, o := range []Changes{tx.own, tx.batch.written} {
		if e, written := o[key]; written {
			if e == nil {
				return Entry{}, false
			}
			return *e, true
		}
	}
	tx.reads.AddKey(key, tx.batch.maxReads)
	return tx.batch.base.Get(key)
}

// All yields every entry, in the order of type and name, as of the call.
func (tx *Tx) All() iter.Seq[Entry] {
	tx.reads.addAll(tx.batch.maxReads)
	written := maps.Clone(tx.batch.written)
	maps.Copy(written, tx.own)
	view, _ := tx.batch.base.Apply(written, 0)
	return view.All()
}

// Of yields the entries of a type, in no order, as of the call. The commit depends on that no other daemon puts an
// entry of the type. It does not depend on deletions: Get what must not be deleted.
func (tx *Tx) Of(kind resource.Type) iter.Seq[Entry] {
	tx.reads.addType(kind, tx.batch.maxReads)
	return tx.batch.base.OfWith(kind, tx.batch.written, tx.own)
}

// Base returns the snapshot that the transaction reads where no Update of the same commit has written.
func (tx *Tx) Base() *Snapshot { return tx.batch.base }

// Earlier returns what earlier Updates of the same commit have written. It must not be changed.
func (tx *Tx) Earlier() Changes { return tx.batch.written }

// Put stores a copy of raw under key. An equal value changes nothing, also not the time of
// the entry. The error is [ErrInvalidKey] or [ErrTooLarge].
func (tx *Tx) Put(key resource.Key, raw []byte) error {
	return tx.PutValue(key, slices.Clone(raw), nil)
}

// PutValue is Put with a value for [Entry].Value. It stores raw itself, which must not be
// changed any more.
func (tx *Tx) PutValue(key resource.Key, raw []byte, value any) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if len(raw) > MaxValueSize {
		return fmt.Errorf("%w: %v has %d bytes, more than %d", ErrTooLarge, key, len(raw), MaxValueSize)
	}
	if raw == nil {
		raw = []byte{} // an entry without Raw is one that was removed
	}
	tx.own[key] = &Entry{Key: key, Raw: raw, Updated: time.Unix(0, tx.batch.now.UnixNano()).UTC(), Value: value}
	return nil
}

// Delete removes key, and reports whether it was there.
func (tx *Tx) Delete(key resource.Key) bool {
	if _, found := tx.Get(key); !found {
		return false
	}
	tx.own[key] = nil
	return true
}

// Discard removes key, if it is there. It does not read: the commit does not depend on
// whether another daemon has changed the entry.
func (tx *Tx) Discard(key resource.Key) { tx.own[key] = nil }

// PanicError is returned by Update if its function panicked. Its writes are rolled back.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine, from runtime/debug.Stack
}

func (e *PanicError) Error() string { return fmt.Sprintf("store update panicked: %v", e.Value) }
