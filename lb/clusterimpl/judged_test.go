package clusterimpl_test

import (
	"testing"

	"github.com/lbd-dev/lbd/lb/lbtest"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestJudged: every pick that draws against the drop categories is judged once, and
// no other.
func TestJudged(t *testing.T) {
	half := func(c *policy.ClusterImplConfig) {
		c.Drops, c.MaxRequests = []resource.Drop{{Category: "half", PerMillion: 500_000}}, 1
	}
	tests := []struct {
		name   string
		before func(*lbtest.Tree)
		call   *policy.Call
		draw   uint64
		want   uint64
	}{
		{"answered", nil, &policy.Call{}, never, 1},
		{"held", nil, &policy.Call{Hold: true}, never, 1},
		{"dropped", nil, &policy.Call{}, always, 1},
		{"refused by the breaker", func(tree *lbtest.Tree) { tree.Counters.Get(service).Breaker.TryAcquire(1) }, &policy.Call{}, never, 1},
		{"all excluded", nil, &policy.Call{Exclude: []string{"a", "b"}}, never, 1},
		{"lost since", func(tree *lbtest.Tree) {
			tree.SubConns[0].State, tree.SubConns[1].State = connecting, connecting
		}, &policy.Call{}, never, 1},
		{"of a child that is not READY", func(tree *lbtest.Tree) {
			tree.Batch(func() { tree.SubConns[0].Says(failure, nil); tree.SubConns[1].Says(failure, nil) })
		}, &policy.Call{}, always, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := newTree(t, nil, half)
			tree.Draw = lbtest.Draws(0, tt.draw) // the first is round_robin's start
			up(tree)
			if tt.before != nil {
				tt.before(tree)
			}
			_, _ = tree.Pick(tt.call)
			if got := tree.Counters.Get(service).Judged(); got != tt.want {
				t.Errorf("%d are judged, want %d", got, tt.want)
			}
			tt.call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
		})
	}
}
