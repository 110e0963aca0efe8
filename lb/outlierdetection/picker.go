package outlierdetection

import (
	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
)

// picker lets the child pick, replaces the SubConn by the tree's and, while detecting,
// counts how the request ends.
type picker struct {
	child   balancer.Picker
	failure error
}

func newPicker(child balancer.State) balancer.Picker {
	return &picker{child: child.Picker, failure: policy.FailureOf(child)}
}

func (p *picker) Failure() error { return p.failure }

// Pick lets the child pick. The end of a pick counts if it holds.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	res, err := p.child.Pick(info)
	if err != nil {
		return res, err
	}
	sc, ok := res.SubConn.(*subConn)
	if !ok { // grpc's contract allows a policy below to make its own
		return res, nil
	}
	res.SubConn = sc.SubConn
	if counts := sc.endpoint.Load(); counts != nil {
		if call := policy.CallOf(info.Ctx); call.Hold {
			call.OnFinish(counts)
		}
	}
	return res, nil
}
