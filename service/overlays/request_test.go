package overlays_test

import (
	"math"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/xds/overlay"
)

// TestNegativeZero: JSON has -0, which is 0.
func TestNegativeZero(t *testing.T) {
	t.Parallel()
	r := overlays.NewOverlay{Kind: "weight", Endpoint: "a:80", Factor: new(math.Copysign(0, -1))}
	o, err := r.At(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if says := overlay.Describe(o); says != "multiplies the weight of endpoint a:80 by 0" {
		t.Error(says)
	}
}
