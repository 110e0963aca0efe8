package outlierdetection

import (
	"iter"

	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
)

// Describe describes the child. What is ejected says so by its last error.
func (b *outlierDetection) Describe() policy.Node {
	child := b.child.Describe()
	return policy.Node{Policy: policy.OutlierDetection, State: b.state.ConnectivityState, Err: child.Err, Child: &child}
}

// Summarize is the child's, with the ejected endpoints told from others that
// failed.
func (b *outlierDetection) Summarize() policy.Summary {
	sum := b.child.Summarize()
	if b.ejected == 0 {
		return sum
	}
	if len(sum.Priorities) == 0 {
		sum.Census = sum.Census.Eject(b.ejected)
		return sum
	}
	if b.ejectedIn == nil {
		b.ejectedIn = b.countEjected()
	}
	for p := range min(len(b.ejectedIn), len(sum.Priorities)) {
		sum.Priorities[p] = sum.Priorities[p].Eject(b.ejectedIn[p])
	}
	return sum
}

// countEjected counts the ejected endpoints by priority.
func (b *outlierDetection) countEjected() []int {
	priorities := prioritiesOf(b.config.Child)
	out := make([]int, len(priorities))
	for p := range priorities {
		for re := range endpointsOf(priorities[p].Child) {
			e := b.byAddresses[key(policy.EndpointOf(re).Addresses)]
			if e != nil && e.ejection.Load() != nil {
				out[p]++
			}
		}
	}
	return out
}

// prioritiesOf returns the priorities below c.
func prioritiesOf(c policy.Child) []policy.PriorityChild {
	switch cfg := c.Config.(type) {
	case *policy.ClusterImplConfig:
		return prioritiesOf(cfg.Child)
	case *policy.PriorityConfig:
		return cfg.Children
	default:
		return nil
	}
}

// endpointsOf returns the endpoints of one priority.
func endpointsOf(c policy.Child) iter.Seq[resolver.Endpoint] {
	return func(yield func(resolver.Endpoint) bool) {
		cfg, ok := c.Config.(*policy.WRRLocalityConfig)
		if !ok {
			for _, e := range c.Endpoints {
				if !yield(e) {
					return
				}
			}
			return
		}
		for _, l := range cfg.Localities {
			for _, e := range l.Endpoints {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// endpointPolicy names the policy that picks the endpoint below c.
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
