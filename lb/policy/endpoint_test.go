package policy_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestEndpointTravels: an endpoint comes back as the same pointer, from the
// endpoint and from a SubConn's addresses.
func TestEndpointTravels(t *testing.T) {
	e := &resource.Endpoint{Addresses: []string{"a:1", "b:1"}, Weight: 3}
	re := policy.ResolverEndpoint(e)
	if policy.EndpointOf(re) != e {
		t.Error("EndpointOf returns another endpoint")
	}
	if policy.EndpointOfAddresses(re.Addresses) != e {
		t.Error("EndpointOfAddresses returns another endpoint")
	}
	if len(re.Addresses) != 2 || re.Addresses[0].Addr != "a:1" || re.Addresses[1].Addr != "b:1" {
		t.Errorf("addresses: %v", re.Addresses)
	}

	type key struct{}
	security := &resource.Security{SystemRoots: true}
	for _, mode := range []resource.ConnectMode{resource.ConnectDefault, resource.ConnectTCPHold} {
		for _, own := range []*attributes.Attributes{nil, attributes.New(key{}, 1)} {
			addrs := slices.Clone(re.Addresses)
			addrs[0].Attributes = own
			linked := policy.WithLink(addrs, policy.NewLink("", "orders", mode, security))
			if got := policy.LinkOf(linked); got.Mode != mode || got.Cluster != "orders" || got.Security != security {
				t.Errorf("link %+v, want orders, %q, %p", got, mode, security)
			}
			if got := linked[0].Attributes.Value(key{}); got != own.Value(key{}) {
				t.Errorf("the address's own attribute is %v", got)
			}
			if policy.EndpointOfAddresses(linked) != e {
				t.Errorf("with connect mode %q: another endpoint", mode)
			}
			if got := policy.LinkOf(addrs); *got != (policy.Link{}) {
				t.Errorf("WithLink changed its argument: %+v", got)
			}
		}
	}
	if got := policy.LinkOf(nil); *got != (policy.Link{}) {
		t.Errorf("link of no address: %+v", got)
	}
}

// TestForeignEndpoints: one that is not lbd's is made of its addresses.
func TestForeignEndpoints(t *testing.T) {
	type key struct{}
	addrs := []resolver.Address{{Addr: "a:1"}, {Addr: "b:1"}}
	for name, got := range map[string]*resource.Endpoint{
		"endpoint":         policy.EndpointOf(resolver.Endpoint{Addresses: addrs}),
		"with attributes":  policy.EndpointOf(resolver.Endpoint{Addresses: addrs, Attributes: attributes.New(key{}, 1)}),
		"addresses":        policy.EndpointOfAddresses(addrs),
		"with address own": policy.EndpointOfAddresses([]resolver.Address{{Addr: "a:1", BalancerAttributes: attributes.New(key{}, 1)}, addrs[1]}),
	} {
		if !slices.Equal(got.Addresses, []string{"a:1", "b:1"}) || got.Weight != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := policy.EndpointOfAddresses(nil); len(got.Addresses) != 0 {
		t.Errorf("of no address: %+v", got)
	}
}

// TestLocalityKeepsUsableEndpoints: gRPC's rule, HEALTHY and UNKNOWN only.
func TestLocalityKeepsUsableEndpoints(t *testing.T) {
	id := resource.Locality{Zone: "a"}
	l := &resource.LocalityEndpoints{ID: id, Weight: 7}
	for _, h := range []resource.Health{
		resource.HealthUnknown, resource.HealthHealthy, resource.HealthUnhealthy,
		resource.HealthDraining, resource.HealthTimeout, resource.HealthDegraded,
	} {
		l.Endpoints = append(l.Endpoints, &resource.Endpoint{Addresses: []string{h.String()}, Health: h})
	}
	got := policy.NewLocality(l)
	if got.ID != id || got.Weight != 7 || len(got.Endpoints) != 2 ||
		policy.EndpointOf(got.Endpoints[0]) != l.Endpoints[0] || policy.EndpointOf(got.Endpoints[1]) != l.Endpoints[1] {
		t.Errorf("got %+v", got)
	}
}

func TestCall(t *testing.T) {
	e := &resource.Endpoint{Addresses: []string{"a:1", "b:1"}}
	for _, tt := range []struct {
		exclude []string
		want    bool
	}{
		{nil, false},
		{[]string{"c:1"}, false},
		{[]string{"c:1", "a:1"}, true},
		{[]string{"b:1"}, true}, // an additional address counts too
	} {
		call := policy.Call{Exclude: tt.exclude}
		if got := call.Excludes(e); got != tt.want {
			t.Errorf("exclude %v: %t, want %t", tt.exclude, got, tt.want)
		}
	}

	call := &policy.Call{
		Context: t.Context(), Cluster: "c", Hold: true, Trace: &policy.Trace{Steps: []policy.Step{policy.QueueStep{}}},
		Endpoint: e, Address: "a:1", Priority: 1,
	}
	call.Again()
	if call.Cluster != "c" || !call.Hold || call.Endpoint != nil || call.Address != "" || call.Priority != 0 || len(call.Trace.Steps) != 0 {
		t.Errorf("asked again: %+v", call)
	}
	call.Reset(t.Context())
	if call.Cluster != "" || call.Hold || call.Trace != nil || call.Context == nil {
		t.Errorf("reset: %+v", call)
	}
	if policy.CallOf(call) != call {
		t.Error("a call is not found in itself")
	}
	if got := policy.CallOf(t.Context()); got.Hold || got.Context != t.Context() {
		t.Errorf("%+v in another context", got)
	}
}
