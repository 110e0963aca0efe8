package clusterimpl_test

import (
	"testing"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/test/lbtest"
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
	const (
		noShare   = "this replica has no share, because it has no connection to the store of the fleet"
		shareUsed = "this replica has used its share, and gets more from the other replicas, which do not need all of theirs"
		limitUsed = "the replicas use all of it"
	)
	tests := []struct {
		name  string
		share uint32
		state policy.ShareState
		want  string // why it is refused; empty for not
	}{
		{"no share yet", 0, policy.ShareState{}, noShare},
		{"a share", 1, policy.ShareState{Joined: true}, ""},
		{"which is used", 1, policy.ShareState{Joined: true}, limitUsed},
		{"others do not use theirs", 1, policy.ShareState{Joined: true, Spare: 1}, shareUsed},
		{"a larger one", 2, policy.ShareState{Joined: true}, ""},
		{"a smaller one", 1, policy.ShareState{Joined: true}, limitUsed},
		{"one above the limit", 9, policy.ShareState{Joined: true}, ""},
		{"and the limit", 9, policy.ShareState{Joined: true}, limitUsed},
	}
	for _, tt := range tests {
		shared.Set(tt.share, time.Minute, time.Hour)
		shared.Describe(tt.state)
		err := hold(tree)
		if (err == nil) != (tt.want == "") {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err != nil {
			if want := "max requests 3 of the fleet exceeded on service orders: " + tt.want; refusal(t, err).Error() != want {
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
