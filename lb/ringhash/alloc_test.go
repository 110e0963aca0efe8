//go:build !race

package ringhash_test

import (
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
)

// TestAllocPick: a pick allocates nothing, whether it is answered or waits. The
// race detector allocates by itself, so this runs without it.
func TestAllocPick(t *testing.T) {
	waiting := newStage(t, config("a", "b"), pick("a", "queue"))
	tests := []struct {
		name   string
		picker balancer.Picker
		call   policy.Call
		want   error
	}{
		{"hash", thousand(t), policy.Call{HasHash: true}, nil},
		{"draw", thousand(t), policy.Call{}, nil},
		{"exclude", thousand(t), policy.Call{HasHash: true, Exclude: []string{"e1", "e2"}}, nil},
		{"queue", waiting.tree.Picker(), policy.Call{Hash: fallsOn("a"), HasHash: true}, balancer.ErrNoSubConnAvailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			call := &tt.call
			call.Context = t.Context()
			if got := testing.AllocsPerRun(1000, func() {
				if tt.want == nil {
					call.Hash += 0x9e3779b97f4a7c15
				}
				if _, err := tt.picker.Pick(balancer.PickInfo{Ctx: call}); err != tt.want { //nolint:errorlint // a picker returns it bare
					t.Fatal(err)
				}
			}); got != 0 {
				t.Errorf("%v allocations for each pick, want 0", got)
			}
		})
	}
}
