// One goroutine puts a thousand overlays.

//go:build !race

package sources_test

import (
	"fmt"
	"testing"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// TestOverlayLimits: the number of overlays is limited, of a cluster and of the store.
func TestOverlayLimits(t *testing.T) {
	if testing.Short() {
		t.Skip("long: puts as many overlays as the limit permits")
	}
	s, _ := servicetest.Start(t, "", nil)
	for i := range overlays.MaxOverlays/overlays.MaxOfCluster + 1 {
		servicetest.Push(t, s, sources.Endpoints, fmt.Sprint("c", i), servicetest.Usable("a", 2))
	}
	put := func(i int, id string) error {
		_, err := s.Sources.PutOverlay(t.Context(), &sources.OverlayRequest{Overlay: overlays.NewOverlay{Kind: "hold_ejections"}, Cluster: fmt.Sprint("c", i), ID: id})
		return err
	}
	for i := range overlays.MaxOverlays / overlays.MaxOfCluster {
		for j := range overlays.MaxOfCluster {
			servicetest.Must(t, put(i, fmt.Sprint(j)))
		}
		if err := put(i, "more"); servicetest.Code(err) != fault.RateLimited {
			t.Fatalf("one more of a cluster: %v", err)
		}
	}
	if err := put(overlays.MaxOverlays/overlays.MaxOfCluster, "more"); servicetest.Code(err) != fault.RateLimited {
		t.Errorf("one more of the store: %v", err)
	}
	servicetest.Must(t, put(0, "0")) // which is there
}
