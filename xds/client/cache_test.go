package client

import (
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// A changed assignment has the endpoints that did not change: they are not decoded again.
func TestChangedAssignmentSharesEndpoints(t *testing.T) {
	runTest(t, "one", func(t *testing.T, w *harness) {
		received := func() *resource.Assignment {
			t.Helper()
			for _, u := range await(t, w.updates, "update") {
				if u.Assignment != nil {
					return u.Assignment
				}
			}
			t.Fatal("no assignment")
			return nil
		}
		w.want(eds, "a")
		s := w.servers["one"].accept()
		s.expect(`node=test ClusterLoadAssignment [a] version="" nonce=""`)
		s.send("1", "n1", pack(assignmentProto("a", 5, 80)))
		before := received().Localities[0].Endpoints
		changed := assignmentProto("a", 5, 80)
		changed.GetEndpoints()[0].GetLbEndpoints()[2].LoadBalancingWeight = wrapperspb.UInt32(7)
		s.send("2", "n2", pack(changed))
		after := received().Localities[0].Endpoints
		for i := range after {
			if same := after[i] == before[i]; same != (i != 2) {
				t.Errorf("endpoint %d is shared: %v", i, same)
			}
		}
	})
}
