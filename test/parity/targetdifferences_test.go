package parity_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	pickfirstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/connectivity"
)

var emptyCluster = &clusterv3.Cluster{}

// targetDifferences are those of targets of a management server.
var targetDifferences = []difference{
	byDuel("`content-type` and `-bin` headers in routes",
		"without content-type, with -bin", "with content-type, without -bin", headersOfRoutes),
	{
		row:  "a runtime fraction",
		grpc: grpcFraction, lbd: lbdFraction,
		grpcDoes: "takes a request whose draw equals the fraction", lbdDoes: "takes no request of 0 %",
	},
	byDuel("a target whose Listener or routes cannot be used",
		"asks for [a]", "asks for []", func(d *duel) func() string {
			d.serveUntil(d.asked, "asks for [a]")
			d.hosts[0].domains = []string{"another.example"}
			d.serve()
			return d.asked
		}),
	byDuel("a Listener or a Cluster that the management server deletes",
		string(noCluster), "u0", func(d *duel) func() string {
			d.serveUntil(d.asks, "u0")
			d.deleted["a"] = true
			d.serve()
			return d.asks
		}, func(d *duel) {
			// One whose endpoint changes its state afterwards is used again by grpc-go: its tree is still there.
			d.leaves[0].localities = d.leaves[0].localities[:1]
		}),
	byDuel("`fail_on_data_errors`, `resource_timer_is_transient_error`, `resource_errors` of a response",
		"u0", string(badCluster), func(d *duel) func() string {
			d.serveUntil(d.asks, "u0")
			d.leaves[0].flaw = &flaw{apply: ofCluster(`{"lb_policy": "MAGLEV"}`)}
			d.serve()
			return d.asks
		}, func(d *duel) { d.feature = "fail_on_data_errors" }),
	byDuel("a cluster that routes no longer use, in a target that had no routes before",
		"has [a b]", "has [b]", func(d *duel) func() string {
			d.addCluster("b", 1)
			d.serveUntil(d.trees, "has [a]")
			d.hosts[0].domains = []string{"another.example"}
			d.serveUntil(func() string { return string(d.ask().kind) }, string(noHost))
			d.hosts[0].domains = []string{"*"}
			d.serveUntil(d.trees, "has [a]")
			d.wait(func() string { return string(d.ask().kind) }, string(picked))
			d.hosts[0].routes = []*route{leadsTo("b")}
			d.serve()
			return d.trees
		}),
	byDuel("one locality in several priorities",
		"makes 1 connections", "makes 0 connections", func(d *duel) func() string {
			w := d.leaves[0]
			w.localities[1].zone, w.localities[1].priority = w.localities[0].zone, 1
			d.serveUntil(d.asks, "u0")
			d.connections(0)
			w.localities[0].weight = 2
			d.serve()
			made := 0
			return func() string {
				made += len(d.net.all[0].takeCallers())
				return fmt.Sprintf("makes %d connections", made)
			}
		}),
	byDuel("a locality without usable endpoints, beside failed ones",
		string(refused), string(refused)+", "+string(none), func(d *duel) func() string {
			d.leaves[0].localities[1].endpoints = nil
			d.net.all[0].want = false
			d.serve()
			return d.asks
		}),
	byDuel("an assignment that was never good",
		"takes it for an empty one", "says which rule is broken", func(d *duel) func() string {
			d.leaves[0].flaw = missingPriority(1)
			d.serve()
			return d.failsWith("no targets to pick from", "takes it for an empty one", "priority", "says which rule is broken")
		}),
	byDuel("the error of a pick that fails while a resource is kept in spite of an error",
		"has no note", "ends with a note", func(d *duel) func() string {
			d.serveUntil(d.oneAsk, "u0")
			d.leaves[0].flaw = missingPriority(1)
			d.net.all[0].want = false
			d.serve()
			return d.failsWith("resolution note: using the cached ClusterLoadAssignment/a: ", "ends with a note", "connection refused", "has no note")
		}),
	byDuel("a priority that is deactivated when an update takes it away",
		"has 1 connections", "has 0 connections", func(d *duel) func() string {
			w := d.leaves[0]
			w.localities[1].priority = 1
			d.net.all[0].want, d.net.all[1].want = false, true
			d.serveUntil(d.asks, "u1")
			d.net.all[0].want = true
			d.serveUntil(d.asks, "u0")
			w.localities = w.localities[:1]
			d.serve()
			return func() string { return d.open(1) }
		}),
	byDuel("a locality with neither weight nor name",
		"rejects the assignment", "picks u0", func(d *duel) func() string {
			d.leaves[0].flaw = &flaw{apply: ofLocality(1, `{"locality": null, "load_balancing_weight": null}`)}
			d.serve()
			return func() string {
				if d.m.nacked(d.nodeID(), resourcev3.EndpointType, "1") != "" {
					return "rejects the assignment"
				}
				return "picks " + d.asks()
			}
		}),
	byDuel("lazy policies (ring_hash, pick_first) below wrr_locality",
		string(queued), "u0", func(d *duel) func() string {
			w := d.leaves[0]
			w.localities = w.localities[:1]
			w.asked = &clusterv3.Cluster{LoadBalancingPolicy: listed(&wrrlocalityv3.WrrLocality{EndpointPickingPolicy: listed(&pickfirstv3.PickFirst{})})}
			d.serveUntil(d.oneAsk, "u0")
			u := d.net.all[0]
			u.stop() // the connection is lost: pick_first is IDLE until a pick wakes it
			must(d.t, u.start())
			return d.oneAsk
		}),
	byDuel("a connection that is lost within a second",
		"connects again at once", "fails, and backs off", shortLife),
}

// missingPriority moves a locality to priority 7, and none has the priority before.
func missingPriority(locality int) *flaw {
	return &flaw{apply: ofLocality(locality, `{"priority": 7}`)}
}

// shortLife loses the first connection as soon as it is there. The upstream keeps
// listening.
func shortLife(d *duel) func() string {
	w := d.leaves[0]
	w.localities = w.localities[:1]
	d.serveUntil(func() string { return d.open(0) }, "has 1 connections")
	l := d.net.all[0].listener
	l.mu.Lock()
	for c := range l.conns {
		_ = c.Conn.Close()
	}
	l.mu.Unlock()
	saw := make(map[connectivity.State]bool)
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
		saw[d.state("a")] = true
	}
	return func() string {
		if saw[connectivity.TransientFailure] {
			return "fails, and backs off"
		}
		return "connects again at once"
	}
}

// state returns the state of a cluster.
func (d *duel) state(cluster string) connectivity.State {
	if d.grpc != nil {
		return d.grpc.look(cluster).state
	}
	v, err := d.lbd.look(d.t.Context(), cluster)
	if err != nil {
		d.t.Error(err)
	}
	return v.state
}

// headersOfRoutes has routes that match the headers.
func headersOfRoutes(d *duel) func() string {
	byHeader := func(cluster, header string) *route {
		r := leadsTo(cluster)
		r.headers = []headerCondition{{header: header, kind: presentHeader}}
		return r
	}
	d.addCluster("typed", 1)
	d.addCluster("binary", 1)
	d.hosts[0].routes = []*route{byHeader("binary", "odd-bin"), byHeader("typed", "content-type"), leadsTo("a")}
	d.serve()
	has := func(cluster, name string, headers ...header) string {
		if d.ask(headers...).cluster == cluster {
			return "with " + name
		}
		return "without " + name
	}
	return func() string {
		return has("typed", "content-type") + ", " + has("binary", "-bin", header{"odd-bin", "v"})
	}
}

func grpcFraction(t *testing.T) string {
	source := grpcSource(t, "internal/xds/xdsclient/xdsresource/matcher.go")
	if strings.Contains(source, "t := RandInt64n(1000000) return t <= fm.fraction") {
		return "takes a request whose draw equals the fraction"
	}
	return "draws in another way"
}

func lbdFraction(t *testing.T) string {
	d := newDuel(t, lbdFollows)
	never := leadsTo("a")
	never.fraction = &part{numerator: 0, denominator: 100}
	d.hosts[0].routes = []*route{never}
	d.serve()
	return d.settles(func() string {
		for range 1000 {
			if k := d.ask().kind; k != noRoute {
				return string(k)
			}
		}
		return "takes no request of 0 %"
	}, "takes no request of 0 %")
}
