package outlierdetection

import "github.com/lbd-dev/lbd/lb/policy"

// Describe describes the policy with its child; only the child if outlier detection is
// not configured. The last error of an ejected endpoint is its ejection.
func (b *outlierDetection) Describe() policy.Node {
	if b.config != nil && b.config.OutlierDetection == nil {
		return b.Child.Describe()
	}
	return b.Wrapper.Describe()
}

// Summarize is the child's, with failed endpoints that are ejected counted as such.
func (b *outlierDetection) Summarize() policy.Summary {
	sum := b.Child.Summarize()
	for e := range b.ejected {
		switch {
		case !e.fails():
		case len(sum.Priorities) == 0:
			sum.Census = sum.Census.Eject(1)
		case e.priority < len(sum.Priorities):
			sum.Priorities[e.priority] = sum.Priorities[e.priority].Eject(1)
		}
	}
	return sum
}
