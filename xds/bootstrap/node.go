package bootstrap

import (
	"cmp"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

const userAgent = "lbd"

// clientFeatures are those of gRPC's xDS clients: no overprovisioning of endpoints (gRFC A27),
// and resources wrapped in envoy.service.discovery.v3.Resource (gRFC A40).
var clientFeatures = []string{
	"envoy.lb.does_not_support_overprovisioning",
	"xds.config.resource-in-sotw",
}

func (f fields) node(version string) *corev3.Node {
	n := &corev3.Node{
		UserAgentName:        userAgent,
		UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: cmp.Or(version, "unknown")},
		ClientFeatures:       append([]string(nil), clientFeatures...),
	}
	x := f.get("node")
	o, ok := f.object(x, "id", "cluster", "locality", "metadata")
	n.Id, n.Cluster = o.text("id"), o.text("cluster")
	if n.Id == "" && (ok || x.none()) {
		f.warnValue(o.get("id"), "is empty: many management servers identify their clients by it")
	}
	if l, ok := f.object(o.get("locality"), "region", "zone", "sub_zone"); ok {
		region, zone, subZone := l.text("region"), l.text("zone"), l.text("sub_zone")
		if region+zone+subZone != "" {
			n.Locality = &corev3.Locality{Region: region, Zone: zone, SubZone: subZone}
		}
	}
	if data := o.get("metadata"); f.is(data, object) {
		n.Metadata = f.metadata(data).GetStructValue()
	}
	return n
}

func (v *validator) metadata(x *value) *structpb.Value {
	switch x.kind {
	case object:
		s := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(x.members))}
		for _, m := range x.members {
			s.Fields[m.name] = v.metadata(m.value)
		}
		return structpb.NewStructValue(s)
	case list:
		l := &structpb.ListValue{}
		for _, e := range x.elements {
			l.Values = append(l.Values, v.metadata(e))
		}
		return structpb.NewListValue(l)
	case str:
		return structpb.NewStringValue(x.text)
	case number:
		n, err := strconv.ParseFloat(x.text, 64)
		if err != nil {
			v.rejectValue(x, "%s is too large a number", x.text)
		}
		return structpb.NewNumberValue(n)
	case boolean:
		return structpb.NewBoolValue(x.isTrue)
	default:
		return structpb.NewNullValue()
	}
}
