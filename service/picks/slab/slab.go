// Package slab has an allocator of numbered slots: values at fixed addresses, in
// chunks, without an allocation for each of them.
package slab

import "math/bits"

// ChunkSlots is the number of slots that are allocated together.
const ChunkSlots = 64

// A Slab has slots for values of a type, which are numbered from 0. Get and Put take
// constant time, and allocate only when all chunks are full. A chunk whose slots are all
// free is released, except for one, which is kept for the next Get.
//
// The zero Slab is empty. It has no lock: its owner calls one method at a time.
type Slab[T any] struct {
	// chunks are nil where all slots are free.
	chunks []*chunk[T]
	// open has a bit for each of chunks, which is set if it has a free slot.
	open []uint64
	// first is the first word of open that may have a bit.
	first  int
	spare  *chunk[T]
	length int
}

type chunk[T any] struct {
	used  uint64 // a bit for each slot
	slots [ChunkSlots]T
}

// Len returns the number of used slots.
func (s *Slab[T]) Len() int { return s.length }

// Get returns a free slot, which has the zero value, and its number. It takes one with a low
// number, so that chunks with high numbers become free.
func (s *Slab[T]) Get() (uint32, *T) {
	for s.first < len(s.open) && s.open[s.first] == 0 {
		s.first++
	}
	if s.first == len(s.open) {
		s.open = append(s.open, ^uint64(0))
		s.chunks = append(s.chunks, make([]*chunk[T], 64)...)
	}
	n := s.first*64 + bits.TrailingZeros64(s.open[s.first])
	c := s.chunks[n]
	if c == nil {
		c = s.newChunk()
		s.chunks[n] = c
	}
	i := bits.TrailingZeros64(^c.used)
	c.used |= 1 << i
	if c.used == ^uint64(0) {
		s.open[s.first] &^= 1 << (n % 64)
	}
	s.length++
	return uint32(n*ChunkSlots + i), &c.slots[i]
}

// Take returns the slot of a number, which has the zero value, or nil if it is used.
func (s *Slab[T]) Take(number uint32) *T {
	n, i := int(number/ChunkSlots), number%ChunkSlots
	for n >= len(s.chunks) {
		s.open = append(s.open, ^uint64(0))
		s.chunks = append(s.chunks, make([]*chunk[T], 64)...)
	}
	if s.chunks[n] == nil {
		s.chunks[n] = s.newChunk()
	}
	c := s.chunks[n]
	if c.used&(1<<i) != 0 {
		return nil
	}
	if c.used |= 1 << i; c.used == ^uint64(0) {
		s.open[n/64] &^= 1 << (n % 64)
	}
	s.length++
	return &c.slots[i]
}

func (s *Slab[T]) newChunk() *chunk[T] {
	if c := s.spare; c != nil {
		s.spare = nil
		return c
	}
	return new(chunk[T])
}

// At returns the slot of a number, or nil if it is free. It remains valid until Put.
func (s *Slab[T]) At(number uint32) *T {
	n, i := number/ChunkSlots, number%ChunkSlots
	if int(n) >= len(s.chunks) {
		return nil
	}
	c := s.chunks[n]
	if c == nil || c.used&(1<<i) == 0 {
		return nil
	}
	return &c.slots[i]
}

// Put makes a used slot free and clears its value.
func (s *Slab[T]) Put(number uint32) {
	n, i := int(number/ChunkSlots), number%ChunkSlots
	c := s.chunks[n]
	var zero T
	c.slots[i] = zero
	c.used &^= 1 << i
	s.length--
	word := n / 64
	s.open[word] |= 1 << (n % 64)
	s.first = min(s.first, word)
	if c.used == 0 {
		s.chunks[n] = nil
		if s.spare == nil {
			s.spare = c
		}
	}
}

// Visit calls f with used slots in the order of their numbers, beginning with from, until
// it has looked at limit slots, free ones included, or f returns false. It returns the number
// of the slot to go on with, and whether there may be others. f may put slots.
func (s *Slab[T]) Visit(from uint32, limit int, f func(uint32, *T) bool) (next uint32, more bool) {
	end := uint64(len(s.chunks)) * ChunkSlots
	for at := uint64(from); at < end; {
		n, i := at/ChunkSlots, at%ChunkSlots
		c := s.chunks[n]
		if c == nil {
			at = (n + 1) * ChunkSlots
			continue
		}
		if limit == 0 {
			return uint32(at), true
		}
		limit--
		at++
		if c.used&(1<<i) != 0 && !f(uint32(at-1), &c.slots[i]) {
			return uint32(at), at < end
		}
	}
	return 0, false
}
