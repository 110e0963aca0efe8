//go:build !race

package service_test

import (
	"fmt"
	"testing"

	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestAllocPick: a pick allocates nothing, be it the first from its locality.
// The race detector allocates by itself, so this runs without it.
func TestAllocPick(t *testing.T) {
	s, _ := start(t, "", nil)
	var places []place
	for i := range 2000 {
		places = append(places, place{fmt.Sprint("z", i), 0, 1, endpoints(fmt.Sprint("e", i), 1)})
	}
	push(t, s, sources.Endpoints, "orders", assignment(t, []object{drop("none", 0)}, places...))
	r := picks.Request{Cluster: "orders"}
	var out picks.Picks
	got := testing.AllocsPerRun(2000, func() {
		must(t, s.Picks.Pick(t.Context(), &r, &out))
	})
	if got != 0 {
		t.Errorf("%v allocations for each pick, want 0", got)
	}
}

// TestAllocPush: what is pushed is decoded once, by whoever pushes it, and not by
// the store's only writer.
func TestAllocPush(t *testing.T) {
	s, _ := start(t, "", nil)
	var ill []object // without connections, the tree adds little
	for i := range 1000 {
		ill = append(ill, object{"health_status": "UNHEALTHY", "endpoint": endpoint(fmt.Sprint("h", i))["endpoint"]})
	}
	bodies := [][]byte{
		assignment(t, nil, place{"a", 0, 1, ill}),
		assignment(t, nil, place{"a", 0, 1, ill}, place{"b", 0, 1, endpoints("b", 1)}),
	}
	decode := func(body []byte, f sources.Format) []byte {
		d, err := decode.One(resource.TypeAssignment, body, decode.Options{Format: f, Name: "orders"})
		must(t, err)
		return d.Raw
	}
	raw := decode(bodies[0], sources.JSON)
	once := testing.AllocsPerRun(10, func() { decode(bodies[0], sources.JSON) })
	again := testing.AllocsPerRun(10, func() { decode(raw, sources.Protobuf) })
	n := 0
	for name, pushed := range map[string]func(){
		"unchanged": func() {},
		"changed":   func() { n++ },
	} {
		got := testing.AllocsPerRun(10, func() {
			pushed()
			if _, err := s.Sources.Push(t.Context(), &sources.PushRequest{
				Kind: sources.Endpoints, Cluster: "orders", Body: bodies[n%2], AllowEmpty: true,
			}); err != nil {
				t.Fatal(err)
			}
		})
		if got-once > again/2 {
			t.Errorf("%s: %v allocations to push, %v to decode, %v to decode what is stored", name, got, once, again)
		}
	}
}
