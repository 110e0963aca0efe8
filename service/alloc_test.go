//go:build !race

package service_test

import (
	"fmt"
	"testing"

	"github.com/lbd-dev/lbd/service"
)

// TestAllocPick: a pick allocates nothing, be it the first from its locality.
// The race detector allocates by itself, so this runs without it.
func TestAllocPick(t *testing.T) {
	s, _ := start(t, "", nil)
	var places []place
	for i := range 2000 {
		places = append(places, place{fmt.Sprint("z", i), 0, 1, endpoints(fmt.Sprint("e", i), 1)})
	}
	push(t, s, service.Endpoints, "orders", assignment(t, []object{drop("none", 0)}, places...))
	r := service.PickRequest{Cluster: "orders"}
	var out service.Picks
	got := testing.AllocsPerRun(2000, func() {
		if err := s.Pick(t.Context(), &r, &out); err != nil {
			t.Fatal(err)
		}
	})
	if got != 0 {
		t.Errorf("%v allocations for each pick, want 0", got)
	}
}
