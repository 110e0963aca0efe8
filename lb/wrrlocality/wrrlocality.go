// Package wrrlocality is gRPC's xds_wrr_locality: a weighted_target with the weights
// of EDS (gRFC A52).
package wrrlocality

import (
	"fmt"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
)

// Builder returns the builder of wrr_locality policies, whose config is a
// *[policy.WRRLocalityConfig].
func Builder() policy.Builder {
	return policy.NewBuilder(policy.WRRLocality, func(conn *policy.Conn) balancer.Balancer {
		return &wrrLocality{policy.NewSwitch(conn)}
	})
}

type wrrLocality struct{ *policy.Switch }

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
	return b.Update(policy.Child{
		Policy: policy.WeightedTarget,
		Config: &policy.WeightedTargetConfig{Targets: targets},
	})
}
