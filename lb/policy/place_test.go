package policy_test

import (
	"testing"
	"unsafe"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestPlacesOfALocality: places count for themselves, and the load of their locality does
// not count what they do.
func TestPlacesOfALocality(t *testing.T) {
	counters := policy.NewCounters().Acquire(resource.ServiceKey{Cluster: "c"})
	near := resource.Locality{Zone: "near"}
	load := counters.Locality(near)
	var places []*policy.Place
	for priority := range 3 {
		p := counters.NewPlace(near, priority)
		places = append(places, p)
		for range priority + 1 {
			p.Add()
			load.Start(false)
		}
	}
	if got := places[0].Close(); got != 1 || places[0].Add() {
		t.Errorf("the first place had %d picks, and counts after Close", got)
	}
	for priority, p := range places[1:] {
		if p.Priority != priority+1 || p.Count() != uint64(priority+2) {
			t.Errorf("place of priority %d: priority %d, %d picks", priority+1, p.Priority, p.Count())
		}
	}
	if got := load.Counts().Issued; got != 6 {
		t.Errorf("load of %d picks, want 6", got)
	}
	if got := counters.NewPlace(near, 0); got == places[0] {
		t.Error("a closed place is used again")
	}
}

// TestPlaceNextToLoad: what a pick counts in is in one cache line.
func TestPlaceNextToLoad(t *testing.T) {
	const line = 64
	counters := policy.NewCounters().Acquire(resource.ServiceKey{Cluster: "c"})
	near := resource.Locality{Zone: "near"}
	load, place := counters.Locality(near), counters.NewPlace(near, 0)
	from, to := uintptr(unsafe.Pointer(load)), uintptr(unsafe.Pointer(place))+unsafe.Sizeof(*place)
	if from%line != 0 || to-from != line {
		t.Errorf("a load at %d of a cache line, and the end of its place %d bytes after it", from%line, to-from)
	}
}
