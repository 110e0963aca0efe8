//go:build !race

package pickfirst_test

import (
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
)

// TestAllocPick: a pick allocates nothing. The race detector allocates by itself,
// so this runs without it.
func TestAllocPick(t *testing.T) {
	s := newStage(t, config("a", "b"), says("a", connecting, ready))
	for _, exclude := range [][]string{nil, {"a"}, {"b"}} {
		call := &policy.Call{Context: t.Context(), Exclude: exclude}
		p := s.tree.Picker()
		if got := testing.AllocsPerRun(1000, func() { _, _ = p.Pick(balancer.PickInfo{Ctx: call}) }); got != 0 {
			t.Errorf("%v allocations for a pick that excludes %v, want 0", got, exclude)
		}
	}
	says("a", idle)(s)
	pick("queue")(s)
	call := &policy.Call{Context: t.Context()}
	p := s.tree.Reports[len(s.tree.Reports)-2].Picker // IDLE, and asked
	if got := testing.AllocsPerRun(1000, func() { _, _ = p.Pick(balancer.PickInfo{Ctx: call}) }); got != 0 {
		t.Errorf("%v allocations for a pick that waits, want 0", got)
	}
}
