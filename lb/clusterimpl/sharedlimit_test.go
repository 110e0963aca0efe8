package clusterimpl_test

import (
	"testing"
	"time"

	"github.com/lbd-dev/lbd/lb/lbtest"
	"github.com/lbd-dev/lbd/lb/policy"
)

// TestFleetLimit: the share of this process is the limit of a cluster with a limit of the fleet, if the process
// belongs to one, at once.
func TestFleetLimit(t *testing.T) {
	ofFleet := func(c *policy.ClusterImplConfig) { c.FleetLimit = true }
	counters := policy.NewCounters()
	tree := up(newTree(t, counters, limit(2), ofFleet))
	if err := hold(tree); err != nil {
		t.Fatalf("a process without a fleet: %v", err)
	}

	counters = policy.NewCounters()
	counters.JoinFleet()
	tree = up(newTree(t, counters, limit(3), ofFleet))
	shared := counters.Get(service).SharedLimit()
	tests := []struct {
		name  string
		share uint32
		want  bool
	}{
		{"no share yet", 0, false},
		{"a share", 1, true},
		{"which is used", 1, false},
		{"a larger one", 2, true},
		{"a smaller one", 1, false},
		{"one above the limit", 9, true},
		{"and the limit", 9, false},
	}
	for _, tt := range tests {
		shared.Set(tt.share, time.Minute, time.Hour)
		err := hold(tree)
		if (err == nil) != tt.want {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err != nil {
			if want := "max requests 3 of the fleet exceeded on service orders: this replica has used its share"; refusal(t, err).Error() != want {
				t.Errorf("%s: %q", tt.name, err)
			}
		}
	}
	call := &policy.Call{Hold: true}
	tree.Config(config(limit(9), ofFleet))
	if _, err := tree.Pick(call); err != nil {
		t.Fatal(err)
	}
	held := call.Held()
	if held.Shared() != shared {
		t.Error("the pick holds no request of the fleet's limit")
	}
	tree.Config(config(limit(9)))
	shared.Set(0, 0, 0)
	if err := hold(tree); err != nil || held.Shared() != nil {
		t.Errorf("a limit of this process: %v", err)
	}
}

func hold(tree *lbtest.Tree) error {
	_, err := tree.Pick(&policy.Call{Hold: true})
	return err
}
