package outlierdetection_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/outlierdetection"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/test/lbtest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// ejected is why an endpoint is ejected that failed its only request.
const ejected = "ejected by outlier detection: failure percentage 100.0% of 1 requests is above 50%"

// listener is an outlier_detection over an actor with one SubConn, whose states it records.
type listener struct {
	t      *testing.T
	tree   *lbtest.Tree
	actors *lbtest.Troupe
	sc     balancer.SubConn
	states []string
}

// newListener makes the SubConn of the endpoint's first n addresses.
func newListener(t *testing.T, n int, addresses ...string) *listener {
	t.Helper()
	l := &listener{t: t, actors: &lbtest.Troupe{PolicyName: "actor"}}
	l.tree = lbtest.NewTree(t, outlierdetection.Builder(), l.actors)
	l.config(nothing, addresses...)
	l.tree.Batch(func() {
		actor := l.actors.Actor("x")
		all := policy.ResolverEndpoint(&resource.Endpoint{Addresses: addresses, Weight: 1}).Addresses
		var err error
		l.sc, err = actor.Conn.NewSubConn(all[:n], balancer.NewSubConnOptions{StateListener: func(s balancer.SubConnState) {
			l.states = append(l.states, fmt.Sprint(s.ConnectivityState, " ", s.ConnectionError))
		}})
		if err != nil {
			t.Error(err)
		}
		actor.Conn.UpdateState(balancer.State{ConnectivityState: ready, Picker: just{l.sc}})
	})
	return l
}

// config applies a config of one endpoint, or of none.
func (l *listener) config(change func(*resource.OutlierDetection), addresses ...string) {
	l.t.Helper()
	cfg := &policy.OutlierDetectionConfig{OutlierDetection: new(resource.OutlierDetection), Cluster: "orders", Child: l.actors.Child("x")}
	cfg.Interval, cfg.BaseEjectionTime, cfg.MaxEjectionPercent = interval, 3*interval, 100
	if len(addresses) > 0 {
		cfg.Priorities = [][]*policy.Locality{{{Endpoints: []*resource.Endpoint{{Addresses: addresses, Weight: 1}}}}}
	}
	change(cfg.OutlierDetection)
	l.tree.Config(policy.Child{Config: cfg})
}

// expect asserts the states since the last call.
func (l *listener) expect(want ...string) {
	l.t.Helper()
	if !slices.Equal(l.states, want) {
		l.t.Errorf("states %q, want %q", l.states, want)
	}
	l.states = nil
}

// TestPartialSubConn: while an endpoint is ejected, the policy of a SubConn to one of
// its addresses hears what happens to it, but not that it is READY.
func TestPartialSubConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListener(t, 1, "a", "b")
		defer l.tree.Close()
		l.config(percentage(1, 1), "a", "b")
		says := func(state connectivity.State) { l.tree.Batch(func() { l.tree.SubConns[0].Says(state, nil) }) }
		says(connecting)
		says(ready)
		call := &policy.Call{Hold: true}
		if _, err := l.tree.Pick(call); err != nil {
			t.Fatal(err)
		}
		says(idle) // it is lost before its requests are judged
		l.expect("CONNECTING <nil>", "READY <nil>", "IDLE <nil>")
		call.Held().Finish(policy.OutcomeError, policy.NoInfo)
		l.tree.Sleep(interval)
		l.expect()
		says(connecting)
		says(failure)
		says(idle)
		says(connecting)
		l.expect("CONNECTING <nil>", "TRANSIENT_FAILURE <nil>", "IDLE <nil>", "CONNECTING <nil>")
		says(ready)
		l.expect("TRANSIENT_FAILURE " + ejected)
		l.tree.Sleep(3 * interval)
		l.expect("READY <nil>")
	})
}
