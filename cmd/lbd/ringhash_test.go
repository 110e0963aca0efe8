package main

import (
	"net/http"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ringhashv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
)

// TestRingHashWithoutFunction: a RingHash without hash_function is rejected from a
// management server, as gRPC does, and taken as XX_HASH with a warning when pushed.
func TestRingHashWithoutFunction(t *testing.T) {
	t.Parallel()
	plane := newSnapshots(t)
	ring := edsCluster("orders")
	ring.LoadBalancingPolicy = &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "r", TypedConfig: packed(t, &ringhashv3.RingHash{})},
	}}}
	plane.set(ring, assignmentOf("orders", "10.0.0.1:80"))
	p := newControlPlane(t, plane)
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p)})
	do(t, "GET", url+"/pick?cluster=orders&wait=0s", "") // has lbd ask for it
	eventually(t, "the NACK at the server", func() bool { return p.refused("hash_function: DEFAULT_HASH is not supported") })

	const body = `{"type":"EDS","load_balancing_policy":{"policies":[{"typed_extension_config":{"name":"r","typed_config":` +
		`{"@type":"type.googleapis.com/envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash"}}}]}}`
	expect(t, http.StatusCreated, "PUT", url+"/v1/clusters/pushed/config", body, "taken as XX_HASH")
}
