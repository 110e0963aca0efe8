package decode_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

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
