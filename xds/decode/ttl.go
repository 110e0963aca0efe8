package decode

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// Limits of the ttl of a registered endpoint.
const (
	MinTTL = time.Second
	MaxTTL = time.Hour
)

// parseTTL reads metadata lbd.ttl.
func parseTTL(text string) (time.Duration, bool) {
	d, err := time.ParseDuration(text)
	return d, err == nil && validTTL(d)
}

func validTTL(d time.Duration) bool {
	return d >= MinTTL && d <= MaxTTL && d%time.Millisecond == 0
}

// ttl validates metadata lbd.ttl of an endpoint; 0 if it is absent. Endpoints of a management server
// have none.
func (v *assignmentValidator) ttl(at place, own map[string]*structpb.Value) time.Duration {
	if !v.byHand {
		return 0
	}
	const field = `.metadata.filter_metadata["lbd"].`
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if name != "ttl" {
			v.warn(at.String()+field+name, "has no effect: known is ttl")
		}
	}
	value, ok := own["ttl"]
	if !ok {
		return 0
	}
	d, ok := parseTTL(value.GetStringValue())
	if !ok {
		v.reject(at.String()+field+"ttl", "must be a duration from %v to %v in whole milliseconds, such as 30s", MinTTL, MaxTTL)
		return 0
	}
	return d
}

// setTTL sets metadata lbd.ttl of an endpoint; 0 removes it.
func setTTL(e *endpointv3.LbEndpoint, ttl time.Duration) error {
	own := e.GetMetadata().GetFilterMetadata()["lbd"]
	switch {
	case ttl == 0:
		delete(own.GetFields(), "ttl")
		if own != nil && len(own.GetFields()) == 0 {
			delete(e.GetMetadata().GetFilterMetadata(), "lbd")
		}
		if m := e.GetMetadata(); m != nil && len(m.GetFilterMetadata())+len(m.GetTypedFilterMetadata()) == 0 {
			e.Metadata = nil
		}
		return nil
	case !validTTL(ttl):
		return &EndpointError{"ttl", fmt.Sprintf("%v is not from %v to %v in whole milliseconds", ttl, MinTTL, MaxTTL)}
	}
	fields := map[string]*structpb.Value{}
	maps.Copy(fields, own.GetFields())
	fields["ttl"] = structpb.NewStringValue(ttl.String())
	proto.Merge(e, &endpointv3.LbEndpoint{Metadata: &corev3.Metadata{
		FilterMetadata: map[string]*structpb.Struct{"lbd": {Fields: fields}}, // an entry replaces the one before
	}})
	return nil
}
