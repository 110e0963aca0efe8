package decode

import (
	"fmt"
	"syscall"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// benchmark reports the CPU time of do: other load on the machine hardly changes it.
func benchmark(b *testing.B, do func(i int) error) {
	used := func() float64 {
		var u syscall.Rusage
		noError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return float64(u.Utime.Nano() + u.Stime.Nano())
	}
	b.ReportAllocs()
	begin := used()
	for i := 0; b.Loop(); i++ {
		noError(b, do(i))
	}
	b.ReportMetric((used()-begin)/float64(b.N), "cpu-ns/op")
}

// BenchmarkTexts compares texts of 10,000 endpoints, of which one has changed, with protobuf, and with
// protojson.Unmarshal, which does a part of the work.
func BenchmarkTexts(b *testing.B) {
	var raws, jsons, yamls, lists [2][]byte
	for i := range raws {
		raws[i] = largeAssignment(100, 100, uint32(1+i))
		jsons[i] = asJSON(b, raws[i], 0)
		var err error
		yamls[i], err = text.ToYAML(asJSON(b, raws[i], 1))
		noError(b, err)
		lists[i] = largeList(100, 100, 1+i)
	}
	b.Run("protojson.Unmarshal", func(b *testing.B) {
		benchmark(b, func(i int) error { return protojson.Unmarshal(jsons[i%2], &endpointv3.ClusterLoadAssignment{}) })
	})
	for _, c := range []struct {
		bodies [2][]byte
		o      Options
	}{
		{raws, Options{Format: FormatProtobuf}},
		{jsons, Options{Format: FormatJSON}},
		{jsons, Options{Format: FormatJSON, reflective: true}},
		{yamls, Options{Format: FormatYAML}},
		{lists, Options{Format: FormatText}},
	} {
		c.o.Name = "orders"
		before, err := One(resource.TypeAssignment, c.bodies[0], c.o)
		noError(b, err)
		c.o.Previous = func(resource.Key) resource.Item { return before.Item }
		name := c.o.Format.String()
		if c.o.reflective {
			name += ", reflective"
		}
		b.Run(name, func(b *testing.B) {
			benchmark(b, func(i int) error {
				_, err := One(resource.TypeAssignment, c.bodies[i%2], c.o)
				return err
			})
		})
	}
}

// largeList is largeAssignment as a list.
func largeList(localities, each, port int) (body []byte) {
	for i := range localities {
		for k := range each {
			body = fmt.Appendf(body, "10.%d.%d.%d:%d region/zone-%d\n", i, k>>8, k&255, port, i)
			port = 8080
		}
	}
	return body
}
