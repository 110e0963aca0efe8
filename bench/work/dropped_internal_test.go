package work

import (
	"errors"
	"testing"

	"github.com/lbd-dev/lbd/bench/peer"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
)

// TestDropped: the one pick in a million that is dropped does not end a measurement.
func TestDropped(t *testing.T) {
	s, stop, err := startSquare(t.Context(), Options{Localities: 1, Each: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	a := peer.WithDrop(peer.Assignment(1, 1))
	a.GetPolicy().GetDropOverloads()[0].GetDropPercentage().Numerator = 1_000_000
	if err := push(t.Context(), s, sources.Endpoints, peer.Cluster, a); err != nil {
		t.Fatal(err)
	}
	var out picks.Picks
	if err := s.Picks.Pick(t.Context(), &picks.Request{Cluster: peer.Cluster}, &out); !dropped(err) {
		t.Errorf("error %v: not a drop", err)
	}
	if err := s.Picks.Pick(t.Context(), &picks.Request{Cluster: "unknown"}, &out); err == nil || dropped(err) {
		t.Errorf("error %v: a drop", err)
	}
	if dropped(nil) || dropped(errors.New("RPC is dropped")) {
		t.Error("what is no drop counts as one")
	}
}
