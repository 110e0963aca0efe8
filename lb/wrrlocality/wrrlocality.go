// Package wrrlocality is gRPC's xds_wrr_locality: a weighted_target with the weights
// of EDS (gRFC A52).
package wrrlocality

import (
	"fmt"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

// Builder returns the builder of wrr_locality policies, whose config is a
// *[policy.WRRLocalityConfig].
func Builder() policy.Builder {
	return policy.NewBuilder(policy.WRRLocality, func(conn *policy.Conn) balancer.Balancer {
		return &wrrLocality{conn.Builder(policy.WeightedTarget).Build(conn, balancer.BuildOptions{})}
	})
}

// wrrLocality is its child, which always has the same policy, but for the config.
type wrrLocality struct{ balancer.Balancer }

func (b *wrrLocality) UpdateClientConnState(s balancer.ClientConnState) error {
	cfg, ok := s.BalancerConfig.(*policy.WRRLocalityConfig)
	if !ok {
		return fmt.Errorf("%s: config is a %T", policy.WRRLocality, s.BalancerConfig)
	}
	targets := make([]policy.Target, len(cfg.Localities))
	for i, l := range cfg.Localities {
		child := cfg.EndpointPolicy
		child.Endpoints, child.Localities = l.Endpoints, cfg.Localities[i:i+1]
		targets[i] = policy.Target{Locality: l, Child: child}
	}
	return b.Balancer.UpdateClientConnState(policy.Child{Config: &policy.WeightedTargetConfig{Targets: targets}}.State())
}

// Use gives reports to the child.
func (b *wrrLocality) Use(list []*policy.Usage) { policy.UseOf(b.Balancer, list) }

// Describe describes the child.
func (b *wrrLocality) Describe() policy.Node {
	return policy.DescribeOf(b.Balancer, policy.WeightedTarget, connectivity.Connecting)
}

// Summarize is the child's.
func (b *wrrLocality) Summarize() policy.Summary {
	return policy.SummaryOf(b.Balancer, connectivity.Connecting)
}
