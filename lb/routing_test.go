package lb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

const target = "xds:///shop"

// to is a route by a prefix to clusters of equal weight; "!" before the only one
// makes an action of it that is not supported.
func to(prefix string, clusters ...string) *resource.Route {
	r := &resource.Route{Name: "to " + strings.Join(clusters, ","), Match: resource.RouteMatch{Prefix: &prefix}}
	if what, ok := strings.CutPrefix(clusters[0], "!"); ok {
		r.Unsupported = what
		return r
	}
	for _, c := range clusters {
		r.Clusters = append(r.Clusters, resource.WeightedCluster{Name: c, Weight: 1})
		r.TotalWeight++
	}
	return r
}

// routed is a config of routes, with a cluster of one endpoint, NAME-0:80, for
// each cluster that they name.
func routed(routes ...*resource.Route) *resource.Config {
	c := &resource.Config{
		Target: target, Routing: &resource.Routing{VirtualHost: &resource.VirtualHost{Name: "vh", Routes: routes}},
		Clusters: few.Of(map[string]*resource.ClusterConfig{}),
	}
	for _, r := range routes {
		for _, w := range r.Clusters {
			if c.Clusters.Get(w.Name) == nil {
				c.Roots = append(c.Roots, w.Name)
				c.Clusters.Set(w.Name, &resource.ClusterConfig{
					Cluster:    resource.DefaultCluster(w.Name),
					Assignment: &resource.Assignment{Name: w.Name, Localities: []*resource.LocalityEndpoints{locality(w.Name, 0, 1, 1)}},
				})
			}
		}
	}
	return c
}

func broken(why string) *resource.Config {
	return &resource.Config{Target: target, Err: errors.New(why)}
}

// TestRoutedPick: one pick for each row, of the path /a/x, and how long it waits.
func TestRoutedPick(t *testing.T) {
	type world struct {
		board *switchboard
		c     *lb.Channel
	}
	up := func(addresses ...string) func(*world) {
		return func(w *world) { w.board.set(true, addresses...) }
	}
	config := func(c *resource.Config) func(*world) { return func(w *world) { w.c.Offer(c) } }
	closed := func(w *world) { w.c.Close() }
	tests := []struct {
		name         string
		before       []func(*world)
		waitForReady bool
		then         []func(*world) // two seconds later
		want         string         // endpoint and cluster, or error with its type
		waited       time.Duration
	}{
		{name: "the first route that matches", before: []func(*world){config(routed(to("/b", "b"), to("/a", "a"), to("/", "c"))), up("a-0:80")}, want: "a-0:80 of a"},
		{name: "a draw in the middle takes the second of two clusters", before: []func(*world){config(routed(to("/", "a", "b"))), up("b-0:80")}, want: "b-0:80 of b"},
		{name: "no route matches", before: []func(*world){config(routed(to("/b", "b")))}, waitForReady: true, want: `*lb.RouteError no route of virtual host "vh" matches the request`},
		{name: "a route that cannot be followed", before: []func(*world){config(routed(to("/", "!redirect"), to("/", "a")))}, waitForReady: true, want: `*lb.RouteError route "to !redirect" of virtual host "vh" cannot be followed: redirect`},
		{name: "the target cannot be used", before: []func(*world){config(broken("no Listener"))}, want: "*lb.TargetError xds:///shop: no Listener"},
		{name: "it can again, for one that waits for ready", before: []func(*world){config(broken("no Listener"))}, waitForReady: true, then: []func(*world){config(routed(to("/", "a"))), up("a-0:80")}, want: "a-0:80 of a", waited: 2 * time.Second},
		{name: "it stays so for longer than the pick waits", before: []func(*world){config(broken("no Listener"))}, waitForReady: true, want: "*lb.TimeoutError not ready within 1m0s: xds:///shop: no Listener", waited: time.Minute},
		{name: "nothing is known yet", before: []func(*world){config(&resource.Config{Target: target, Pending: true})}, then: []func(*world){config(routed(to("/", "a"))), up("a-0:80")}, want: "a-0:80 of a", waited: 2 * time.Second},
		{name: "a queued pick follows other routes", before: []func(*world){config(routed(to("/", "a")))}, then: []func(*world){config(routed(to("/", "b"))), up("b-0:80")}, want: "b-0:80 of b", waited: 2 * time.Second},
		{name: "a queued pick loses its route", before: []func(*world){config(routed(to("/", "a")))}, then: []func(*world){config(routed(to("/b", "a")))}, want: `*lb.RouteError no route of virtual host "vh" matches the request`, waited: 2 * time.Second},
		{name: "a queued pick loses its target", before: []func(*world){config(routed(to("/", "a")))}, then: []func(*world){config(broken("deleted"))}, want: "*lb.TargetError xds:///shop: deleted", waited: 2 * time.Second},
		{name: "other routes to the same clusters", before: []func(*world){config(routed(to("/a", "a"), to("/", "b"))), up("a-0:80", "b-0:80"), config(routed(to("/a", "b"), to("/", "a")))}, want: "b-0:80 of b"},
		{name: "a target that cannot be used any more", before: []func(*world){config(routed(to("/", "a"))), up("a-0:80"), config(broken("deleted"))}, want: "*lb.TargetError xds:///shop: deleted"},
		{name: "its clusters are new when it can be again", before: []func(*world){config(routed(to("/", "a"))), up("a-0:80"), config(broken("deleted")), func(w *world) { delete(w.board.up, "a-0:80") }, config(routed(to("/", "a")))}, then: []func(*world){up("a-0:80")}, want: "a-0:80 of a", waited: 2 * time.Second},
		{name: "a Pending config changes nothing", before: []func(*world){config(routed(to("/", "a"))), up("a-0:80"), config(&resource.Config{Target: target, Pending: true})}, want: "a-0:80 of a"},
		{name: "closed", before: []func(*world){config(broken("deleted")), closed}, want: "*errors.errorString channel is closed"},
		{name: "closed while queued", before: []func(*world){config(broken("deleted"))}, waitForReady: true, then: []func(*world){closed}, want: "*errors.errorString channel is closed", waited: 2 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{board: newSwitchboard()}
				w.c = newChannel(t, w.board, func(o *lb.Options) { o.Draw = half })
				do := func(steps []func(*world)) {
					for _, f := range steps {
						f(w)
						synctest.Wait()
					}
				}
				do(tt.before)
				if tt.then != nil {
					go func() {
						time.Sleep(2 * time.Second)
						for _, f := range tt.then {
							f(w)
						}
					}()
				}
				call := &policy.Call{Context: t.Context(), Path: "/a/x", WaitForReady: tt.waitForReady}
				start := time.Now()
				err := w.c.Pick(call, time.Minute)
				got := fmt.Sprintf("%T %v", err, err)
				if err == nil {
					got = call.Address + " of " + call.Cluster
				}
				if got != tt.want || time.Since(start) != tt.waited {
					t.Errorf("got %q after %v, want %q after %v", got, time.Since(start), tt.want, tt.waited)
				}
				if call.Generation == 0 && tt.waited == 0 {
					t.Error("no generation")
				}
				unroutable := strings.HasPrefix(got, "*lb.RouteError") || strings.HasPrefix(got, "*lb.TargetError")
				if unroutable && call.Cluster != "" {
					t.Errorf("no cluster was chosen, and the call has %q", call.Cluster)
				}
				if r, ok := errors.AsType[*lb.RouteError](err); ok && (status.Code(r) != codes.Unavailable || status.Convert(r).Message() != r.Error()) {
					t.Errorf("to grpc it is %v", status.Convert(r))
				}
			})
		})
	}
}

// TestRequestHash: the hash that a routed pick has, whose caller has one or not.
func TestRequestHash(t *testing.T) {
	user := []resource.HashPolicy{{Header: "user"}}
	ann := []resource.Header{{Name: "user", Value: "ann"}}
	annHash := xxhash.Sum64String("ann")
	for _, tt := range []struct {
		name    string
		hash    []resource.HashPolicy
		headers []resource.Header
		own     bool // the caller has the hash 7
		want    uint64
		from    policy.HashSource
	}{
		{"a policy makes it", user, ann, false, annHash, policy.HashFromRoute},
		{"the caller's counts", user, ann, true, 7, policy.HashFromCaller},
		{"no policy makes one: it is random", user, nil, false, 1 << 63, policy.HashRandom},
		{"there is no policy: it is random", nil, ann, false, 1 << 63, policy.HashRandom},
		{"the channel's", []resource.HashPolicy{{}}, nil, false, 1 << 63, policy.HashFromRoute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newChannel(t, nil, func(o *lb.Options) { o.Draw = half })
			route := to("/", "a")
			route.Hash = tt.hash
			offer(t, c, routed(route))
			call := &policy.Call{Context: t.Context(), Path: "/", Headers: tt.headers}
			if tt.own {
				call.Hash, call.HasHash = 7, true
			}
			for range 2 { // asked again, nothing of the first is left
				call.Trace = new(policy.Trace)
				noError(t, c.Pick(call, time.Minute))
				step, ok := call.Trace.Steps[0].(policy.RouteStep)
				if !ok || call.Hash != tt.want || !call.HasHash || step.Hash != tt.want || step.HashFrom != tt.from {
					t.Errorf("hash %d (%t), step %+v", call.Hash, call.HasHash, step)
				}
				call.Again()
				if call.HasHash != tt.own {
					t.Errorf("again, it has a hash: %t", call.HasHash)
				}
			}
		})
	}
}

// TestQueuedPickKeepsItsDraws: other pickers of the same routes change neither the
// cluster nor the hash of a pick that queues; other routes do.
func TestQueuedPickKeepsItsDraws(t *testing.T) {
	for _, tt := range []struct {
		name   string
		routes *resource.Route // instead of the first
		want   string
	}{
		{"the same routes", nil, "a-0:80 0 2"},
		{"other routes", to("/", "c", "b", "a"), "a-0:80 18446744073709551615 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var draw atomic.Uint64
				board := newSwitchboard()
				c := newChannel(t, board, func(o *lb.Options) { o.Draw = draw.Load })
				first := to("/", "a", "b", "c")
				c.Offer(routed(first))
				synctest.Wait()
				call := &policy.Call{Context: t.Context(), Path: "/", Trace: new(policy.Trace)}
				var wg sync.WaitGroup
				wg.Go(func() {
					if err := c.Pick(call, time.Minute); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				draw.Store(1<<64 - 1)
				before := c.Generation()
				board.set(true, "b-0:80", "c-0:80")
				if tt.routes != nil {
					c.Offer(routed(tt.routes))
				}
				synctest.Wait()
				if c.Generation() == before {
					t.Error("there was no other picker")
				}
				board.set(true, "a-0:80")
				wg.Wait()
				routes := 0
				for _, s := range call.Trace.Steps {
					switch s.(type) {
					case policy.RouteStep, policy.ClusterStep:
						routes++
					}
				}
				if got := fmt.Sprint(call.Address, " ", call.Hash, " ", routes); got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// TestChannelsDiffer: the hash of the channel is the same for all its picks, and
// another channel's is another.
func TestChannelsDiffer(t *testing.T) {
	route := to("/", "a")
	route.Hash = []resource.HashPolicy{{}}
	other := to("/x", "a")
	hashes := make(map[uint64]int)
	for range 2 {
		c := newChannel(t, nil)
		for range 3 {
			offer(t, c, routed(route))
			offer(t, c, routed(other, route))
			call := &policy.Call{Context: t.Context(), Path: "/"}
			noError(t, c.Pick(call, time.Minute))
			hashes[call.Hash]++
		}
	}
	if len(hashes) != 2 {
		t.Errorf("%d hashes of two channels: %v", len(hashes), hashes)
	}
}

// TestRouteTrace: what a routed pick of the path /a and the header env: prod
// writes down before its cluster's own steps.
func TestRouteTrace(t *testing.T) {
	canary := to("/", "c")
	canary.Match.Headers = []resource.HeaderMatch{{Name: "env", String: resource.StringMatch{Value: "test"}}}
	rare := to("/", "r")
	rare.Match.HasFraction, rare.Match.PerMillion = true, 10
	for _, tt := range []struct {
		name   string
		config *resource.Config
		want   []string
	}{
		{"the third", routed(to("/b", "b"), canary, to("/", "a", "b")), []string{
			`route vh: the path does not match prefix "/b"; header env is "prod": wanted exact "test"; taken; b by 9223372036854775808, hash 9223372036854775808 random`,
			"cluster b",
		}},
		{"a fraction", routed(rare, to("/", "a")), []string{
			"route vh: it takes 10 of a million, and 500000 was drawn; taken; a by 0, hash 9223372036854775808 random", "cluster a",
		}},
		{"none", routed(to("/b", "b")), []string{`route vh: the path does not match prefix "/b"; none`}},
		{"not supported", routed(to("/", "!redirect")), []string{"route vh: taken, redirect"}},
		{"a target that cannot be used", broken("deleted"), []string{"failure xds:///shop: deleted"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newChannel(t, nil, func(o *lb.Options) { o.Draw = half })
			offer(t, c, tt.config)
			call := &policy.Call{
				Context: t.Context(), Path: "/a", Trace: new(policy.Trace),
				Headers: []resource.Header{{Name: "env", Value: "prod"}},
			}
			_ = c.Pick(call, 0) // the result is in the steps
			got := routeSteps(call.Trace)
			if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// routeSteps returns the steps up to the cluster's in words.
func routeSteps(trace *policy.Trace) []string {
	s, ok := trace.Steps[0].(policy.RouteStep)
	if !ok {
		return steps(trace)
	}
	var looks []string
	for _, l := range s.Routes {
		if l.Mismatch == "" {
			l.Mismatch = "taken"
		}
		looks = append(looks, l.Mismatch)
	}
	w := fmt.Sprintf("route %s: %s", s.VirtualHost, strings.Join(looks, "; "))
	switch {
	case s.Route == nil:
		return append(steps(&policy.Trace{Steps: trace.Steps[1:]}), w+"; none")
	case s.Cluster == "":
		return append(steps(&policy.Trace{Steps: trace.Steps[1:]}), w+", "+s.Route.Unsupported)
	}
	w += fmt.Sprintf("; %s by %d, hash %d %s", s.Cluster, s.Draw, s.Hash, s.HashFrom)
	return append([]string{w}, steps(trace)[1])
}

// TestRoutesMoveUnderPicks: while the routes go from one cluster to another, which
// comes and goes with them, no pick fails, and each is of the cluster that was
// chosen.
func TestRoutesMoveUnderPicks(t *testing.T) {
	c := newChannel(t, nil)
	offer(t, c, routed(to("/", "a")))
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var picks atomic.Int64
	for range 4 {
		wg.Go(func() {
			call := &policy.Call{Context: t.Context(), Path: "/x"}
			for ctx.Err() == nil {
				if err := c.Pick(call, time.Minute); err != nil {
					t.Errorf("a pick failed: %v", err)
					return
				}
				if call.Endpoint.Locality.Zone != call.Cluster {
					t.Errorf("%s was picked for cluster %s", call.Address, call.Cluster)
					return
				}
				picks.Add(1)
				call.Again()
			}
		})
	}
	for i := range 500 {
		offer(t, c, routed(to("/", [...]string{"b", "a"}[i%2])))
	}
	stop()
	wg.Wait()
	if picks.Load() == 0 {
		t.Error("no pick was made")
	}
}
