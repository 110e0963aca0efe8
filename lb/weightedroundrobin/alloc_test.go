//go:build !race

package weightedroundrobin_test

import (
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
)

// TestAllocPick: a pick allocates nothing, and neither does its end without a
// load. The race detector allocates by itself, so this runs without it.
func TestAllocPick(t *testing.T) {
	play(t, up("a:5 b:4 c:1"), func(s *stage) {
		picker := s.tree.Picker()
		for _, exclude := range [][]string{nil, {"a"}, {"a", "b", "c"}} {
			for _, hold := range []bool{false, true} {
				call := &policy.Call{Context: t.Context(), Hold: hold, Exclude: exclude}
				got := testing.AllocsPerRun(1000, func() {
					_, err := picker.Pick(balancer.PickInfo{Ctx: call})
					if (err != nil) != (len(exclude) == 3) {
						t.Fatal(err)
					}
					call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
					call.Again()
				})
				if got != 0 {
					t.Errorf("hold %t, excluding %v: %v allocations for each pick, want 0", hold, exclude, got)
				}
			}
		}
	})
}
