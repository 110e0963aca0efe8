//go:build !race

package leastrequest_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
)

// TestAllocPick: a pick allocates nothing. The race detector allocates by itself,
// so this runs without it.
func TestAllocPick(t *testing.T) {
	p := hundred(t)
	for _, hold := range []bool{false, true} {
		for _, exclude := range [][]string{nil, {"e1", "e2"}} {
			t.Run(fmt.Sprintf("hold=%t,exclude=%v", hold, exclude), func(t *testing.T) {
				call := &policy.Call{Context: t.Context(), Hold: hold, Exclude: exclude}
				if got := testing.AllocsPerRun(1000, func() {
					if _, err := p.Pick(balancer.PickInfo{Ctx: call}); err != nil {
						t.Fatal(err)
					}
					call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
					call.Again()
				}); got != 0 {
					t.Errorf("%v allocations for each pick, want 0", got)
				}
			})
		}
	}
}
