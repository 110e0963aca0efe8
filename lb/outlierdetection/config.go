package outlierdetection

import (
	"iter"

	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// detects reports whether cfg can eject an endpoint. gRPC ejects none of pick_first,
// which keeps its endpoint (gRFC A61).
func detects(cfg *policy.OutlierDetectionConfig) bool {
	return cfg.OutlierDetection != nil && (cfg.SuccessRate != nil || cfg.FailurePercentage != nil) &&
		endpointPolicy(cfg.Child) != string(resource.PolicyPickFirst)
}

// endpointPolicy returns the name of the endpoint policy below c.
func endpointPolicy(c policy.Child) string {
	switch cfg := c.Config.(type) {
	case *policy.ClusterImplConfig:
		return endpointPolicy(cfg.Child)
	case *policy.PriorityConfig:
		if len(cfg.Children) > 0 {
			return endpointPolicy(cfg.Children[0].Child)
		}
	case *policy.WRRLocalityConfig:
		return cfg.EndpointPolicy.Policy
	}
	return c.Policy
}

// endpointsOf yields the usable endpoints below c, each with its priority.
func endpointsOf(c policy.Child) iter.Seq2[int, *resource.Endpoint] {
	return func(yield func(int, *resource.Endpoint) bool) {
		for p, part := range prioritiesOf(c) {
			for _, re := range part {
				for i := range re {
					if !yield(p, policy.EndpointOf(re[i])) {
						return
					}
				}
			}
		}
	}
}

// prioritiesOf returns the endpoints of each priority below c, in parts.
func prioritiesOf(c policy.Child) [][][]resolver.Endpoint {
	switch cfg := c.Config.(type) {
	case *policy.ClusterImplConfig:
		return prioritiesOf(cfg.Child)
	case *policy.PriorityConfig:
		out := make([][][]resolver.Endpoint, len(cfg.Children))
		for p := range cfg.Children {
			out[p] = partsOf(cfg.Children[p].Child)
		}
		return out
	default:
		return [][][]resolver.Endpoint{partsOf(c)}
	}
}

// partsOf returns the endpoints of one priority, by locality if its policy has
// localities.
func partsOf(c policy.Child) [][]resolver.Endpoint {
	cfg, ok := c.Config.(*policy.WRRLocalityConfig)
	if !ok {
		return [][]resolver.Endpoint{c.Endpoints}
	}
	out := make([][]resolver.Endpoint, len(cfg.Localities))
	for i, l := range cfg.Localities {
		out[i] = l.Endpoints
	}
	return out
}
