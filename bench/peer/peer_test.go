package peer_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/bench/peer"
)

func TestLeanLease(t *testing.T) {
	l := peer.NewLean(3)
	seen := make(map[peer.LeanLease]bool)
	for range 100 {
		address, id, err := l.Lease(time.Minute)
		if err != nil {
			continue // one in a million is dropped
		}
		if address == "" || seen[id] {
			t.Fatalf("lease %v of %q", id, address)
		}
		seen[id] = true
		if err := l.End(id); err != nil {
			t.Fatal(err)
		}
		if err := l.End(id); err == nil {
			t.Fatal("a lease ended twice")
		}
	}
}

func TestLeanPickTakesTurns(t *testing.T) {
	l := peer.NewLean(4)
	counts := make(map[string]int)
	for range 400 {
		if address, err := l.Pick(); err == nil {
			counts[address]++
		}
	}
	for address, n := range counts {
		if n < 99 || n > 101 {
			t.Errorf("%s has %d of 400 picks", address, n)
		}
	}
	if len(counts) != 4 {
		t.Errorf("%d addresses", len(counts))
	}
}

// TestAssignmentAddressesDiffer: endpoints with equal addresses would be one.
func TestAssignmentAddressesDiffer(t *testing.T) {
	seen := make(map[string]bool)
	for _, l := range peer.Assignment(300, 300).GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			text, err := proto.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			if seen[string(text)] {
				t.Fatalf("%v is there twice", e)
			}
			seen[string(text)] = true
		}
	}
}

func TestFindPrograms(t *testing.T) {
	t.Setenv("PATH", "")
	if got := peer.FindPrograms(t.TempDir()).Missing(); len(got) != 3 {
		t.Errorf("missing: %v", got)
	}
}
