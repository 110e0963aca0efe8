package outlierdetection

import "github.com/lbd-dev/lbd/lb/policy"

// Describe describes the child, and is not seen itself where it is not configured.
// What is ejected says so by its last error.
func (b *outlierDetection) Describe() policy.Node {
	child := b.child.Describe()
	if b.config != nil && b.config.OutlierDetection == nil {
		return child
	}
	return policy.Node{Policy: policy.OutlierDetection, State: b.state.ConnectivityState, Err: child.Err, Child: &child}
}

// Summarize is the child's, with the ejected endpoints told from others that
// failed. One without a SubConn that hears of it is what the child takes it for.
func (b *outlierDetection) Summarize() policy.Summary {
	sum := b.child.Summarize()
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
