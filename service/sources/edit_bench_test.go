package sources_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// BenchmarkSetEndpoint changes the weight of one endpoint of n, registered or not, with a store on disk.
func BenchmarkSetEndpoint(b *testing.B) {
	for _, ttl := range []time.Duration{0, time.Hour} {
		for _, n := range []int{625, 2500, 10_000} {
			b.Run(fmt.Sprintf("ttl=%v/n=%d", ttl, n), func(b *testing.B) {
				s, _ := servicetest.Start(b, b.TempDir(), nil)
				var list strings.Builder
				for i := range n {
					fmt.Fprintf(&list, `,{"endpoint":{"address":{"socket_address":{"address":"%s","port_value":8080}}}}`, strings.TrimSuffix(address(i), ":8080"))
				}
				servicetest.Push(b, s, sources.Endpoints, "orders", []byte(`{"endpoints":[{"lb_endpoints":[`+list.String()[1:]+`]}]}`))
				i := 0
				for b.Loop() {
					i++
					weight := uint32(1 + i%1000)
					r := &sources.EndpointRequest{Cluster: "orders", Address: address(i * 7919 % n), Edit: sources.EndpointEdit{Weight: &weight, TTL: &ttl}}
					if _, err := s.Sources.SetEndpoint(b.Context(), r); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func address(i int) string {
	return "10.0." + strconv.Itoa(i/250) + "." + strconv.Itoa(i%250) + ":8080"
}
