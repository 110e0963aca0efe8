package parity_test

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	leastrequestv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	pickfirstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
	ringhashv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// lbPolicy is a way in which a Cluster asks for its policy, and what picks are
// to be like by it.
type lbPolicy struct {
	name string
	// alone chooses among the endpoints of all localities, without regard to
	// them.
	alone bool
	// turns is true where endpoints take turns.
	turns bool
	// hashes is true where an endpoint is chosen by the request's hash.
	hashes bool
	// one is true where one endpoint serves until it is lost: which one is a
	// matter of what was tried first.
	one bool
	ask func(d *drawing, c *clusterv3.Cluster)
}

// lazy reports whether endpoints wait for picks to be connected to.
func (p *lbPolicy) lazy() bool { return p.hashes || p.one }

var lbPolicies = []*lbPolicy{
	{name: "lb_policy ROUND_ROBIN", turns: true, ask: func(*drawing, *clusterv3.Cluster) {}},
	{name: "wrr_locality and round_robin", turns: true, ask: func(_ *drawing, c *clusterv3.Cluster) {
		c.LoadBalancingPolicy = listed(&wrrlocalityv3.WrrLocality{EndpointPickingPolicy: listed(&roundrobinv3.RoundRobin{})})
	}},
	{name: "round_robin", turns: true, alone: true, ask: func(_ *drawing, c *clusterv3.Cluster) {
		c.LoadBalancingPolicy = listed(&roundrobinv3.RoundRobin{})
	}},
	{name: "lb_policy LEAST_REQUEST", alone: true, ask: func(d *drawing, c *clusterv3.Cluster) {
		c.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		if d.chance(2) {
			c.LbConfig = &clusterv3.Cluster_LeastRequestLbConfig_{
				LeastRequestLbConfig: &clusterv3.Cluster_LeastRequestLbConfig{ChoiceCount: wrapperspb.UInt32(2 + d.Uint32N(12))},
			}
		}
	}},
	{name: "wrr_locality and least_request", ask: func(d *drawing, c *clusterv3.Cluster) {
		c.LoadBalancingPolicy = listed(&wrrlocalityv3.WrrLocality{EndpointPickingPolicy: listed(&leastrequestv3.LeastRequest{
			ChoiceCount: wrapperspb.UInt32(2 + d.Uint32N(3)),
		})})
	}},
	{name: "pick_first", one: true, alone: true, ask: func(_ *drawing, c *clusterv3.Cluster) {
		c.LoadBalancingPolicy = listed(&pickfirstv3.PickFirst{})
	}},
	{name: "lb_policy RING_HASH", alone: true, hashes: true, ask: func(d *drawing, c *clusterv3.Cluster) {
		c.LbPolicy = clusterv3.Cluster_RING_HASH
		if d.chance(2) {
			lowest, highest := d.ringSizes()
			c.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{
				RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{MinimumRingSize: lowest, MaximumRingSize: highest},
			}
		}
	}},
	{name: "ring_hash", alone: true, hashes: true, ask: func(d *drawing, c *clusterv3.Cluster) {
		lowest, highest := d.ringSizes()
		c.LoadBalancingPolicy = listed(&ringhashv3.RingHash{
			HashFunction: ringhashv3.RingHash_XX_HASH, MinimumRingSize: lowest, MaximumRingSize: highest,
		})
	}},
}

// ringSizes draws sizes of which some are above the cap of 4096.
func (d *drawing) ringSizes() (lowest, highest *wrapperspb.UInt64Value) {
	n := uint64(1 + d.skewed(6000))
	return wrapperspb.UInt64(n), wrapperspb.UInt64(n + uint64(d.skewed(3000)))
}

// listed is a load_balancing_policy of one policy.
func listed(config proto.Message) *clusterv3.LoadBalancingPolicy {
	return &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "policy", TypedConfig: packed(config)},
	}}}
}
