package decode_test

import (
	"testing"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// envoyFile is the file of Envoy's documentation of file-based EDS.
const envoyFile = `
version_info: "0"
resources:
- "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: example_proxy_cluster
  endpoints:
  - lb_endpoints:
    - endpoint:
        address:
          socket_address:
            address: service1
            port_value: 8080
    - endpoint:
        address:
          socket_address:
            address: 10.0.0.2
            port_value: 8080
`

func TestEnvoyFileDecodesByHand(t *testing.T) {
	d := accept(t, decode.Assignment, envoyFile, decode.Options{Format: decode.FormatYAML})
	a := d.Value
	if a.Name != "example_proxy_cluster" || len(a.Localities) != 1 {
		t.Fatalf("assignment = %+v", a)
	}
	l := a.Localities[0]
	if (l.ID != resource.Locality{}) || l.Weight != 2 || l.Priority != 0 {
		t.Errorf("locality = %+v, want the empty one of weight 2 in priority 0", l)
	}
	if got := []string{l.Endpoints[0].Addresses[0], l.Endpoints[1].Addresses[0]}; got[0] != "service1:8080" || got[1] != "10.0.0.2:8080" {
		t.Errorf("addresses = %q", got)
	}
	var fields []string
	for _, w := range d.Notes {
		fields = append(fields, w.Field)
		if w.Resource != "ClusterLoadAssignment/example_proxy_cluster" {
			t.Errorf("note of %q", w.Resource)
		}
	}
	if len(d.Warnings) != 0 || len(fields) != 2 || fields[0] != "endpoints" || fields[1] != "endpoints[0].locality" {
		t.Errorf("notes of fields %q, warnings %v", fields, d.Warnings)
	}
}
