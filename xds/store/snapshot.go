package store

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Entry is one stored resource. All readers share it: Raw must not be changed.
type Entry struct {
	Key resource.Key
	Raw []byte
	// Updated is when Raw became what it is, in UTC, by the clock of the daemon that put it.
	Updated time.Time
	// Index is the index of the commit that made Raw what it is. In a transaction, it is 0
	// for what is not committed.
	Index uint64
	// Value is what the caller of [Tx.PutValue] passed with Raw, say Raw decoded. It is not
	// on disk: it is nil in entries that were read from there.
	Value any
}

// Snapshot is all that was stored at one commit. It never changes. The zero Snapshot is
// empty, and has index 0.
type Snapshot struct {
	entries []*Entry // in the order of their keys
	size    int64    // of keys and values
	index   uint64
}

// Index returns the index of the last commit that the snapshot has; 0 before the first one.
func (s *Snapshot) Index() uint64 { return s.index }

// Get returns the entry of key, and whether there is one.
func (s *Snapshot) Get(key resource.Key) (Entry, bool) {
	if i, found := search(s.entries, key); found {
		return *s.entries[i], true
	}
	return Entry{}, false
}

// All yields every entry, in the order of type and name.
func (s *Snapshot) All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, e := range s.entries {
			if !yield(*e) {
				return
			}
		}
	}
}

// Of yields the entries of a type, in the order of their names.
func (s *Snapshot) Of(kind resource.Type) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		first, _ := search(s.entries, resource.Key{Type: kind})
		for _, e := range s.entries[first:] {
			if e.Key.Type != kind || !yield(*e) {
				return
			}
		}
	}
}

// OfWith yields the entries of a type as they are with changes, of which later ones replace earlier ones, in no
// order.
func (s *Snapshot) OfWith(kind resource.Type, changes ...Changes) iter.Seq[Entry] {
	changed := Changes{}
	for _, c := range changes {
		for key, e := range c {
			if key.Type == kind {
				changed[key] = e
			}
		}
	}
	return func(yield func(Entry) bool) {
		for e := range s.Of(kind) {
			if _, is := changed[e.Key]; !is && !yield(e) {
				return
			}
		}
		for _, e := range changed {
			if e != nil && !yield(*e) {
				return
			}
		}
	}
}

// Len returns the number of entries.
func (s *Snapshot) Len() int { return len(s.entries) }

// Size returns the number of bytes of all keys, as [EncodeKey] encodes them, and values.
func (s *Snapshot) Size() int64 { return s.size }

func search(entries []*Entry, key resource.Key) (int, bool) {
	return slices.BinarySearchFunc(entries, key, func(e *Entry, key resource.Key) int { return CompareKeys(e.Key, key) })
}

func sizeOf(e *Entry) int64 { return int64(len(e.Key.Type) + 1 + len(e.Key.Name) + len(e.Raw)) }

// Changes are the entries that change in a snapshot; nil deletes the entry.
type Changes map[resource.Key]*Entry

// Apply returns the snapshot of a commit with an index and changes, and the keys whose
// entries differ, in order. An entry without index gets that of the commit: it must not be in
// use yet. If nothing differs, Apply returns s itself. Only pointers are copied: 10,000 keys
// take microseconds.
func (s *Snapshot) Apply(c Changes, index uint64) (*Snapshot, []resource.Key) {
	after := &Snapshot{entries: make([]*Entry, 0, len(s.entries)+len(c)), size: s.size, index: index}
	var changed []resource.Key
	rest := s.entries
	for _, key := range slices.SortedFunc(maps.Keys(c), CompareKeys) {
		at, found := search(rest, key)
		after.entries, rest = append(after.entries, rest[:at]...), rest[at:]
		var old *Entry
		if found {
			old, rest = rest[0], rest[1:]
		}
		e := c[key]
		if same(old, e) {
			e = old
		} else {
			changed = append(changed, key)
		}
		if old != nil {
			after.size -= sizeOf(old)
		}
		if e != nil {
			if e.Index == 0 {
				e.Index = index
			}
			after.entries = append(after.entries, e)
			after.size += sizeOf(e)
		}
	}
	if changed == nil {
		return s, nil
	}
	after.entries = append(after.entries, rest...)
	return after, changed
}

// At returns a snapshot with the same entries and another index.
func (s *Snapshot) At(index uint64) *Snapshot {
	return &Snapshot{entries: s.entries, size: s.size, index: index}
}

// Difference returns the keys whose entries differ between two snapshots, in order.
func Difference(before, after *Snapshot) []resource.Key {
	var keys []resource.Key
	a, b := before.entries, after.entries
	for len(a) > 0 || len(b) > 0 {
		order := 0
		switch {
		case len(a) == 0:
			order = 1
		case len(b) == 0:
			order = -1
		case a[0] != b[0]:
			order = CompareKeys(a[0].Key, b[0].Key)
		}
		switch {
		case order < 0:
			keys, a = append(keys, a[0].Key), a[1:]
		case order > 0:
			keys, b = append(keys, b[0].Key), b[1:]
		default:
			if a[0] != b[0] && !same(a[0], b[0]) {
				keys = append(keys, a[0].Key)
			}
			a, b = a[1:], b[1:]
		}
	}
	return keys
}

// CheckCopy returns an error that names what differs, if a snapshot does not have the same entries
// as the one of which it is a copy, with their times and indices.
func CheckCopy(of, copied *Snapshot) error {
	if of.Len() != copied.Len() {
		return fmt.Errorf("%d entries instead of %d", copied.Len(), of.Len())
	}
	for i, a := range of.entries {
		b := copied.entries[i]
		switch {
		case a.Key != b.Key:
			return fmt.Errorf("%s %q instead of %s %q", b.Key.Type, b.Key.Name, a.Key.Type, a.Key.Name)
		case !bytes.Equal(a.Raw, b.Raw):
			return fmt.Errorf("another value of %s %q", a.Key.Type, a.Key.Name)
		case !a.Updated.Equal(b.Updated) || a.Index != b.Index:
			return fmt.Errorf("%s %q is of %v, index %d, instead of %v, %d", a.Key.Type, a.Key.Name, b.Updated, b.Index, a.Updated, a.Index)
		}
	}
	return nil
}

func same(a, b *Entry) bool {
	if a == nil || b == nil {
		return a == b
	}
	return bytes.Equal(a.Raw, b.Raw)
}

// Shared returns how many bytes two values have in common at their beginnings and at their ends; 0 if that is less than half
// of one of them: it is not worth that what was one of them depends on the other.
func Shared(was, is []byte) (prefix, suffix int) {
	a, b := was, is
	most := min(len(a), len(b))
	for prefix+block <= most && bytes.Equal(a[prefix:prefix+block], b[prefix:prefix+block]) {
		prefix += block
	}
	for prefix < most && a[prefix] == b[prefix] {
		prefix++
	}
	a, b, most = a[prefix:], b[prefix:], most-prefix
	for suffix+block <= most && bytes.Equal(a[len(a)-suffix-block:len(a)-suffix], b[len(b)-suffix-block:len(b)-suffix]) {
		suffix += block
	}
	for suffix < most && a[len(a)-suffix-1] == b[len(b)-suffix-1] {
		suffix++
	}
	if prefix+suffix < max(len(was), len(is))/2 {
		return 0, 0
	}
	return prefix, suffix
}

// block is how many bytes Shared compares at a time.
const block = 256
