package acceptance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/status"
	_ "google.golang.org/grpc/xds" // its policies are registered before ours
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

func init() { balancer.Register(telling{}) }

// telling takes the place of the policy below which a cluster's endpoints are: its
// picks fail, and say which cluster they came to.
type telling struct{}

type chosen struct {
	serviceconfig.LoadBalancingConfig `json:"-"`

	Cluster string
}

// Name is that of grpc-go's.
func (telling) Name() string { return "cds_experimental" }

// ParseConfig reads grpc-go's.
func (telling) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	c := &chosen{}
	return c, json.Unmarshal(js, c)
}

// Build builds what tells.
func (telling) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return &teller{cc: cc}
}

type teller struct {
	balancer.Balancer

	cc balancer.ClientConn
}

const picked = "picked cluster "

// UpdateClientConnState publishes a picker that fails.
func (b *teller) UpdateClientConnState(s balancer.ClientConnState) error {
	c, ok := s.BalancerConfig.(*chosen)
	if !ok {
		return fmt.Errorf("a config is a %T", s.BalancerConfig)
	}
	b.cc.UpdateState(balancer.State{ConnectivityState: connectivity.Ready, Picker: failing{status.Error(codes.Unavailable, picked+c.Cluster)}})
	return nil
}

func (b *teller) ResolverError(error) {}
func (b *teller) ExitIdle()           {}
func (b *teller) Close()              {}

type failing struct{ error }

func (f failing) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{}, f.error
}

// TestRouting leads ACCEPTANCE_CALLS calls (3000) by routes that are made by
// chance.
func TestRouting(t *testing.T) {
	const callsOfOne = 20
	n := number(t, "ACCEPTANCE_CALLS", 3000) / callsOfOne
	seed := number(t, "ACCEPTANCE_SEED", uint64(time.Now().UnixNano()))
	fmt.Printf("routing: ACCEPTANCE_SEED=%d\n", seed)
	s, err := newServer()
	if err != nil {
		t.Fatal(err)
	}
	defer s.grpc.Stop()
	s.clusters = true
	target := s.resolver(t)

	seen := map[string]int{}
	for i := range n {
		r := routing{rand.New(rand.NewPCG(seed, i))}
		name := "t" + strconv.FormatUint(i, 10) + ".example.com"
		routes := r.routes(name)
		s.put(name, pack(leads(name, resource.TypeRoutes)))
		s.put(name, pack(routes))
		it, err := decode.Resource(resource.TypeRoutes, pack(routes), decode.Options{Origin: decode.FromServer})
		if err != nil {
			t.Fatalf("%s: %v", prototext.Format(routes), err)
		}
		cc, err := grpc.NewClient("xds:///"+name, grpc.WithResolvers(target), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		host := it.Routes.VirtualHost(name)
		for range callsOfOne {
			path, headers := r.call()
			want, got := call(t, cc, path, headers), lead(host, path, headers)
			seen[strings.TrimRight(want, "0123456789")]++
			if got != want {
				t.Errorf("%s %v: lbd: %s, grpc-go: %s:\n%s", path, headers, got, want, prototext.Format(routes))
			}
		}
		_ = cc.Close()
	}
	t.Logf("%v", seen)
	for _, kind := range []string{"cluster c", noRoute, noHost, noAction} {
		if n >= 50 && seen[kind] == 0 {
			t.Errorf("no call came to %q: the routes are of no use", kind)
		}
	}
}

// What can become of a call, but to come to a cluster.
const (
	noRoute  = "no route"
	noHost   = "no virtual host"
	noAction = "no cluster"
)

// call tells where grpc-go leads a call.
func call(t *testing.T, cc *grpc.ClientConn, path string, headers []resource.Header) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	md := metadata.MD{}
	for _, h := range headers {
		md.Append(h.Name, h.Value)
	}
	ctx = metadata.NewOutgoingContext(ctx, md)
	text := ""
	// Before its resolver has said anything a channel may say that it has nothing.
	for text == "" || strings.Contains(text, "produced zero addresses") {
		text = status.Convert(cc.Invoke(ctx, path, &emptypb.Empty{}, &emptypb.Empty{})).Message()
	}
	switch _, name, ok := strings.Cut(text, picked); {
	case ok:
		return "cluster " + name
	case strings.Contains(text, "no matched route was found"):
		return noRoute
	case strings.Contains(text, "could not find VirtualHost"):
		return noHost
	case strings.Contains(text, "does not have a supported route action type"):
		return noAction
	default:
		return text
	}
}

// lead tells where lbd leads a pick.
func lead(host *resource.VirtualHost, path string, headers []resource.Header) string {
	if host == nil {
		return noHost
	}
	switch route := host.Route(&resource.Request{Path: path, Headers: headers, Draw: rand.Uint64}); {
	case route == nil:
		return noRoute
	case route.Unsupported != "":
		return noAction
	default:
		return "cluster " + route.Cluster(rand.Uint64())
	}
}

// routing makes routes and calls by chance.
type routing struct{ *rand.Rand }

func one[V any](r routing, of ...V) V { return of[r.IntN(len(of))] }

// routes is a RouteConfiguration whose routes lead to a cluster each.
func (r routing) routes(name string) *routev3.RouteConfiguration {
	c := &routev3.RouteConfiguration{Name: name}
	cluster := 0
	for range 1 + r.IntN(4) {
		h := &routev3.VirtualHost{}
		for range 1 + r.IntN(3) {
			h.Domains = append(h.Domains, one(r, "*", "*", name, strings.ToUpper(name), "t*", name[:3]+"*", "*.com", "*.example.com", "*.org", "x", name+".*"))
		}
		if r.IntN(40) == 0 {
			h.Domains = append(h.Domains, one(r, "", "t*m"))
		}
		for range r.IntN(6) {
			route := &routev3.Route{Match: r.match()}
			switch r.IntN(10) {
			case 0:
				route.Action = &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}}
			case 1:
				route.Action = &routev3.Route_Redirect{Redirect: &routev3.RedirectAction{}}
			case 2:
				route.Action = &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_ClusterHeader{ClusterHeader: "x"}}}
			default:
				route.Action = &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "c" + strconv.Itoa(cluster)}}}
				cluster++
			}
			h.Routes = append(h.Routes, route)
		}
		c.VirtualHosts = append(c.VirtualHosts, h)
	}
	return c
}

func (r routing) match() *routev3.RouteMatch {
	m := &routev3.RouteMatch{}
	switch r.IntN(5) {
	case 0:
		m.PathSpecifier = &routev3.RouteMatch_Path{Path: r.path()}
	case 1:
		m.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: one(r, "/a.*", "/[a-b]", "/a|/b", "(?i)/A/B", ".*b", "^/b$")}}
	default:
		m.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: one(r, "", "", "/", "/a", "/A", "/a/", "/ſ")}
	}
	if r.IntN(2) == 0 {
		m.CaseSensitive = wrapperspb.Bool(r.IntN(2) == 0)
	}
	if r.IntN(10) == 0 {
		m.QueryParameters = []*routev3.QueryParameterMatcher{{Name: "q"}}
	}
	if r.IntN(6) == 0 {
		m.RuntimeFraction = &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{Numerator: one[uint32](r, 0, 100)}}
	}
	for range max(0, r.IntN(4)-1) {
		m.Headers = append(m.Headers, r.header())
	}
	return m
}

func (r routing) path() string {
	return one(r, "/", "/a", "/A", "/a/b", "/A/B", "/b", "/ab", "/s", "/S", "/ſ", "/\u212a", "/k")
}

func (r routing) value() string { return one(r, "", "a", "A", "ab", "b,a", "1", "7", "-3", "x") }

// name is that of a call's header: none that is binary, which grpc-go shows to its
// routes although gRFC A28 says that they do not see it.
func (r routing) name() string { return one(r, "x", "x", "y") }

func (r routing) header() *routev3.HeaderMatcher {
	m := &routev3.HeaderMatcher{Name: one(r, "x", "X", "y", "x-bin", ":path"), InvertMatch: r.IntN(3) == 0}
	text, some := r.value(), one(r, "a", "A", "b", "1", ",")
	pattern := &matcherv3.RegexMatcher{Regex: one(r, "a", "a|ab", "[a-z]*", "(?i)A.*")}
	match := &matcherv3.StringMatcher{IgnoreCase: r.IntN(2) == 0}
	switch r.IntN(5) {
	case 0:
		match.MatchPattern = &matcherv3.StringMatcher_Exact{Exact: text}
	case 1:
		match.MatchPattern = &matcherv3.StringMatcher_Prefix{Prefix: some}
	case 2:
		match.MatchPattern = &matcherv3.StringMatcher_Suffix{Suffix: some}
	case 3:
		match.MatchPattern = &matcherv3.StringMatcher_Contains{Contains: some}
	default:
		match.MatchPattern = &matcherv3.StringMatcher_SafeRegex{SafeRegex: pattern}
	}
	switch r.IntN(8) {
	case 0:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_ExactMatch{ExactMatch: text}
	case 1:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_PrefixMatch{PrefixMatch: some}
	case 2:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_SuffixMatch{SuffixMatch: some}
	case 3:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_ContainsMatch{ContainsMatch: some}
	case 4:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_SafeRegexMatch{SafeRegexMatch: pattern}
	case 5:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_RangeMatch{RangeMatch: &typev3.Int64Range{Start: one[int64](r, -5, 0, 7), End: one[int64](r, 0, 2, 8)}}
	case 6:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_PresentMatch{PresentMatch: r.IntN(2) == 0}
	default:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: match}
	}
	return m
}

// call is the path and the headers of a call.
func (r routing) call() (path string, headers []resource.Header) {
	for range r.IntN(4) {
		headers = append(headers, resource.Header{Name: r.name(), Value: r.value()})
	}
	return r.path(), headers
}
