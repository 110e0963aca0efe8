package decode_test

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

var fuzzedRoutes = []string{
	routes(matching(`"prefix":"/a"`, `"case_sensitive":false`), acting(`"cluster":"a"`)),
	routes(matching(`"safe_regex":{"regex":"/(a|b)*"}`, `"headers":[{"name":"x","string_match":{"safe_regex":{"regex":"a"}},"invert_match":true},{"name":"y","range_match":{"start":1,"end":3}}]`)),
	routes(matching(`"path":"/a"`, `"headers":[{"name":"X","present_match":true},{"name":"x","prefix_match":"p"},{"name":"x","exact_match":"e"}]`, `"runtime_fraction":{"default_value":{"numerator":7}}`)),
	routes(acting(`"weighted_clusters":{"clusters":[{"name":"a","weight":1},{"name":"b","weight":4294967294}]}`, `"hash_policy":[{"header":{"header_name":"x","regex_rewrite":{"pattern":{"regex":"(a)"},"substitution":"$1"}}},{"filter_state":{"key":"io.grpc.channel_id"},"terminal":true}]`)),
	routes(`{"match":{"prefix":""},"redirect":{}}`, acting(`"cluster":"a"`, `"retry_policy":{"retry_on":"internal","num_retries":2,"retry_back_off":{"base_interval":"1s"}}`)),
	routes(`{"typed_per_filter_config":{"f":`+filter(fault)+`,"r":`+filter(rbacPer)+`},`+acting(`"cluster_header":"x"`)[1:], acting(`"cluster":"a"`)),
	hosts(`{"domains":["a.b","*.b","a.*","*"]}`, `{"domains":["","a*b"]}`),
	plugin(`"is_optional":true,`, filter(cors)),
}

func FuzzDecodeRouteConfiguration(f *testing.F) {
	fuzzDecoder(f, resource.TypeRoutes, func(t *testing.T, _ decode.Origin, i, _ resource.Item) { sound(t, i.Routes) }, fuzzedRoutes...)
}

func FuzzDecodeListener(f *testing.F) {
	bodies := []string{
		api(rds, filters(filter(fault), filter(rbac), routed)), api(rds), port(chains(chain(""))),
		port(chains(chain(match(`"transport_protocol":"raw_buffer","source_ports":[1,2],"prefix_ranges":[{"address_prefix":"10.0.0.0","prefix_len":8}]`)), chain(downstream(`"common_tls_context":{}`)))),
	}
	for _, r := range fuzzedRoutes {
		bodies = append(bodies, api(`"route_config":`+r, filters(routed)))
	}
	fuzzDecoder(f, resource.TypeListener, func(t *testing.T, origin decode.Origin, i, _ resource.Item) {
		l := i.Listener
		if l.Name == "" || (l.RouteName != "") == (l.Routes != nil) && !l.ServerSide || l.ServerSide && (l.Routes != nil || origin == decode.ByHand) {
			t.Fatalf("%+v", l)
		}
		if l.Routes != nil {
			sound(t, l.Routes)
		}
	}, bodies...)
}

// FuzzDecodeResource: whatever a management server sends is a resource or an
// error.
func FuzzDecodeResource(f *testing.F) {
	for i, c := range []string{routes(acting(`"cluster":"a"`)), api(rds, filters(routed)), eds(), envoyFile} {
		f.Add(uint8(i), uint8(i), []byte(c), false)
	}
	f.Fuzz(func(t *testing.T, typ, url uint8, value []byte, wrapped bool) {
		r := &anypb.Any{TypeUrl: fourTypes[url%4].URL(), Value: value}
		if wrapped {
			r.TypeUrl = wrapperType
		}
		it, err := decode.Resource(fourTypes[typ%4], r, decode.Options{Origin: decode.FromServer, Policies: acme})
		if it.Key.Type != fourTypes[typ%4] {
			t.Fatalf("key %v", it.Key)
		}
		if err != nil {
			expected(t, err)
			if it.Raw != nil {
				t.Fatalf("%+v with %v", it, err)
			}
			return
		}
		again, err := decode.Resource(it.Key.Type, &anypb.Any{TypeUrl: it.Key.Type.URL(), Value: it.Raw}, decode.Options{Origin: decode.FromServer, Policies: acme})
		if err != nil || !reflect.DeepEqual(again, it) {
			t.Fatalf("raw of %q: %+v, %v, want %+v", value, again, err, it)
		}
	})
}

// sound asks all that can be asked of routes.
func sound(t *testing.T, c *resource.RouteConfiguration) {
	t.Helper()
	for _, name := range []string{"", "a", "a.b", "orders"} {
		c.VirtualHost(name)
	}
	for _, h := range c.VirtualHosts {
		for _, r := range h.Routes {
			r.Match.Words()
			sum := uint64(0)
			for _, k := range r.Clusters {
				if k.Weight == 0 {
					t.Fatalf("a cluster of weight 0 in %+v", r)
				}
				sum += uint64(k.Weight)
			}
			if sum != r.TotalWeight || (len(r.Clusters) == 0) != (r.Unsupported != "") {
				t.Fatalf("route %+v", r)
			}
		}
		for _, path := range []string{"", "/", "/a", "/package.Service/Method"} {
			for _, trace := range []*resource.RouteTrace{nil, {}} {
				req := &resource.Request{
					Path: path, Draw: rand.Uint64, Trace: trace,
					Headers: []resource.Header{{Name: "x", Value: "a"}, {Name: "y", Value: "2"}, {Name: "x", Value: "A"}},
				}
				r := h.Route(req)
				if r == nil {
					continue
				}
				r.RequestHash(req, 1)
				if name, _, _ := r.Cluster(rand.Uint64()); name == "" && r.Unsupported == "" && r.Clusters[0].Name != "" && len(r.Clusters) == 1 {
					t.Fatalf("no cluster of %+v", r)
				}
			}
		}
	}
}
