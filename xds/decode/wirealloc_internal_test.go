//go:build !race

package decode

import (
	"testing"

	"github.com/lbd-dev/lbd/xds/resource"
)

// TestAllocOnePass: endpoints are allocated in batches, and those of the previous version
// are not allocated.
func TestAllocOnePass(t *testing.T) {
	const endpoints, batches = 10_000, 100 * 4
	before, after := largeAssignment(100, 100, 1), largeAssignment(100, 100, 2)
	o := Options{Format: FormatProtobuf}
	decode := func(o Options) func() {
		return func() {
			if _, err := One(resource.TypeAssignment, after, o); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := testing.AllocsPerRun(5, decode(o)); n > 6*batches {
		t.Errorf("%d endpoints take %v allocations", endpoints, n)
	}
	o.Previous = previousOf(t, before)
	if n := testing.AllocsPerRun(5, decode(o)); n > 3*100 {
		t.Errorf("%d endpoints, all but one as before, take %v allocations", endpoints, n)
	}
}
