package acceptance_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	gcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/gcp_authn/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// patience is the maximum time for an answer of grpc-go, on a busy machine.
const patience = time.Minute

// TestAcceptance compares ACCEPTANCE_N resources (10000) of the seed ACCEPTANCE_SEED
// (random by default).
func TestAcceptance(t *testing.T) {
	n := number(t, "ACCEPTANCE_N", 10_000)
	seed := number(t, "ACCEPTANCE_SEED", uint64(time.Now().UnixNano()))
	fmt.Printf("acceptance: ACCEPTANCE_SEED=%d ACCEPTANCE_N=%d\n", seed, n)

	s, err := newServer()
	if err != nil {
		t.Fatal(err)
	}
	defer s.grpc.Stop()
	s.answers = make(chan answer, 1)
	target := s.resolver(t)
	accepted := 0
	for i := range n {
		name := "r" + strconv.FormatUint(i, 10)
		r := &mutation{Rand: rand.New(rand.NewPCG(seed, i)), anys: anys()}
		typ, sent, shown := r.resource(name)
		s.put(name, sent)
		if typ != resource.TypeListener {
			s.put(name, pack(routesTo(name, typ)))
		}
		want := s.ask(t, target, name, typ)
		_, err := decode.Resource(typ, sent, decode.Options{
			Origin: decode.FromServer, Certificates: func(name string) (roots, identity, ok bool) { return true, true, name == "known" },
		})
		if want == "" {
			accepted++
		}
		if (err == nil) != (want == "") {
			t.Errorf("%s %s:\n%s\nlbd: %v\ngrpc-go: %s", typ, name, shown, err, cmp.Or(want, "accepts it"))
		}
	}
	// If all or none were accepted, the test would show nothing.
	t.Logf("%d of %d accepted", accepted, n)
	if n >= 100 && (accepted < int(n)/10 || accepted > int(n)*9/10) {
		t.Errorf("%d of %d accepted: the changes are not useful", accepted, n)
	}
}

// ask sends a resource to grpc-go, and returns why grpc-go rejects it.
func (s *server) ask(t *testing.T, target resolver.Builder, name string, typ resource.Type) string {
	t.Helper()
	cc, err := grpc.NewClient("xds:///"+name, grpc.WithResolvers(target), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	cc.Connect()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case a := <-s.answers:
			if a.name == name && a.url == typ.URL() {
				return a.nack
			}
			if a.nack != "" {
				t.Fatalf("%s: grpc-go rejects the Listener for it: %s", name, a.nack)
			}
		case <-late.C:
			t.Fatalf("%s: grpc-go does not answer", name)
		}
	}
}

func number(t *testing.T, variable string, otherwise uint64) uint64 {
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil || v == 0 {
		t.Fatalf("%s is %q: it must be a positive number", variable, text)
	}
	return v
}

// resource returns a valid resource that was changed once or twice, and its text.
func (r *mutation) resource(name string) (resource.Type, *anypb.Any, string) {
	changed := func(m proto.Message) {
		for range 1 + r.IntN(2) {
			r.change(m.ProtoReflect())
		}
	}
	show := func(ms ...proto.Message) (text string) {
		for _, m := range ms {
			text += prototext.Format(m)
		}
		return text
	}
	switch r.IntN(6) {
	case 0, 1:
		m := goodRoutes(name)
		changed(m)
		m.Name = name
		return resource.TypeRoutes, pack(m), show(m)
	case 2:
		manager := goodManager(name)
		changed(manager)
		l := apiListener(name, manager)
		return resource.TypeListener, pack(l), show(manager, l)
	case 3, 4:
		context := goodDownstream()
		manager := goodManager(name)
		manager.HttpFilters[0] = parse(&managerv3.HttpFilter{}, "%s", filterOf("rbac", "rbac.v3.RBAC"))
		which := r.IntN(3)
		if which == 0 {
			changed(context)
		}
		if which == 1 {
			changed(manager)
		}
		l := goodPort(name, manager, context)
		if which == 2 {
			changed(l)
		}
		l.Name = name
		return resource.TypeListener, pack(l), show(context, manager, l)
	default:
		context := goodUpstream()
		changed(context)
		c := edsCluster(name)
		c.TransportSocket = socket(context)
		if r.IntN(3) == 0 {
			changed(c.GetTransportSocket())
		}
		return resource.TypeCluster, pack(c), show(context, c)
	}
}

func edsCluster(name string) *clusterv3.Cluster {
	return parse(&clusterv3.Cluster{}, `{"name": %q, "type": "EDS", "eds_cluster_config": {"eds_config": {"ads": {}}}}`, name)
}

// parse adds the fields of a JSON object to m.
func parse[M proto.Message](m M, format string, args ...any) M {
	text := fmt.Appendf(nil, format, args...)
	from := m.ProtoReflect().New().Interface()
	if err := (protojson.UnmarshalOptions{AllowPartial: true}).Unmarshal(text, from); err != nil {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
	proto.Merge(m, from)
	return m
}

func apiListener(name string, manager *managerv3.HttpConnectionManager) *listenerv3.Listener {
	return &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: pack(manager)}}
}

// routesTo is a Listener whose routes use a resource of a type and the same name.
func routesTo(name string, typ resource.Type) *listenerv3.Listener {
	manager := parse(&managerv3.HttpConnectionManager{}, `{"http_filters": [%s]}`, filterOf("router", "router.v3.Router"))
	if typ == resource.TypeRoutes {
		parse(manager, `{"rds": {"config_source": {"ads": {}}, "route_config_name": %q}}`, name)
	} else {
		parse(manager, `{"route_config": {"virtual_hosts": [{"domains": ["*"], "routes": [{"match": {"prefix": ""}, "route": {"cluster": %q}}]}]}}`, name)
	}
	return apiListener(name, manager)
}

func goodManager(name string) *managerv3.HttpConnectionManager {
	return parse(&managerv3.HttpConnectionManager{RouteSpecifier: &managerv3.HttpConnectionManager_RouteConfig{RouteConfig: goodRoutes(name)}},
		`{"http_filters": [%s, %s]}`, filterOf("fault", "fault.v3.HTTPFault"), filterOf("router", "router.v3.Router"))
}

func goodRoutes(name string) *routev3.RouteConfiguration {
	return parse(&routev3.RouteConfiguration{}, `{"name": %q, "virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [
		{
			"match": {
				"safe_regex": {"regex": "/a.*"},
				"headers": [{"name": "x", "string_match": {"exact": "v"}}],
				"runtime_fraction": {"default_value": {"numerator": 5}}
			},
			"route": {
				"weighted_clusters": {"clusters": [{"name": "a", "weight": 1}, {"name": "b", "weight": 2}]},
				"hash_policy": [{"header": {"header_name": "x", "regex_rewrite": {"pattern": {"regex": "a"}, "substitution": "b"}}}],
				"retry_policy": {"retry_on": "internal", "num_retries": 2, "retry_back_off": {"base_interval": "1s", "max_interval": "2s"}}
			}
		},
		{"match": {"prefix": ""}, "route": {"cluster": "a"}}
	]}]}`, name)
}

// goodPort is the Listener of a server's port.
func goodPort(name string, manager *managerv3.HttpConnectionManager, context *tlsv3.DownstreamTlsContext) *listenerv3.Listener {
	chain := func(match string) *listenerv3.FilterChain {
		return parse(&listenerv3.FilterChain{
			Filters:         []*listenerv3.Filter{{Name: "m", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(manager)}}},
			TransportSocket: socket(context),
		}, `{"filter_chain_match": %s}`, match)
	}
	return parse(&listenerv3.Listener{FilterChains: []*listenerv3.FilterChain{
		chain(`{"source_ports": [1]}`), chain(`{"source_ports": [2], "prefix_ranges": [{"address_prefix": "10.1.0.0", "prefix_len": 16}]}`),
	}}, `{"name": %q, "address": {"socket_address": {"address": "::"}}}`, name)
}

func socket(context proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(context)}}
}

func goodUpstream() *tlsv3.UpstreamTlsContext {
	return parse(&tlsv3.UpstreamTlsContext{}, `{"common_tls_context": {
		"tls_certificate_provider_instance": {"instance_name": "known"},
		"validation_context": {"ca_certificate_provider_instance": {"instance_name": "known"}, "match_subject_alt_names": [{"prefix": "p"}]}
	}}`)
}

func goodDownstream() *tlsv3.DownstreamTlsContext {
	return parse(&tlsv3.DownstreamTlsContext{}, `{"require_client_certificate": true, "common_tls_context": {
		"tls_certificate_provider_instance": {"instance_name": "known"},
		"validation_context": {"ca_certificate_provider_instance": {"instance_name": "known"}}
	}}`)
}

// anys are the values for an Any.
func anys() []*anypb.Any {
	list := []*anypb.Any{
		{},
		{TypeUrl: "type.googleapis.com/acme.Thing", Value: []byte("x")},
		{TypeUrl: "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault", Value: []byte{0xff}},
		{TypeUrl: "acme.com/envoy.extensions.filters.http.router.v3.Router"},
	}
	filters := []proto.Message{&routerv3.Router{}, &faultv3.HTTPFault{}, &corsv3.CorsPolicy{}, &rbacv3.RBAC{}, &rbacv3.RBACPerRoute{Rbac: &rbacv3.RBAC{}}, &gcpv3.GcpAuthnFilterConfig{}}
	for _, f := range filters {
		list = append(list, pack(f), pack(&routev3.FilterConfig{Config: pack(f)}), pack(&routev3.FilterConfig{Config: pack(f), IsOptional: true}),
			pack(&xdsv3.TypedStruct{TypeUrl: pack(f).GetTypeUrl()}), pack(&udpav1.TypedStruct{TypeUrl: pack(f).GetTypeUrl()}))
	}
	for _, m := range []proto.Message{goodManager("m"), goodUpstream(), goodDownstream(), goodRoutes("r"), &routev3.FilterConfig{Disabled: true}} {
		list = append(list, pack(m))
	}
	return list
}

func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err) // none of the messages made here has invalid UTF-8
	}
	return a
}
