package service_test

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
)

// weighted is an EDS cluster whose endpoints take turns by their loads.
func weighted(t *testing.T) []byte {
	t.Helper()
	return encode(t, object{"type": "EDS", "load_balancing_policy": object{"policies": []object{{"typed_extension_config": object{
		"name": "weighted",
		"typed_config": object{
			"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality",
			"endpoint_picking_policy": object{"policies": []object{{"typed_extension_config": object{
				"name":         "weighted",
				"typed_config": object{"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin"},
			}}}},
		},
	}}}}})
}

// TestLoadsWeighPicks: the load that is told with a lease's end gives its
// endpoint its share of picks.
func TestLoadsWeighPicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := start(t, "", nil)
		defer stop()
		push(t, s, sources.Config, "orders", weighted(t))
		two := endpoints("a", 2)
		two[1]["load_balancing_weight"] = 3
		push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, two}))
		shares := func(a, b float64, says string) {
			t.Helper()
			c, err := s.Cluster(t.Context(), "orders", "", true)
			if err != nil {
				t.Fatal(err)
			}
			e := c.Priorities[0].Localities[0].Endpoints
			if math.Abs(*e[0].Share-a) > 1e-9 || math.Abs(*e[1].Share-b) > 1e-9 {
				t.Errorf("shares %g and %g, want %g and %g", *e[0].Share, *e[1].Share, a, b)
			}
			got := map[string]int{}
			for range 100 {
				out, err := pick(s, picks.Request{Cluster: "orders"})
				if err != nil {
					t.Fatal(err)
				}
				got[out.Picks[0].Address]++
			}
			if math.Abs(float64(got["a-0:80"])-100*a) > 2 {
				t.Errorf("100 picks reach %v, want shares of %g and %g", got, a, b)
			}
			out, err := pick(s, picks.Request{Cluster: "orders", Exclude: []string{"a-0:80"}, Explain: true})
			if err != nil {
				t.Fatal(err)
			}
			steps := out.Picks[0].Explain
			last := steps[len(steps)-1]
			if !strings.Contains(last.Says, says) || last.Endpoint.Turn == nil || math.Abs(last.Endpoint.Turn.Share-b) > 1e-9 {
				t.Errorf("explained %s, %+v; want %s", last.Says, last.Endpoint.Turn, says)
			}
		}
		const took = "number 1 of 2 in rotation, which has "
		shares(0.25, 0.75, took+"75.0% of the turns by its weight of 3 from eds (")

		for range 11 { // past the blackout
			out, err := pick(s, picks.Request{Cluster: "orders", N: 10, TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range out.Picks {
				load := picks.Load{RPSFractional: 90, CPUUtilization: 1, EPS: 0}
				if p.Address == "a-1:80" {
					load = picks.Load{RPSFractional: 90, CPUUtilization: 0.9, ApplicationUtilization: 4, EPS: 45}
				}
				if _, err := s.EndLease(p.Lease.ID, picks.Success, &load); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		shares(90/110., 20/110., took+"18.2% of the turns by its weight of 20 from loads (")
	})
}
