package decode_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// bodies has a resource of each type.
var bodies = map[resource.Type]string{
	resource.TypeListener:   api(`"route_config":{"virtual_hosts":[`+virtualHost(acting(`"cluster":"a"`))+`]}`, filters(filter(fault), routed)),
	resource.TypeRoutes:     routes(matching(`"path":"/a"`), acting(`"weighted_clusters":{"clusters":[{"name":"a","weight":1},{"name":"b","weight":2}]}`)),
	resource.TypeCluster:    eds(),
	resource.TypeAssignment: `{"cluster_name":"a","endpoints":[` + locality("z", 0, 1, endpoint("h", 80)) + `]}`,
}

var fourTypes = []resource.Type{resource.TypeListener, resource.TypeRoutes, resource.TypeCluster, resource.TypeAssignment}

func TestBundlesHoldFourTypes(t *testing.T) {
	var list []string
	var want []resource.Item
	for i, typ := range fourTypes {
		list = append(list, typed(typ.URL(), bodies[typ]))
		it := accept(t, typ, bodies[typ], decode.Options{}).Item
		it.Field = fmt.Sprintf("resources[%d]", i)
		want = append(want, it)
	}
	b, err := decode.All([]byte(bundle(list...)), decode.Options{})
	if err != nil || !reflect.DeepEqual(b.Items, want) {
		t.Fatalf("%+v, %v, want %+v", b, err, want)
	}
	for _, f := range formats {
		parts, err := decode.RenderBundle("7", want, f, nil)
		noError(t, err)
		b, err := decode.All(slices.Concat(parts...), decode.Options{Format: f})
		if err != nil || b.Version != "7" || !reflect.DeepEqual(b.Items, want) {
			t.Errorf("%s: %+v, %v, want %+v", f, b, err, want)
		}
	}
}

// The parts of a bundle are the text of the whole.
func TestBundleIsRenderedInParts(t *testing.T) {
	whole := &discoveryv3.DiscoveryResponse{VersionInfo: "7"}
	var items []resource.Item
	for i := range len(fourTypes) + 1 {
		compact, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(whole)
		noError(t, err)
		var indented bytes.Buffer
		noError(t, json.Indent(&indented, compact, "", "  "))
		yaml, err := text.ToYAML(compact)
		noError(t, err)
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(whole)
		noError(t, err)
		for f, want := range map[decode.Format]string{decode.FormatJSON: indented.String() + "\n", decode.FormatYAML: string(yaml), decode.FormatProtobuf: string(raw)} {
			parts, err := decode.RenderBundle("7", items, f, nil)
			if got := string(slices.Concat(parts...)); err != nil || got != want {
				t.Errorf("%d resources as %s: %s, %v; want %s", i, f, got, err, want)
			}
		}
		if i < len(fourTypes) {
			item := accept(t, fourTypes[i], bodies[fourTypes[i]], decode.Options{}).Item
			items = append(items, item)
			whole.Resources = append(whole.Resources, &anypb.Any{TypeUrl: item.Key.Type.URL(), Value: item.Raw})
		}
	}
}

func TestTypeIsDetectedByFields(t *testing.T) {
	for _, typ := range fourTypes {
		want := accept(t, typ, bodies[typ], decode.Options{}).Item
		for _, f := range formats {
			body, err := decode.Render(typ, want.Raw, f)
			noError(t, err)
			b, err := decode.All(body, decode.Options{Format: f, Bare: true})
			if err != nil || !reflect.DeepEqual(b.Items, []resource.Item{want}) {
				t.Errorf("%s as %s: %+v, %v", typ, f, b, err)
			}
		}
	}
}

// Read as a virtual host, a locality without weight has a name that is no text.
func TestALocalityIsNoVirtualHost(t *testing.T) {
	d := accept(t, resource.TypeAssignment, `{"cluster_name":"a","endpoints":[{"locality":{"region":"us"},"lb_endpoints":[`+endpoint("h", 80)+`]}]}`, decode.Options{})
	b, err := decode.All(d.Raw, decode.Options{Format: decode.FormatProtobuf, Bare: true})
	if err != nil || b.Items[0].Assignment == nil {
		t.Errorf("%+v, %v", b, err)
	}
}

// A fault within a listener's own routes stands where it is written.
func TestFaultsOfInlineRoutesAreLocated(t *testing.T) {
	listener := api(filters(routed), `"route_config":`+routes(acting(`"weighted_clusters":{"clusters":[{"name":"a","weight":1},{"name":"","weight":2}]}`)))
	body := []byte(strings.ReplaceAll(bundle(typed(clusterType, eds()), typed(listenerType, listener)), `{"name":"","weight"`, "\n"+`{"name":"","weight"`))
	_, err := decode.All(body, decode.Options{})
	const field = "resources[1].api_listener.api_listener.route_config.virtual_hosts[0].routes[0].route.weighted_clusters.clusters[1].name"
	if got := broken(t, err); len(got) != 1 || got[0] != "Listener/l | "+field+" | is empty" {
		t.Errorf("%q", got)
	}
	if line, column := text.LocateJSON(body).Find(field); line != 2 || column != 2 {
		t.Errorf("at %d:%d", line, column)
	}
}

func wrap(t *testing.T, name string, a *anypb.Any) *anypb.Any {
	t.Helper()
	value, err := proto.Marshal(&discoveryv3.Resource{Name: name, Resource: a})
	noError(t, err)
	return &anypb.Any{TypeUrl: wrapperType, Value: value}
}

func TestOneResourceOfAResponse(t *testing.T) {
	o := decode.Options{Origin: decode.FromServer}
	for _, typ := range fourTypes {
		want := accept(t, typ, bodies[typ], decode.Options{}).Item
		bare := &anypb.Any{TypeUrl: want.Key.Type.URL(), Value: want.Raw}
		for name, carried := range map[string]*anypb.Any{"bare": bare, "wrapped": wrap(t, "", bare), "wrapped by name": wrap(t, "other", bare)} {
			got, err := decode.Resource(want.Key.Type, carried, o)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %s: %+v, %v", want.Key, name, got, err)
			}
		}
	}
}

// TestWhatAResponseMayHoldInstead: the name is reported wherever it can be read.
func TestWhatAResponseMayHoldInstead(t *testing.T) {
	named := func(name string, more ...byte) []byte {
		return append(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name), more...)
	}
	of := func(url string, value []byte) *anypb.Any { return &anypb.Any{TypeUrl: url, Value: value} }
	long := strings.Repeat("n", decode.MaxNameBytes+1)
	noPath := named("r", 0x12, 4, 0x1a, 2, 0x0a, 0) // a virtual host with a route whose match is empty
	for name, c := range map[string]struct {
		any  *anypb.Any
		key  string
		says string
	}{
		"nothing":               {&anypb.Any{}, "", `@type: is "", where a RouteConfiguration is wanted`},
		"no Any":                {nil, "", `@type: is "", where a RouteConfiguration is wanted`},
		"another type":          {of(clusterType, named("c")), "", `@type: is "` + clusterType + `", where a RouteConfiguration is wanted`},
		"another type, wrapped": {wrap(t, "w", of(clusterType, named("c"))), "w", "where a RouteConfiguration is wanted"},
		"a broken wrapper":      {of(wrapperType, []byte{0xff}), "", "cut short"},
		"a wrapper in another":  {wrap(t, "w", wrap(t, "w", of(routesType, named("r")))), "w", "where a RouteConfiguration is wanted"},
		"no name":               {of(routesType, nil), "", "name: is empty"},
		"no name, but wrapped":  {wrap(t, "w", of(routesType, nil)), "w", "name: is empty"},
		"a rule is broken":      {of(routesType, noPath), "r", "has no path"},
		"cut short":             {of(routesType, named("r", 0x12, 9)), "r", "virtual_hosts[0]: the message is cut short"},
		"cut short, wrapped":    {wrap(t, "w", of(routesType, []byte{0x12, 9})), "w", "virtual_hosts[0]: the message is cut short"},
		"no UTF-8":              {of(routesType, named("\xff")), "", "UTF-8"},
		"a name over all limits is a server's right, the rest is not": {of(routesType, append(named(long), noPath[3:]...)), long, "has no path"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decode.Resource(resource.TypeRoutes, c.any, decode.Options{Origin: decode.FromServer})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("err = %v, want %q", err, c.says)
			}
			if want := (resource.Item{Key: resource.Key{Type: resource.TypeRoutes, Name: c.key}}); !reflect.DeepEqual(got, want) {
				t.Errorf("item %+v, want %+v", got, want)
			}
			var invalid *decode.InvalidError
			var syntax *decode.SyntaxError
			if !errors.As(err, &invalid) && !errors.As(err, &syntax) {
				t.Errorf("a %T", err)
			}
		})
	}
}
