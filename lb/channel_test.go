package lb_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"math/rand/v2"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

const cluster = "orders"

// locality builds a locality of n endpoints named after it.
func locality(zone string, priority, weight uint32, n int) *resource.LocalityEndpoints {
	id := resource.Locality{Region: "r", Zone: zone}
	l := &resource.LocalityEndpoints{ID: id, Priority: priority, Weight: weight}
	for i := range n {
		l.Endpoints = append(l.Endpoints, &resource.Endpoint{
			Addresses: []string{fmt.Sprintf("%s-%d:80", zone, i)}, Weight: 1, Locality: id,
		})
	}
	return l
}

func config(drops []resource.Drop, max uint32, ls ...*resource.LocalityEndpoints) *resource.Config {
	c := resource.DefaultCluster(cluster)
	c.MaxRequests = max
	return &resource.Config{
		Target: "cluster:" + cluster,
		Clusters: map[string]*resource.ClusterConfig{cluster: {
			Cluster:    c,
			Assignment: &resource.Assignment{Name: cluster, Drops: drops, Localities: ls},
		}},
	}
}

func newChannel(tb testing.TB, connector lb.Connector, events func(policy.Event)) *lb.Channel {
	tb.Helper()
	if events == nil {
		events = func(policy.Event) {}
	}
	c := lb.NewChannel(lb.Options{
		Registry: lb.Policies(), Counters: policy.NewCounters(), Draw: rand.Uint64, Events: events,
		Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: connector},
	})
	tb.Cleanup(c.Close)
	return c
}

func newCall() *policy.Call {
	return &policy.Call{Context: context.Background(), Cluster: cluster}
}

func BenchmarkPick(b *testing.B) {
	var ls []*resource.LocalityEndpoints
	for i := range 100 {
		ls = append(ls, locality(fmt.Sprint("z", i), 0, uint32(i+1), 100))
	}
	c := newChannel(b, nil, nil)
	if err := c.Offer(config([]resource.Drop{{Category: "throttle", PerMillion: 1}}, 1<<20, ls...)).Wait(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, hold := range []bool{false, true} {
		b.Run(fmt.Sprintf("hold=%t", hold), func(b *testing.B) {
			b.ReportAllocs()
			call := newCall()
			call.Hold = hold
			for b.Loop() {
				if err := c.Pick(call, time.Second); err == nil {
					call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
				}
				call.Again()
			}
		})
	}
}
