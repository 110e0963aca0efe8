//go:build !race

package outlierdetection_test

import (
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
)

// TestAllocPick: counting allocates nothing. The race detector allocates by
// itself, so this runs without it.
func TestAllocPick(t *testing.T) {
	play(t, detect(percentage(3, 3)), endpoints("a b c"), func(s *stage) {
		picker := s.tree.Picker()
		for _, hold := range []bool{false, true} {
			call := &policy.Call{Context: t.Context(), Hold: hold}
			got := testing.AllocsPerRun(1000, func() {
				if _, err := picker.Pick(balancer.PickInfo{Ctx: call}); err != nil {
					t.Fatal(err)
				}
				call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
				call.Again()
			})
			if got != 0 {
				t.Errorf("hold %t: %v allocations for each pick, want 0", hold, got)
			}
		}
	})
}
