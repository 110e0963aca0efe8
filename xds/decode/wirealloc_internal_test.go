//go:build !race

package decode

import (
	"testing"

	"github.com/lbd-dev/lbd/xds/resource"
)

// TestAllocOnePass: endpoints are allocated in batches, and those of the previous version
// are not allocated, whatever the format.
func TestAllocOnePass(t *testing.T) {
	const endpoints, batches = 10_000, 100 * 4
	before, after := largeAssignment(100, 100, 1), largeAssignment(100, 100, 2)
	o := Options{Format: FormatProtobuf}
	decode := func(o Options, body []byte) func() {
		return func() {
			if _, err := One(resource.TypeAssignment, body, o); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := testing.AllocsPerRun(5, decode(o, after)); n > 6*batches {
		t.Errorf("%d endpoints take %v allocations", endpoints, n)
	}
	o.Previous = previousOf(t, before)
	if n := testing.AllocsPerRun(5, decode(o, after)); n > 3*100 {
		t.Errorf("%d endpoints, all but one as before, take %v allocations", endpoints, n)
	}
	o.Format = FormatJSON
	if n := testing.AllocsPerRun(5, decode(o, asJSON(t, after, 0))); n > 10*100 {
		t.Errorf("%d endpoints, all but one as before, take %v allocations as JSON", endpoints, n)
	}
	o.Format, o.Name, o.Previous = FormatText, "orders", nil
	d, err := One(resource.TypeAssignment, largeList(100, 100, 1), o)
	noError(t, err)
	o.Previous = func(resource.Key) resource.Item { return d.Item }
	if n := testing.AllocsPerRun(5, decode(o, largeList(100, 100, 2))); n > 10*100 {
		t.Errorf("%d endpoints, all but one as before, take %v allocations as a list", endpoints, n)
	}
}
