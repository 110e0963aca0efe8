package lb_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// square is a channel of 100 × 100 endpoints that are all READY, with a drop
// category that drops one in a million and a breaker that is never full.
func square(tb testing.TB) *lb.Channel {
	tb.Helper()
	var ls []*resource.LocalityEndpoints
	for i := range 100 {
		ls = append(ls, locality(fmt.Sprint("z", i), 0, uint32(i+1), 100))
	}
	c := newChannel(tb, nil)
	offer(tb, c, config([]resource.Drop{{Category: "throttle", PerMillion: 1}}, 1<<20, ls...))
	return c
}

func pickAndFinish(c *lb.Channel, call *policy.Call) {
	if err := c.Pick(call, time.Second); err == nil {
		call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
	}
	call.Again()
}

func BenchmarkPick(b *testing.B) {
	c := square(b)
	for _, hold := range []bool{false, true} {
		b.Run(fmt.Sprintf("hold=%t", hold), func(b *testing.B) {
			b.ReportAllocs()
			call := newCall()
			call.Hold = hold
			for b.Loop() {
				pickAndFinish(c, call)
			}
		})
	}
}

func BenchmarkPickParallel(b *testing.B) {
	c := square(b)
	for _, hold := range []bool{false, true} {
		b.Run(fmt.Sprintf("hold=%t", hold), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				call := newCall()
				call.Hold = hold
				for pb.Next() {
					pickAndFinish(c, call)
				}
			})
		})
	}
}

// BenchmarkRoutedPick is a pick that the last of so many routes takes, by a
// header, of two clusters.
func BenchmarkRoutedPick(b *testing.B) {
	for _, n := range []int{1, 10} {
		b.Run(fmt.Sprintf("routes=%d", n), func(b *testing.B) {
			var routes []*resource.Route
			for i := range n - 1 {
				routes = append(routes, to(fmt.Sprintf("/service%d/", i), "a"))
			}
			last := to("/", "a", "b")
			last.Match.Headers = []resource.HeaderMatch{{Name: "env", String: resource.StringMatch{Value: "prod"}}}
			last.Hash = []resource.HashPolicy{{Header: "user"}}
			c := newChannel(b, nil)
			offer(b, c, routed(append(routes, last)...))
			call := newCall()
			call.Path = "/orders/list"
			call.Headers = []resource.Header{{Name: "user", Value: "ann"}, {Name: "env", Value: "prod"}}
			b.ReportAllocs()
			for b.Loop() {
				pickAndFinish(c, call)
			}
		})
	}
}

// shape is 10,000 endpoints in so many localities.
type shape struct{ localities, each int }

var shapes = []shape{{100, 100}, {1, 10_000}}

func (s shape) String() string { return fmt.Sprintf("%dx%d", s.localities, s.each) }

func (s shape) assignment() *resource.Assignment {
	a := &resource.Assignment{Name: cluster}
	for i := range s.localities {
		a.Localities = append(a.Localities, locality(fmt.Sprint("z", i), 0, 1, s.each))
	}
	return a
}

// BenchmarkUpdate is from the offer of a config in which one endpoint of 10,000
// is another, and all else is the last one's values, to its published picker.
func BenchmarkUpdate(b *testing.B) {
	for _, s := range shapes {
		b.Run(s.String(), func(b *testing.B) {
			c := newChannel(b, nil)
			cc := resource.DefaultCluster(cluster)
			before := s.assignment()
			other := *before.Localities[0]
			other.Endpoints = slices.Clone(other.Endpoints)
			other.Endpoints[0] = &resource.Endpoint{Addresses: []string{"other:80"}, Weight: 1, Locality: other.ID}
			after := &resource.Assignment{Name: cluster, Localities: slices.Clone(before.Localities)}
			after.Localities[0] = &other
			configs := []*resource.Config{
				configOf(&resource.ClusterConfig{Cluster: cc, Assignment: before}),
				configOf(&resource.ClusterConfig{Cluster: cc, Assignment: after}),
			}
			offer(b, c, configs[1])
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				offer(b, c, configs[i%2])
				i++
			}
		})
	}
}

// BenchmarkLoad is from the offer of the first config to its published picker.
func BenchmarkLoad(b *testing.B) {
	for _, s := range shapes {
		b.Run(s.String(), func(b *testing.B) {
			first := configOf(&resource.ClusterConfig{Cluster: resource.DefaultCluster(cluster), Assignment: s.assignment()})
			b.ReportAllocs()
			for b.Loop() {
				c := lb.NewChannel(options(nil))
				offer(b, c, first)
				c.Close()
			}
		})
	}
}

// BenchmarkConnectionChange is one connection of a tree of 1,000 clusters that is
// lost and comes back.
func BenchmarkConnectionChange(b *testing.B) {
	const clusters = 1000
	board := newSwitchboard()
	c := newChannel(b, board)
	all := &resource.Config{Target: "xds:///many"}
	for i := range clusters {
		name := fmt.Sprint("c", i)
		l := locality(name, 0, 1, 2)
		board.up[l.Endpoints[0].Addresses[0]], board.up[l.Endpoints[1].Addresses[0]] = true, true
		all.Roots = append(all.Roots, name)
		all.Clusters.Set(name, &resource.ClusterConfig{
			Cluster:    resource.DefaultCluster(name),
			Assignment: &resource.Assignment{Localities: []*resource.LocalityEndpoints{l}},
		})
	}
	offer(b, c, all)
	until := func(ready int) {
		for g := c.Generation(); c.Summary().Clusters.Get("c0").Priorities[0].Ready != ready; g = c.Generation() {
			c.WaitForGeneration(b.Context(), g)
		}
	}
	until(2)
	b.ReportAllocs()
	for b.Loop() {
		board.lose("c0-0:80")
		until(1)
		board.set(true, "c0-0:80")
		until(2)
	}
}

// BenchmarkConformance is a pick of every endpoint policy from 100 endpoints.
func BenchmarkConformance(b *testing.B) {
	var names strings.Builder
	for i := range 100 {
		fmt.Fprintf(&names, "e%d ", i)
	}
	for name, builder := range endpointPolicies() {
		for _, call := range []*policy.Call{{}, {Hold: true}, {Exclude: []string{"e1", "e2"}}} {
			b.Run(fmt.Sprintf("%s/hold=%t,excluded=%d", name, call.Hold, len(call.Exclude)), func(b *testing.B) {
				tr := newTrial(b, name, builder)
				tr.config(names.String())
				for range 200 { // picks connect the endpoints of lazy policies
					_, _ = tr.pick(&policy.Call{Hash: rand.Uint64(), HasHash: true})
				}
				call.Context = b.Context()
				picker := tr.tree.Picker()
				b.ReportAllocs()
				for b.Loop() {
					_, _ = picker.Pick(balancer.PickInfo{Ctx: call})
					call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
					call.Again()
				}
			})
		}
	}
}
