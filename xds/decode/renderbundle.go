package decode

import (
	"fmt"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Rendered is one resource of RenderBundle.
type Rendered struct {
	Type resource.Type
	Raw  []byte // as [Decoded] has it
}

// RenderBundle writes resources as a DiscoveryResponse, which [All]
// reads, in a format. Equal resources give equal text.
func RenderBundle(version string, resources []Rendered, f Format) ([]byte, error) {
	m := &discoveryv3.DiscoveryResponse{VersionInfo: version}
	for _, r := range resources {
		m.Resources = append(m.Resources, &anypb.Any{TypeUrl: r.Type.URL(), Value: r.Raw})
	}
	if f == FormatProtobuf {
		raw, err := canonical.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("render %d resources: %w", len(resources), err)
		}
		return raw, nil
	}
	return renderText(m, f, fmt.Sprintf("%d resources", len(resources)))
}
