// The race detector allocates.

//go:build !race

package resource_test

import (
	"math/rand/v2"
	"testing"

	"github.com/lbd-dev/lbd/xds/resource"
)

// TestAllocRoute: choosing a route, its cluster and a hash costs no memory.
func TestAllocRoute(t *testing.T) {
	host := serving(t, routes(
		matching(`"path":"/x"`, `"case_sensitive":false`),
		matching(`"safe_regex":{"regex":"/y.*"}`),
		matching(`"prefix":"/a"`, `"headers":[{"name":"x-tenant","string_match":{"exact":"other","ignore_case":true}}]`),
		matching(`"prefix":"/a"`, `"runtime_fraction":{"default_value":{"numerator":0}}`),
		acting(`"weighted_clusters":{"clusters":[{"name":"a","weight":90},{"name":"b","weight":10}]}`,
			`"hash_policy":[{"header":{"header_name":"x-user"}},{"filter_state":{"key":"io.grpc.channel_id"}}]`),
	)).VirtualHosts[0]
	r := &resource.Request{
		Path:    "/a.B/C",
		Headers: []resource.Header{{Name: "x-user", Value: "somebody"}, {Name: "x-tenant", Value: "t"}},
		Draw:    rand.Uint64,
	}
	if n := testing.AllocsPerRun(100, func() {
		route := host.Route(r)
		hash, ok := route.RequestHash(r, 7)
		if name, _, _ := route.Cluster(hash); !ok || name == "" {
			t.Fatal("no cluster")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
