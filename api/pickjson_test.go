package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/service"
)

// What is appended by hand is what encoding/json writes for the types that the
// contract is made from.
func TestPicksAreWrittenAsTheirTypesSay(t *testing.T) {
	picks := service.Picks{
		Cluster: "grün \"€\"", Generation: 1795176000042, Stale: true,
		Dropped: map[string]int{"b": 2, "a": 1, "\n": 3}, CircuitBroken: 4,
		Picks: []service.Pick{
			{
				Cluster: "a\"b", Address: "[::1]:80", Hostname: "<host>", Priority: 2,
				Locality: service.Locality{Region: "r", Zone: "z", SubZone: "s\\"},
				Lease:    &service.Lease{ID: "ID", ExpiresAt: time.Unix(1, 500).UTC()},
				Explain:  []service.Step{{Step: "cluster", Says: "a > b", Cluster: &service.ClusterStep{Name: "x", Found: true}}},
			},
			{Cluster: "b", Address: "a:1"},
		},
	}
	routed := picks
	routed.Cluster, routed.Target = "", `xds:///"shop"`
	endpoint := func(p service.Pick) PickedEndpoint {
		return PickedEndpoint{Address: p.Address, Hostname: p.Hostname, Locality: p.Locality, Priority: p.Priority, Lease: p.Lease, Explain: p.Explain}
	}
	for _, c := range []struct {
		got  []byte
		want any
	}{
		{appendPick(nil, &picks), PickAnswer{Cluster: picks.Picks[0].Cluster, PickedEndpoint: endpoint(picks.Picks[0]), Generation: picks.Generation}},
		{appendPicks(nil, &picks), PicksAnswer{
			Cluster: picks.Cluster, Generation: picks.Generation, Dropped: picks.Dropped, CircuitBroken: picks.CircuitBroken,
			Picks: []ListedEndpoint{{PickedEndpoint: endpoint(picks.Picks[0])}, {PickedEndpoint: endpoint(picks.Picks[1])}},
		}},
		{appendPick(nil, &routed), PickAnswer{
			Cluster: picks.Picks[0].Cluster, Target: routed.Target, PickedEndpoint: endpoint(picks.Picks[0]), Generation: picks.Generation,
		}},
		{appendPicks(nil, &routed), PicksAnswer{
			Target: routed.Target, Generation: picks.Generation, Dropped: picks.Dropped, CircuitBroken: picks.CircuitBroken,
			Picks: []ListedEndpoint{
				{Cluster: picks.Picks[0].Cluster, PickedEndpoint: endpoint(picks.Picks[0])},
				{Cluster: "b", PickedEndpoint: endpoint(picks.Picks[1])},
			},
		}},
	} {
		var want bytes.Buffer
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		if err := e.Encode(c.want); err != nil {
			t.Fatal(err)
		}
		if string(c.got) != want.String() {
			t.Errorf("got  %swant %s", c.got, want.String())
		}
	}
	for _, stale := range []bool{true, false} {
		picks.Stale = stale
		w := httptest.NewRecorder()
		(&picking{picks: picks}).write(w, http.StatusOK, false)
		if got := w.Header().Get("Lbd-Stale") == "true"; got != stale {
			t.Errorf("stale: %v; Lbd-Stale: %q", stale, w.Header().Get("Lbd-Stale"))
		}
	}
}
