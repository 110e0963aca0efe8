package lb_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/test/must"
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

var noError = must.NoError

const cluster = "orders"

// locality builds a locality of n endpoints named after it: zone-0:80 …
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

func config(drops []resource.Drop, limit uint32, ls ...*resource.LocalityEndpoints) *resource.Config {
	c := resource.DefaultCluster(cluster)
	c.MaxRequests = limit
	return configOf(&resource.ClusterConfig{
		Cluster:    c,
		Assignment: &resource.Assignment{Name: cluster, Drops: drops, Localities: ls},
	})
}

func configOf(cc *resource.ClusterConfig) *resource.Config {
	return &resource.Config{
		Target:   "cluster:" + cluster,
		Roots:    []string{cluster},
		Clusters: few.Of(map[string]*resource.ClusterConfig{cluster: cc}),
	}
}

// half is a draw in the middle: it jitters nothing.
func half() uint64 { return 1 << 63 }

func options(connector lb.Connector) lb.Options {
	return lb.Options{
		Registry: lb.Policies(), Counters: policy.NewCounters(), Draw: rand.Uint64,
		Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: connector},
	}
}

func newChannel(tb testing.TB, connector lb.Connector, change ...func(*lb.Options)) *lb.Channel {
	tb.Helper()
	o := options(connector)
	for _, f := range change {
		f(&o)
	}
	c := lb.NewChannel(o)
	tb.Cleanup(c.Close)
	return c
}

// offer hands the channel a config and waits until picks see it.
func offer(tb testing.TB, c *lb.Channel, config *resource.Config) {
	tb.Helper()
	noError(tb, c.Offer(config).Wait(tb.Context()))
}

func newCall() *policy.Call {
	return &policy.Call{Context: context.Background(), Cluster: cluster}
}

// eachEvent calls f with the events of all reports.
func eachEvent(f func(policy.Event)) func([]policy.Event) {
	return func(events []policy.Event) {
		for _, e := range events {
			f(e)
		}
	}
}

// gate holds a tree's owner in its reports, while it is shut.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // nil while open
	held chan struct{} // closed once the owner is held
}

// report is lb.Options.Report.
func (g *gate) report(events []policy.Event) {
	if len(events) == 0 {
		return
	}
	g.mu.Lock()
	shut, held := g.shut, g.held
	g.held = nil
	g.mu.Unlock()
	if shut == nil {
		return
	}
	if held != nil {
		close(held)
	}
	<-shut
}

// hold shuts the gate. The next event holds the owner; waiting for held tells
// when.
func (g *gate) hold() (held <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.held = make(chan struct{}), make(chan struct{})
	return g.held
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.shut)
	g.shut = nil
}
