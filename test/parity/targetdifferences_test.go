package parity_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	pickfirstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/connectivity"
)

var emptyCluster = &clusterv3.Cluster{}

// targetDifferences are those that a target shows whose resources a management
// server sends.
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
			d.serve()
			d.wait(d.asked, "asks for [a]")
			d.hosts[0].domains = []string{"another.example"}
			d.serve()
			return d.asked
		}),
	byDuel("a Listener or a Cluster that the management server deletes",
		string(noCluster), "u0", func(d *duel) func() string {
			d.serve()
			d.wait(d.asks, "u0")
			d.deleted["a"] = true
			d.serve()
			return d.asks
		}),
	byDuel("`fail_on_data_errors`, `resource_timer_is_transient_error`, `resource_errors` of a response",
		"u0", string(badCluster), func(d *duel) func() string {
			d.serve()
			d.wait(d.asks, "u0")
			d.leaves[0].flaw = &flaw{apply: func(c *clusterv3.Cluster, _ *endpointv3.ClusterLoadAssignment) { c.LbPolicy = clusterv3.Cluster_MAGLEV }}
			d.serve()
			return d.asks
		}, func(d *duel) { d.feature = "fail_on_data_errors" }),
	byDuel("a cluster that routes no longer use, in a target that had no routes before",
		"has [a b]", "has [b]", func(d *duel) func() string {
			d.addCluster("b", 1)
			d.serve()
			d.wait(d.trees, "has [a]")
			d.hosts[0].domains = []string{"another.example"}
			d.serve()
			d.wait(func() string { return string(d.ask().kind) }, string(noHost))
			d.hosts[0].domains = []string{"*"}
			d.serve()
			d.wait(d.trees, "has [a]")
			d.wait(func() string { return string(d.ask().kind) }, string(picked))
			d.hosts[0].routes = []*route{leadsTo("b")}
			d.serve()
			return d.trees
		}),
	byDuel("one locality in several priorities",
		"makes 1 connections", "makes 0 connections", func(d *duel) func() string {
			w := d.leaves[0]
			w.localities[1].zone, w.localities[1].priority = w.localities[0].zone, 1
			d.serve()
			d.wait(d.asks, "u0")
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
			d.leaves[0].flaw = &flaw{apply: func(_ *clusterv3.Cluster, a *endpointv3.ClusterLoadAssignment) {
				a.Endpoints[1].Priority = 7 // and none from 1 to 6
			}}
			d.serve()
			return func() string {
				switch text := d.failure(); {
				case strings.Contains(text, "no targets to pick from"):
					return "takes it for an empty one"
				case strings.Contains(text, "priority"):
					return "says which rule is broken"
				default:
					return text
				}
			}
		}),
	byDuel("the error of a pick that fails while a resource is kept in spite of an error",
		"has no note", "ends with a note", func(d *duel) func() string {
			d.serve()
			d.wait(d.oneAsk, "u0")
			d.leaves[0].flaw = &flaw{apply: func(_ *clusterv3.Cluster, a *endpointv3.ClusterLoadAssignment) {
				a.Endpoints[1].Priority = 7 // and none from 1 to 6
			}}
			d.net.all[0].want = false
			d.serve()
			return func() string {
				switch text := d.failure(); {
				case strings.Contains(text, "resolution note: using the cached ClusterLoadAssignment/a: "):
					return "ends with a note"
				case strings.Contains(text, "connection refused"):
					return "has no note"
				default:
					return text
				}
			}
		}),
	byDuel("a priority that is deactivated when an update takes it away",
		"has 1 connections", "has 0 connections", func(d *duel) func() string {
			w := d.leaves[0]
			w.localities[1].priority = 1
			d.net.all[0].want, d.net.all[1].want = false, true
			d.serve()
			d.wait(d.asks, "u1")
			d.net.all[0].want = true
			d.serve()
			d.wait(d.asks, "u0")
			w.localities = w.localities[:1]
			d.serve()
			return func() string { return d.open(1) }
		}),
	byDuel("a locality with neither weight nor name",
		"refuses the assignment", "picks u0", func(d *duel) func() string {
			d.leaves[0].flaw = &flaw{apply: func(_ *clusterv3.Cluster, a *endpointv3.ClusterLoadAssignment) {
				a.Endpoints[1].Locality, a.Endpoints[1].LoadBalancingWeight = nil, nil
			}}
			d.serve()
			return func() string {
				if d.m.nacked(d.asker(), resourcev3.EndpointType, "1") != "" {
					return "refuses the assignment"
				}
				return "picks " + d.asks()
			}
		}),
	byDuel("lazy policies (ring_hash, pick_first) below wrr_locality",
		string(queued), "u0", func(d *duel) func() string {
			w := d.leaves[0]
			w.localities = w.localities[:1]
			w.asked = &clusterv3.Cluster{LoadBalancingPolicy: listed(&wrrlocalityv3.WrrLocality{EndpointPickingPolicy: listed(&pickfirstv3.PickFirst{})})}
			d.serve()
			d.wait(d.oneAsk, "u0")
			u := d.net.all[0]
			u.stop() // the connection is lost: pick_first is IDLE until a pick wakes it
			if err := u.start(); err != nil {
				d.t.Fatal(err)
			}
			return d.oneAsk
		}),
	byDuel("a connection that is lost within a second",
		"connects again at once", "fails, and backs off", shortLife),
}

// shortLife loses the first connection as soon as it is there. The upstream keeps
// listening.
func shortLife(d *duel) func() string {
	w := d.leaves[0]
	w.localities = w.localities[:1]
	d.serve()
	d.wait(func() string { return d.open(0) }, "has 1 connections")
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

// state is that of a cluster.
func (d *duel) state(cluster string) connectivity.State {
	if d.grpc != nil {
		state, _, _ := d.grpc.look(cluster)
		return state
	}
	state, _, _, err := d.lbd.look(d.t.Context(), cluster)
	if err != nil {
		d.t.Error(err)
	}
	return state
}

// oneAsk is what one request comes to.
func (d *duel) oneAsk() string {
	to := d.ask()
	if to.kind != picked {
		return string(to.kind)
	}
	to.done()
	return d.net.named(to.address)
}

// headersOfRoutes has routes that look for the headers.
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
