package store

import (
	"bytes"
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Entry is one stored resource. It is shared by all who read it: Raw must not be
// changed.
type Entry struct {
	Key resource.Key
	Raw []byte
	// Updated is when Raw became what it is, in UTC.
	Updated time.Time
}

// Snapshot is all that was stored at one commit. It never changes.
type Snapshot struct {
	items []*item // in the order of their keys
	sum   uint64  // of the items' sums
}

// Get returns the entry of key, and whether there is one.
func (s *Snapshot) Get(key resource.Key) (Entry, bool) {
	if i, found := search(s.items, key); found {
		return s.items[i].Entry, true
	}
	return Entry{}, false
}

// All yields every entry, in the order of type and name.
func (s *Snapshot) All() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for _, item := range s.items {
			if !yield(item.Entry) {
				return
			}
		}
	}
}

// Len returns the number of entries.
func (s *Snapshot) Len() int { return len(s.items) }

func (s *Snapshot) tally() tally { return tally{count: uint64(len(s.items)), sum: s.sum} }

func search(items []*item, key resource.Key) (int, bool) {
	return slices.BinarySearchFunc(items, key, func(i *item, key resource.Key) int { return compare(i.Key, key) })
}

func compare(a, b resource.Key) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
}

// An overlay is what changes over a snapshot; nil stands for a deleted key.
type overlay map[resource.Key]*item

// apply returns the snapshot that o makes of s, and the keys that differ, in
// order. A key that was given the value that it has does not differ. Only
// pointers are copied: 10,000 keys take microseconds.
func (s *Snapshot) apply(o overlay) (*Snapshot, []resource.Key) {
	after := &Snapshot{items: make([]*item, 0, len(s.items)+len(o)), sum: s.sum}
	var changed []resource.Key
	rest := s.items
	for _, key := range slices.SortedFunc(maps.Keys(o), compare) {
		at, found := search(rest, key)
		after.items, rest = append(after.items, rest[:at]...), rest[at:]
		var old *item
		if found {
			old, rest = rest[0], rest[1:]
		}
		item := o[key]
		if same(old, item) {
			item = old
		} else {
			changed = append(changed, key)
		}
		if item != nil {
			after.items = append(after.items, item)
		}
		if old != nil {
			after.sum -= old.sum()
		}
		if item != nil {
			after.sum += item.sum()
		}
	}
	if changed == nil {
		return s, nil
	}
	after.items = append(after.items, rest...)
	return after, changed
}

func same(a, b *item) bool {
	if a == nil || b == nil {
		return a == b
	}
	return bytes.Equal(a.Raw, b.Raw)
}
