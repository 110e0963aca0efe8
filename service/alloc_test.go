//go:build !race

package service_test

import (
	"fmt"
	"testing"

	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestAllocPick: a pick allocates nothing, be it the first from its locality.
// The race detector allocates by itself, so this runs without it.
func TestAllocPick(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	var places []servicetest.Object
	for i := range 2000 {
		places = append(places, servicetest.Place(fmt.Sprint("z", i), 0, 1, servicetest.Endpoints(fmt.Sprint("e", i), 1)))
	}
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment([]servicetest.Object{servicetest.Drop("none", 0)}, places...))
	r := picks.Request{Cluster: "orders"}
	var out picks.Picks
	got := testing.AllocsPerRun(2000, func() {
		servicetest.Must(t, s.Picks.Pick(t.Context(), &r, &out))
	})
	if got != 0 {
		t.Errorf("%v allocations for each pick, want 0", got)
	}
}

// TestAllocPush: what is pushed is decoded once, by whoever pushes it, and not by
// the store's only writer.
func TestAllocPush(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	var ill []servicetest.Object // without connections, the tree adds little
	for i := range 1000 {
		ill = append(ill, servicetest.Object{"health_status": "UNHEALTHY", "endpoint": servicetest.Endpoint(fmt.Sprint("h", i))["endpoint"]})
	}
	bodies := [][]byte{
		servicetest.Assignment(nil, servicetest.Place("a", 0, 1, ill)),
		servicetest.Assignment(nil, servicetest.Place("a", 0, 1, ill), servicetest.Place("b", 0, 1, servicetest.Endpoints("b", 1))),
	}
	decode := func(body []byte, f sources.Format) []byte {
		d, err := decode.One(resource.TypeAssignment, body, decode.Options{Format: f, Name: "orders"})
		servicetest.Must(t, err)
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
			_, err := s.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Body: bodies[n%2], Options: sources.ChangeOptions{AllowEmpty: true}})
			servicetest.Must(t, err)
		})
		if got-once > again/2 {
			t.Errorf("%s: %v allocations to push, %v to decode, %v to decode what is stored", name, got, once, again)
		}
	}
}
