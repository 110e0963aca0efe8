package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/xds/resource"
)

func someLease(t *testing.T) (id picks.LeaseID) {
	t.Helper()
	noError(t, id.UnmarshalText([]byte("00000000040000200123456789ABCDEFGHIJKLMN")))
	return id
}

// What is appended by hand is what encoding/json writes for the types that the
// contract is made from.
func TestPicksAreWrittenAsTheirTypesSay(t *testing.T) {
	answer := picks.Picks{
		Cluster: "grün \"€\"", Generation: 1795176000042, Stale: true,
		Dropped: map[string]int{"b": 2, "a": 1, "\n": 3}, CircuitBroken: 4,
		Picks: []picks.Pick{
			{
				Cluster: "a\"b", Address: "[::1]:80", Priority: 2,
				Endpoint: &resource.Endpoint{Hostname: "<host>", Locality: resource.Locality{Region: "r", Zone: "z", SubZone: "s\\"}},
				Lease:    picks.Lease{ID: someLease(t), ExpiresAt: time.Unix(1, 500).UTC()},
				Explain:  []picks.Step{{Step: "cluster", Says: "a > b", Cluster: &picks.ClusterStep{Name: "x", Found: true}}},
			},
			{Cluster: "b", Address: "a:1", Endpoint: new(resource.Endpoint)},
		},
	}
	routed := answer
	routed.Cluster, routed.Target = "", `xds:///"shop"`
	endpoint := func(p picks.Pick) PickedEndpoint {
		e := PickedEndpoint{Address: p.Address, Hostname: p.Hostname(), Locality: p.Locality(), Priority: p.Priority, Explain: p.Explain}
		if p.Lease != (picks.Lease{}) {
			e.Lease = &p.Lease
		}
		return e
	}
	for _, c := range []struct {
		got  []byte
		want any
	}{
		{appendPick(nil, &answer), PickAnswer{Cluster: answer.Picks[0].Cluster, PickedEndpoint: endpoint(answer.Picks[0]), Generation: answer.Generation}},
		{appendPicks(nil, &answer), PicksAnswer{
			Cluster: answer.Cluster, Generation: answer.Generation, Dropped: answer.Dropped, CircuitBroken: answer.CircuitBroken,
			Picks: []ListedEndpoint{{PickedEndpoint: endpoint(answer.Picks[0])}, {PickedEndpoint: endpoint(answer.Picks[1])}},
		}},
		{appendPick(nil, &routed), PickAnswer{
			Cluster: answer.Picks[0].Cluster, Target: routed.Target, PickedEndpoint: endpoint(answer.Picks[0]), Generation: answer.Generation,
		}},
		{appendPicks(nil, &routed), PicksAnswer{
			Target: routed.Target, Generation: answer.Generation, Dropped: answer.Dropped, CircuitBroken: answer.CircuitBroken,
			Picks: []ListedEndpoint{
				{Cluster: answer.Picks[0].Cluster, PickedEndpoint: endpoint(answer.Picks[0])},
				{Cluster: "b", PickedEndpoint: endpoint(answer.Picks[1])},
			},
		}},
	} {
		var want bytes.Buffer
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		noError(t, e.Encode(c.want))
		if string(c.got) != want.String() {
			t.Errorf("got  %swant %s", c.got, want.String())
		}
	}
	for _, stale := range []bool{true, false} {
		answer.Stale = stale
		w := httptest.NewRecorder()
		(&picking{picks: answer}).write(&recorder{ResponseWriter: w}, http.StatusOK, false)
		if got := w.Header().Get("Lbd-Stale") == "true"; got != stale {
			t.Errorf("stale: %v; Lbd-Stale: %q", stale, w.Header().Get("Lbd-Stale"))
		}
	}
}
