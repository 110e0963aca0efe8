package policy_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestEndpointTravels: an endpoint comes back as the same pointer, from a
// SubConn's addresses.
func TestEndpointTravels(t *testing.T) {
	e := &resource.Endpoint{Addresses: []string{"a:1", "b:1"}, Weight: 3}
	re := policy.ResolverEndpoint(e)
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
		got.Endpoints[0] != l.Endpoints[0] || got.Endpoints[1] != l.Endpoints[1] {
		t.Errorf("got %+v", got)
	}
	l.Endpoints = l.Endpoints[:2]
	if got := policy.NewLocality(l); len(got.Endpoints) != 2 || &got.Endpoints[0] != &l.Endpoints[0] {
		t.Errorf("where all are usable: got %+v, want the same list", got)
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

func TestInterleave(t *testing.T) {
	for _, tt := range []struct{ name, list, want string }{
		{"none", "", ""},
		{"one", "10.0.0.1:1", "10.0.0.1:1"},
		{"one family", "10.0.0.1:1 10.0.0.2:1 10.0.0.3:1", "10.0.0.1:1 10.0.0.2:1 10.0.0.3:1"},
		{"in turn already", "[::1]:1 10.0.0.1:1", "[::1]:1 10.0.0.1:1"},
		{"the first one's family first", "[::1]:1 [::2]:1 10.0.0.1:1", "[::1]:1 10.0.0.1:1 [::2]:1"},
		{
			"the longer family ends the list",
			"10.0.0.1:1 [::1]:1 [::2]:1 [::3]:1 10.0.0.2:1",
			"10.0.0.1:1 [::1]:1 10.0.0.2:1 [::2]:1 [::3]:1",
		},
		{"names are a family, and an IPv4 address in IPv6 is IPv4", "[::ffff:10.0.0.1]:1 10.0.0.2:1 db:1", "[::ffff:10.0.0.1]:1 db:1 10.0.0.2:1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list := strings.Fields(tt.list)
			before := slices.Clone(list)
			got := policy.Interleave(list, func(a string) string { return a })
			if strings.Join(got, " ") != tt.want || !slices.Equal(list, before) {
				t.Errorf("got %v of %v, want %s", got, list, tt.want)
			}
		})
	}
}

// half of the whole, in the parts that weights are reckoned in.
const half = 1 << 30

func TestWeights(t *testing.T) {
	place := func(zone string, weight uint32, weights ...uint32) *resource.LocalityEndpoints {
		l := &resource.LocalityEndpoints{ID: resource.Locality{Zone: zone}, Weight: weight}
		for _, w := range weights {
			l.Endpoints = append(l.Endpoints, &resource.Endpoint{Addresses: []string{zone}, Weight: w, Locality: l.ID})
		}
		return l
	}
	unusable := place("a", 1, 1, 1)
	unusable.Endpoints[0].Health = resource.HealthDraining
	tests := []struct {
		name   string
		place  *resource.LocalityEndpoints
		total  uint64 // 0 for a locality whose weight is not set
		weight uint32 // of the last endpoint
	}{
		{"alone", place("a", 7, 9), 7, 2 * half},
		{"alone, no weight set", place("a", 7, 9), 0, 2 * half},
		{"half of a locality", place("a", 7, 9, 9), 7, half},
		{"all of half a locality", place("a", 7, 9), 14, half},
		{"half of half a locality", place("a", 7, 9, 9), 14, half / 2},
		{"an unusable endpoint keeps its part", unusable, 1, half},
		{"rounded down, each part by itself", place("a", 1, 2, 1), 3, 238609293}, // 715827882 * 715827882 / 2^31
		{"never nothing", place("a", 1, math.MaxUint32-1, 1), math.MaxUint32, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := policy.NewLocality(tt.place)
			if tt.total > 0 {
				l = l.Among(tt.total)
			}
			last := tt.place.Endpoints[len(tt.place.Endpoints)-1]
			if got := policy.WeightsOf([]*policy.Locality{l}).Of(last); got != tt.weight {
				t.Errorf("weighs %d, want %d", got, tt.weight)
			}
		})
	}
}

// TestWeightsWithoutLocalities: what comes from elsewhere weighs what it says.
func TestWeightsWithoutLocalities(t *testing.T) {
	w := policy.WeightsOf(nil)
	if got := w.Of(&resource.Endpoint{Weight: 3}); got != 3 {
		t.Errorf("weighs %d, want 3", got)
	}
	if got := w.Of(&resource.Endpoint{}); got != 1 {
		t.Errorf("without weight it weighs %d, want 1", got)
	}
}

// TestAmong: a locality is another only where its share is.
func TestAmong(t *testing.T) {
	l := policy.NewLocality(&resource.LocalityEndpoints{Weight: 2})
	if l.Among(2) != l {
		t.Error("alone in its priority it is another")
	}
	if other := l.Among(4); other == l || other.Among(4) != other || other.Among(2) == other {
		t.Error("its share changes, and it does not; or the other way round")
	}
}
