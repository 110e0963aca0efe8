package foreign

import (
	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
)

// maxAsks is how often a policy is asked for an endpoint that the pick does not
// exclude: it knows of no exclusion, and can only be asked again.
const maxAsks = 8

var errAllExcluded = policy.NewRefusal(policy.KindAllExcluded, "", "the policy chose only endpoints that are excluded")

// picker asks a foreign picker, and gives the tree's SubConn for its own.
type picker struct {
	inner   balancer.Picker
	policy  string
	failure error // what it answered when it was asked; nil unless the policy has failed
}

// Failure is what picks are answered with, where the policy has failed and has
// said why.
func (p *picker) Failure() error { return p.failure }

// Pick asks the policy, again where it picks what the pick excludes.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	call := policy.CallOf(info.Ctx)
	if call.Trace != nil {
		call.Trace.Steps = append(call.Trace.Steps, policy.OpaqueStep{Policy: p.policy})
	}
	for range maxAsks {
		res, err := p.inner.Pick(info)
		if err != nil {
			return balancer.PickResult{}, err
		}
		sc, ok := res.SubConn.(*subConn)
		if !ok || sc.real.Load() == nil {
			unpick(res)
			return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
		}
		endpoint := sc.endpoint.Load()
		if call.Excludes(endpoint) {
			unpick(res)
			continue
		}
		call.Endpoint = endpoint
		res.SubConn = *sc.real.Load()
		return res, nil
	}
	return balancer.PickResult{}, errAllExcluded
}

// unpick tells the policy that its pick comes to nothing.
func unpick(res balancer.PickResult) {
	if res.Done != nil {
		res.Done(balancer.DoneInfo{})
	}
}
