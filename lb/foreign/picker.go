package foreign

import (
	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
)

// maxAsks limits the picks from a policy until one is not excluded: the policy does
// not know exclusions.
const maxAsks = 8

var errAllExcluded = policy.NewRefusal(policy.KindAllExcluded, "", "the policy chose only endpoints that are excluded")

// picker picks from a policy, and replaces its SubConn by the tree's.
type picker struct {
	inner   balancer.Picker
	policy  string
	failure error // what it answered when it was asked; nil unless the policy has failed
}

// Failure is the error of a policy that has failed, if it is known.
func (p *picker) Failure() error { return p.failure }

// Pick repeats picks that are excluded.
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

// unpick ends a pick that is not used.
func unpick(res balancer.PickResult) {
	if res.Done != nil {
		res.Done(balancer.DoneInfo{})
	}
}
