package service

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/service/ledger/ledgertest"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestALeafThatPicksReachThroughItsAggregateOnly: its breaker and drops have series of
// their own, and its connections count for the aggregate. If picks reach it by itself as
// well, both are counted separately.
func TestALeafThatPicksReachThroughItsAggregateOnly(t *testing.T) {
	s := newService(t)
	leaf := ledgertest.Usable("leaf")
	for name, own := range map[string]bool{"xds:///one": false, "xds:///two": true} {
		config := ledgertest.Routed(name)
		ledgertest.Aggregated(config, "agg", leaf)
		config.VirtualHost.Routes[0].Clusters = []resource.WeightedCluster{{Name: "agg", Weight: 1}}
		if own {
			config.Roots = append(config.Roots, "leaf")
		}
		s.targets.Apply([]resolver.Change{{Target: name, Config: config}})
		if err := s.targets.Settle(t.Context(), []string{name}); err != nil {
			t.Fatal(err)
		}
		const inFlight = `
# HELP lbd_circuit_breaker_in_flight Requests in flight, as the circuit breaker counts them.
# TYPE lbd_circuit_breaker_in_flight gauge
lbd_circuit_breaker_in_flight{cluster="leaf"} 0
`
		const help = `# HELP lbd_connect_attempts_total Connection attempts by result: ok, error.
# TYPE lbd_connect_attempts_total counter
`
		want := inFlight + help + `lbd_connect_attempts_total{cluster="agg",result="ok",target="` + name + `"} 1
`
		if own {
			want += `lbd_connect_attempts_total{cluster="leaf",result="ok",target="` + name + `"} 1
`
		}
		if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), "lbd_circuit_breaker_in_flight", "lbd_connect_attempts_total"); err != nil {
			t.Error(err)
		}
		s.targets.Apply([]resolver.Change{{Target: name}}).Close()
	}
}

// TestAccountsBeyondTheLimit: pairs of cluster and target are what is counted, and
// picks that reached no cluster are a pair as well.
func TestAccountsBeyondTheLimit(t *testing.T) {
	s := newLimitedService(t, 3)
	a := ledgertest.Usable("a")
	for _, name := range []string{"xds:///one", "xds:///two"} {
		s.targets.Apply([]resolver.Change{{Target: name, Config: ledgertest.Routed(name, a)}})
		if err := s.targets.Settle(t.Context(), []string{name}); err != nil {
			t.Fatal(err)
		}
		if err := s.Pick(t.Context(), &picks.Request{Target: name, Path: "/"}, new(picks.Picks)); err != nil {
			t.Fatal(err)
		}
		if err := s.Pick(t.Context(), &picks.Request{Target: name}, new(picks.Picks)); err == nil {
			t.Fatal("an empty path was routed")
		}
	}
	want := `
# HELP lbd_circuit_breaker_max_requests Limit of the circuit breaker on requests in flight.
# TYPE lbd_circuit_breaker_max_requests gauge
lbd_circuit_breaker_max_requests{cluster="a"} 1024
# HELP lbd_endpoints Endpoints by priority and state.
# TYPE lbd_endpoints gauge
lbd_endpoints{cluster="_other",priority="0",state="ready",target=""} 1
lbd_endpoints{cluster="a",priority="0",state="ready",target="xds:///one"} 1
# HELP lbd_picks_total Picks by result: ok, or the code of the refusal. Each pick counts once.
# TYPE lbd_picks_total counter
lbd_picks_total{cluster="",result="no_route",target="xds:///one"} 1
lbd_picks_total{cluster="",result="no_route",target="xds:///two"} 1
lbd_picks_total{cluster="_other",result="ok",target=""} 1
lbd_picks_total{cluster="a",result="ok",target="xds:///one"} 1
`
	if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), "lbd_circuit_breaker_max_requests", "lbd_endpoints", "lbd_picks_total"); err != nil {
		t.Error(err)
	}
}
