package ledger

import (
	"fmt"
	"testing"

	"github.com/lbd-dev/lbd/service/ledger/ledgertest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestPlacesOfAnAggregate: its priorities are those of its leaves in a row, each
// leaf one at least.
func TestPlacesOfAnAggregate(t *testing.T) {
	two := ledgertest.Assignment("b", resource.Locality{Zone: "b0"}, resource.Locality{Zone: "b1"})
	two.Localities[1].Priority = 1
	config := &resource.Config{Clusters: map[string]*resource.ClusterConfig{
		"all": {Leaves: []string{"empty", "b", "c"}}, "empty": {},
		"b": {Assignment: two}, "c": {Assignment: ledgertest.Assignment("c", resource.Locality{Zone: "c0"})},
	}}
	var got []string
	for priority, l := range (&Cluster{Record: &Record{Name: "all"}, Config: config}).Localities() {
		got = append(got, fmt.Sprint(priority, " ", l.ID.Zone))
	}
	if want := "[1 b0 2 b1 3 c0]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
