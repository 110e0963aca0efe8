//go:build !race

package lb_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
)

// TestAllocConformance: no endpoint policy allocates in a pick, whether it is held,
// whether an endpoint is excluded, and whether it waits. The race detector allocates
// by itself, so this runs without it.
func TestAllocConformance(t *testing.T) {
	for name, builder := range endpointPolicies() {
		for _, hangs := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/hangs=%t", name, hangs), func(t *testing.T) {
				tr := newTrial(t, name, builder)
				tr.hangs = hangs
				tr.config("a b c")
				_, _ = tr.pick(new(policy.Call)) // connects the endpoints of lazy policies
				tr.settle()
				for _, call := range []*policy.Call{{}, {Hold: true}, {Exclude: []string{"b"}}, {HasHash: true, Exclude: []string{"a", "b", "c"}}} {
					call.Context = t.Context()
					picker := tr.tree.Picker()
					if got := testing.AllocsPerRun(1000, func() {
						call.Hash += 0x9e3779b97f4a7c15
						if _, err := picker.Pick(balancer.PickInfo{Ctx: call}); err == nil {
							call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
						}
						call.Again()
					}); got != 0 {
						t.Errorf("%v allocations for each pick of %+v, want 0", got, call)
					}
				}
			})
		}
	}
}
