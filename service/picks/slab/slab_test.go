package slab

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A model: used slots keep their values, free ones have none, and a new slot is zero.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Slab[int]
		used := make(map[uint32]int)
		last := 0
		get := func() {
			n, v := s.Get()
			if _, ok := used[n]; ok || *v != 0 {
				t.Fatalf("slot %d has %d, or was used", n, *v)
			}
			last++
			*v, used[n] = last, last
		}
		// draw returns a used slot.
		draw := func(t *rapid.T) uint32 {
			if len(used) == 0 {
				t.Skip("no slot is used")
			}
			return slices.Sorted(maps.Keys(used))[rapid.IntRange(0, len(used)-1).Draw(t, "slot")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"get": func(*rapid.T) { get() },
			"get many": func(t *rapid.T) {
				for range rapid.IntRange(1, 5*ChunkSlots).Draw(t, "slots") {
					get()
				}
			},
			"take": func(t *rapid.T) {
				n := rapid.Uint32Range(0, 3*64*ChunkSlots).Draw(t, "slot")
				v := s.Take(n)
				if (v == nil) != (used[n] != 0) || v != nil && *v != 0 {
					t.Fatalf("slot %d is taken: %v", n, v)
				}
				if v != nil {
					last++
					*v, used[n] = last, last
				}
			},
			"put": func(t *rapid.T) {
				n := draw(t)
				s.Put(n)
				delete(used, n)
			},
			"put a range": func(t *rapid.T) {
				from, n := draw(t), rapid.Uint32Range(1, 5*ChunkSlots).Draw(t, "slots")
				for i := from; i < from+n; i++ {
					if _, ok := used[i]; ok {
						s.Put(i)
						delete(used, i)
					}
				}
			},
			"at": func(t *rapid.T) {
				n := rapid.Uint32().Draw(t, "slot")
				if got := s.At(n); (got != nil) != (used[n] != 0) {
					t.Fatalf("slot %d is used: %v", n, got != nil)
				}
			},
			"visit": func(t *rapid.T) {
				limit, from := rapid.IntRange(1, 3*ChunkSlots).Draw(t, "limit"), uint32(0)
				var visited []uint32
				for more := true; more; {
					from, more = s.Visit(from, limit, func(n uint32, v *int) bool {
						if used[n] != *v {
							t.Fatalf("slot %d has %d", n, *v)
						}
						visited = append(visited, n)
						return len(visited)%7 != 0
					})
				}
				if !slices.Equal(visited, slices.Sorted(maps.Keys(used))) {
					t.Fatalf("visited %v", visited)
				}
			},
			"": func(t *rapid.T) {
				if s.Len() != len(used) {
					t.Fatalf("%d slots; want %d", s.Len(), len(used))
				}
				for n, want := range used {
					if v := s.At(n); v == nil || *v != want {
						t.Fatalf("slot %d: %v; want %d", n, v, want)
					}
				}
			},
		})
	})
}

// Chunks without used slots are released, and Visit may put the slots that it visits.
func TestChunksAreReleased(t *testing.T) {
	var s Slab[int]
	for range 100 * ChunkSlots {
		s.Get()
	}
	looked := 0
	from := uint32(0)
	for more := true; more; looked++ {
		from, more = s.Visit(from, 10, func(n uint32, _ *int) bool {
			s.Put(n)
			return true
		})
	}
	if want := 100 * ChunkSlots / 10; looked < want || looked > want+1 {
		t.Errorf("%d calls; want %d", looked, want)
	}
	for _, c := range s.chunks {
		if c != nil {
			t.Fatal("a chunk without slots is kept")
		}
	}
	if s.spare == nil || s.Len() != 0 {
		t.Error("no chunk is spare")
	}
	if n, _ := s.Get(); n != 0 {
		t.Errorf("the next slot is %d", n)
	}
	if got := s.At(1 << 31); got != nil {
		t.Error("a slot beyond all chunks is used")
	}
}

func TestAllocGetPut(t *testing.T) {
	var s Slab[int]
	s.Get()
	if n := testing.AllocsPerRun(100, func() {
		n, _ := s.Get()
		s.Put(n)
	}); n != 0 {
		t.Errorf("%v allocations for each slot", n)
	}
}
