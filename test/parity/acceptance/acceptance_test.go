package acceptance_test

import (
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
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// patience is how long grpc-go may take to answer, on whatever machine.
const patience = time.Minute

// TestAcceptance judges ACCEPTANCE_N resources (10000) of the seed ACCEPTANCE_SEED,
// which is a new one each time where it is not set.
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
			s.put(name, pack(leads(name, typ)))
		}
		want := s.ask(t, target, name, typ)
		_, err := decode.Resource(typ, sent, decode.Options{
			Origin: decode.FromServer, Certificates: func(name string) (roots, identity, ok bool) { return true, true, name == "known" },
		})
		if want == "" {
			accepted++
		}
		if (err == nil) != (want == "") {
			t.Errorf("%s %s:\n%s\nlbd: %v\ngrpc-go: %s", typ, name, shown, err, or(want, "accepts it"))
		}
	}
	// A test in which all or nothing is accepted would tell nothing.
	t.Logf("%d of %d accepted", accepted, n)
	if n >= 100 && (accepted < int(n)/10 || accepted > int(n)*9/10) {
		t.Errorf("%d of %d accepted: the changes are of no use", accepted, n)
	}
}

func or(s, absent string) string {
	if s == "" {
		return absent
	}
	return s
}

// ask lets grpc-go judge a resource, and returns why it refuses it.
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
				t.Fatalf("%s: grpc-go refuses what leads to it: %s", name, a.nack)
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

// resource makes a good resource, changes it once or twice, and shows it.
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
		l := &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: pack(manager)}}
		return resource.TypeListener, pack(l), show(manager, l)
	case 3, 4:
		context := goodDownstream()
		manager := goodManager(name)
		manager.HttpFilters[0] = httpFilter("rbac", &rbacv3.RBAC{})
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
		c := &clusterv3.Cluster{
			Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads},
			TransportSocket:  socket(context),
		}
		if r.IntN(3) == 0 {
			changed(c.GetTransportSocket())
		}
		return resource.TypeCluster, pack(c), show(context, c)
	}
}

var ads = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}

// leads is a Listener that leads to a resource of a type and the same name.
func leads(name string, typ resource.Type) *listenerv3.Listener {
	manager := &managerv3.HttpConnectionManager{HttpFilters: []*managerv3.HttpFilter{httpFilter("router", &routerv3.Router{})}}
	if typ == resource.TypeRoutes {
		manager.RouteSpecifier = &managerv3.HttpConnectionManager_Rds{Rds: &managerv3.Rds{ConfigSource: ads, RouteConfigName: name}}
	} else {
		manager.RouteSpecifier = &managerv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{VirtualHosts: []*routev3.VirtualHost{{
			Domains: []string{"*"},
			Routes: []*routev3.Route{{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: name}}},
			}},
		}}}}
	}
	return &listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: pack(manager)}}
}

func httpFilter(name string, config proto.Message) *managerv3.HttpFilter {
	return &managerv3.HttpFilter{Name: name, ConfigType: &managerv3.HttpFilter_TypedConfig{TypedConfig: pack(config)}}
}

func goodManager(name string) *managerv3.HttpConnectionManager {
	return &managerv3.HttpConnectionManager{
		RouteSpecifier: &managerv3.HttpConnectionManager_RouteConfig{RouteConfig: goodRoutes(name)},
		HttpFilters:    []*managerv3.HttpFilter{httpFilter("fault", &faultv3.HTTPFault{}), httpFilter("router", &routerv3.Router{})},
	}
}

func goodRoutes(name string) *routev3.RouteConfiguration {
	exact := &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: "v"}}
	return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: "v", Domains: []string{"*"},
		Routes: []*routev3.Route{
			{
				Match: &routev3.RouteMatch{
					PathSpecifier:   &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: "/a.*"}},
					Headers:         []*routev3.HeaderMatcher{{Name: "x", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: exact}}},
					RuntimeFraction: &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{Numerator: 5}},
				},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_WeightedClusters{WeightedClusters: &routev3.WeightedCluster{Clusters: []*routev3.WeightedCluster_ClusterWeight{
						{Name: "a", Weight: wrapperspb.UInt32(1)}, {Name: "b", Weight: wrapperspb.UInt32(2)},
					}}},
					HashPolicy: []*routev3.RouteAction_HashPolicy{{PolicySpecifier: &routev3.RouteAction_HashPolicy_Header_{Header: &routev3.RouteAction_HashPolicy_Header{
						HeaderName: "x", RegexRewrite: &matcherv3.RegexMatchAndSubstitute{Pattern: &matcherv3.RegexMatcher{Regex: "a"}, Substitution: "b"},
					}}}},
					RetryPolicy: &routev3.RetryPolicy{
						RetryOn: "internal", NumRetries: wrapperspb.UInt32(2),
						RetryBackOff: &routev3.RetryPolicy_RetryBackOff{BaseInterval: &durationpb.Duration{Seconds: 1}, MaxInterval: &durationpb.Duration{Seconds: 2}},
					},
				}},
			},
			{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "a"}}},
			},
		},
	}}}
}

// goodPort is the listener of a server's port.
func goodPort(name string, manager *managerv3.HttpConnectionManager, context *tlsv3.DownstreamTlsContext) *listenerv3.Listener {
	chain := func(port uint32, ranges ...*corev3.CidrRange) *listenerv3.FilterChain {
		return &listenerv3.FilterChain{
			FilterChainMatch: &listenerv3.FilterChainMatch{SourcePorts: []uint32{port}, PrefixRanges: ranges},
			Filters:          []*listenerv3.Filter{{Name: "m", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(manager)}}},
			TransportSocket:  socket(context),
		}
	}
	return &listenerv3.Listener{
		Name:    name,
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: "::"}}},
		FilterChains: []*listenerv3.FilterChain{
			chain(1), chain(2, &corev3.CidrRange{AddressPrefix: "10.1.0.0", PrefixLen: wrapperspb.UInt32(16)}),
		},
	}
}

func socket(context proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(context)}}
}

var known = &tlsv3.CertificateProviderPluginInstance{InstanceName: "known"}

func validation() *tlsv3.CertificateValidationContext {
	return &tlsv3.CertificateValidationContext{CaCertificateProviderInstance: known}
}

func goodUpstream() *tlsv3.UpstreamTlsContext {
	v := validation()
	v.MatchSubjectAltNames = []*matcherv3.StringMatcher{{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "p"}}}
	return &tlsv3.UpstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
		TlsCertificateProviderInstance: known,
		ValidationContextType:          &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: v},
	}}
}

func goodDownstream() *tlsv3.DownstreamTlsContext {
	return &tlsv3.DownstreamTlsContext{
		CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsCertificateProviderInstance: known,
			ValidationContextType:          &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: validation()},
		},
		RequireClientCertificate: wrapperspb.Bool(true),
	}
}

// anys are what an Any may be changed to.
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
