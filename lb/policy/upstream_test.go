package policy_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// wire is a SubConn.
type wire struct {
	policy.Connection
}

func (w *wire) Recheck() (checked bool) { return true }

func newWire(e *resource.Endpoint) *wire {
	w := new(wire)
	w.Init(w, policy.ResolverEndpoint(e).Addresses, nil)
	return w
}

// TestUpstreamIsUsable: picks see at once whether an endpoint is connected, at which
// address, and whether it is ejected. So do picks that began before its values changed.
func TestUpstreamIsUsable(t *testing.T) {
	first := &resource.Endpoint{Addresses: []string{"a:1", "b:1"}}
	w := newWire(first)
	before := w.Upstream()
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"new", func() {}, " false"},
		{"connected", func() { w.SetConnected("a:1") }, "a:1 true"},
		{"ejected", func() { w.Eject(true) }, " false"},
		{"at its other address, while ejected", func() { w.SetConnected("b:1") }, " false"},
		{"no longer ejected", func() { w.Eject(false) }, "b:1 true"},
		{"the same value", func() { w.Replace(first) }, "b:1 true"},
		{"another value", func() { w.Replace(&resource.Endpoint{Addresses: first.Addresses, Weight: 2}) }, "b:1 true"},
		{"lost", func() { w.SetConnected("") }, " false"},
		{"connected again", func() { w.SetConnected("a:1") }, "a:1 true"},
	} {
		step.do()
		for name, u := range map[string]*policy.Upstream{"the newest": w.Upstream(), "the first": before} {
			address, ok := u.Address()
			if got := fmt.Sprint(address, " ", ok); got != step.want {
				t.Errorf("%s: %s is usable at %s, want %s", step.name, name, got, step.want)
			}
		}
	}
	if before.Endpoint != first || w.Upstream().Endpoint.Weight != 2 || w.Upstream().Connection.SubConn != balancer.SubConn(w) {
		t.Errorf("endpoints %+v, %+v", before.Endpoint, w.Upstream().Endpoint)
	}
}

// TestUpstreamLoad: picks count in the locality of their endpoint's value, in the
// counters that are current.
func TestUpstreamLoad(t *testing.T) {
	counters := policy.NewCounters()
	one, two := counters.Acquire(resource.ServiceKey{Cluster: "one"}), counters.Acquire(resource.ServiceKey{Cluster: "two"})
	near, far := resource.Locality{Zone: "near"}, resource.Locality{Zone: "far"}
	w := newWire(&resource.Endpoint{Addresses: []string{"a:1"}, Locality: near})
	expect := func(c *policy.ClusterCounters, l resource.Locality) {
		t.Helper()
		for range 2 {
			if w.Upstream().LoadIn(c) != c.Locality(l) {
				t.Errorf("the load is not that of %v", l)
			}
		}
	}
	expect(one, near)
	expect(two, near)
	expect(one, near)
	w.Replace(&resource.Endpoint{Addresses: []string{"a:1"}, Locality: near, Weight: 2})
	expect(one, near)
	w.Replace(&resource.Endpoint{Addresses: []string{"a:1"}, Locality: far})
	expect(one, far)
}

// TestUpstreamLoadIsNotForgotten: an endpoint that is kept while its locality is out of the config, as
// those of a deactivated priority are, counts in the locality again when that is back.
func TestUpstreamLoadIsNotForgotten(t *testing.T) {
	counters := policy.NewCounters()
	c := counters.Acquire(resource.ServiceKey{Cluster: "c"})
	at := func(zone string) []*resource.LocalityEndpoints {
		return []*resource.LocalityEndpoints{{ID: resource.Locality{Zone: zone}}}
	}
	e := &resource.Endpoint{Addresses: []string{"a:1"}, Locality: resource.Locality{Zone: "kept"}}
	w := newWire(e)
	c.Name(nil, at("kept"))
	w.Upstream().LoadIn(c).Start(false)
	c.Unname(nil, at("kept"))
	for i := range 100 {
		c.Name(nil, at(fmt.Sprint(i)))
		c.Unname(nil, at(fmt.Sprint(i)))
	}
	if _, ok := c.Loads()[e.Locality]; ok {
		t.Fatal("the locality is still counted")
	}
	c.Name(nil, at("kept"))
	w.Replace(&resource.Endpoint{Addresses: e.Addresses, Locality: e.Locality, Weight: 2})
	w.Upstream().LoadIn(c).Start(false)
	if got := c.Loads()[e.Locality].Issued; got != 1 || c.Judged() != 2 {
		t.Errorf("%d picks in the locality, %d in the cluster; want 1 and 2", got, c.Judged())
	}
}
