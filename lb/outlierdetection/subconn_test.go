package outlierdetection_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/lbtest"
	"github.com/lbd-dev/lbd/lb/outlierdetection"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestPartialSubConn: while an endpoint is ejected, the policy of a SubConn to one of
// its addresses hears what happens to it, but not that it is READY.
func TestPartialSubConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		actors := &lbtest.Troupe{PolicyName: "actor"}
		tree := lbtest.NewTree(t, outlierdetection.Builder(), actors)
		defer tree.Close()
		cfg := &policy.OutlierDetectionConfig{OutlierDetection: new(resource.OutlierDetection), Cluster: "orders", Child: actors.Child("x")}
		cfg.Interval, cfg.BaseEjectionTime, cfg.MaxEjectionPercent = interval, 3*interval, 100
		e := policy.ResolverEndpoint(&resource.Endpoint{Addresses: []string{"a", "b"}, Weight: 1})
		cfg.Child.Endpoints = []resolver.Endpoint{e}
		percentage(1, 1)(cfg.OutlierDetection)
		tree.Config(policy.Child{Config: cfg})
		var states []string
		tree.Batch(func() {
			actor := actors.Actor("x")
			sc, err := actor.Conn.NewSubConn(e.Addresses[:1], balancer.NewSubConnOptions{StateListener: func(s balancer.SubConnState) {
				states = append(states, s.ConnectivityState.String())
			}})
			if err != nil {
				t.Fatal(err)
			}
			actor.Conn.UpdateState(balancer.State{ConnectivityState: ready, Picker: just{sc}})
		})
		expect := func(want ...string) {
			t.Helper()
			if !slices.Equal(states, want) {
				t.Errorf("states %q, want %q", states, want)
			}
			states = nil
		}
		says := func(state connectivity.State) { tree.Batch(func() { tree.SubConns[0].Says(state, nil) }) }
		says(connecting)
		says(ready)
		call := &policy.Call{Hold: true}
		if _, err := tree.Pick(call); err != nil {
			t.Fatal(err)
		}
		says(idle) // it is lost before its requests are judged
		expect("CONNECTING", "READY", "IDLE")
		call.Held().Finish(policy.OutcomeError, policy.NoInfo)
		tree.Sleep(interval)
		expect()
		says(connecting)
		says(failure)
		says(idle)
		says(connecting)
		expect("CONNECTING", "TRANSIENT_FAILURE", "IDLE", "CONNECTING")
		says(ready)
		expect("TRANSIENT_FAILURE")
		tree.Sleep(3 * interval)
		expect("READY")
	})
}
