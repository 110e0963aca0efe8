// Package few has a map of few entries. Each target and each cluster has several maps, which
// nearly always have one entry; a Go map has room for eight.
package few

import (
	"iter"
	"maps"
)

// Map is a map. It is a list up to eight entries, whose room grows with them. The zero Map, and
// nil, are empty. It is not safe for concurrent use while it changes.
type Map[K comparable, V any] struct {
	list  []entry[K, V]
	large map[K]V // has all entries if it is not nil
}

type entry[K comparable, V any] struct {
	value V
	key   K
}

// maxFew is few enough for a search in the list to be as fast as in a map.
const maxFew = 8

// Of returns a Map with the entries of a Go map.
func Of[K comparable, V any](entries map[K]V) (m Map[K, V]) {
	for k, v := range entries {
		m.Set(k, v)
	}
	return m
}

func (m *Map[K, V]) index(k K) int {
	for i := range m.list {
		if m.list[i].key == k {
			return i
		}
	}
	return -1
}

// Get returns the value of k, or the zero value.
func (m *Map[K, V]) Get(k K) (v V) {
	if m == nil {
		return v
	}
	v, _ = m.Find(k)
	return v
}

// Find returns the value of k, and whether there is one.
func (m *Map[K, V]) Find(k K) (v V, found bool) {
	if m.large != nil {
		v, found = m.large[k]
		return v, found
	}
	if i := m.index(k); i >= 0 {
		return m.list[i].value, true
	}
	return v, false
}

// Set sets the value of k.
func (m *Map[K, V]) Set(k K, v V) {
	if m.large != nil {
		m.large[k] = v
		return
	}
	if i := m.index(k); i >= 0 {
		m.list[i].value = v
		return
	}
	if len(m.list) < maxFew {
		m.list = append(m.list, entry[K, V]{v, k})
		return
	}
	m.large = map[K]V{k: v}
	for _, e := range m.list {
		m.large[e.key] = e.value
	}
	m.list = nil
}

// Delete deletes the entry of k, if there is one.
func (m *Map[K, V]) Delete(k K) {
	if m.large != nil {
		delete(m.large, k)
		return
	}
	if i := m.index(k); i >= 0 {
		last := len(m.list) - 1
		m.list[i] = m.list[last]
		m.list[last] = entry[K, V]{}
		m.list = m.list[:last]
	}
}

// Len returns the number of entries.
func (m *Map[K, V]) Len() int {
	if m == nil {
		return 0
	}
	return len(m.list) + len(m.large)
}

// Equal reports whether two maps have the same entries.
func Equal[K, V comparable](a, b *Map[K, V]) bool {
	if a.Len() != b.Len() {
		return false
	}
	for k, v := range a.All() {
		if other, found := b.Find(k); !found || other != v {
			return false
		}
	}
	return true
}

// All yields every entry, in no order. The map must not change meanwhile.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if m == nil {
			return
		}
		for i := range m.list {
			if !yield(m.list[i].key, m.list[i].value) {
				return
			}
		}
		maps.All(m.large)(yield)
	}
}
