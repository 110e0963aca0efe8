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
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/status"
	_ "google.golang.org/grpc/xds" // its policies are registered before ours
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

func init() { balancer.Register(clusterNamer{}) }

// clusterNamer replaces grpc-go's policy for a cluster: all picks fail with the name of the
// cluster.
type clusterNamer struct{}

type clusterConfig struct {
	serviceconfig.LoadBalancingConfig `json:"-"`

	Cluster string
}

func (clusterNamer) Name() string { return "cds_experimental" }

func (clusterNamer) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	c := &clusterConfig{}
	return c, json.Unmarshal(js, c)
}

func (clusterNamer) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return &namingBalancer{cc: cc}
}

type namingBalancer struct {
	balancer.Balancer

	cc balancer.ClientConn
}

const picked = "picked cluster "

func (b *namingBalancer) UpdateClientConnState(s balancer.ClientConnState) error {
	c, ok := s.BalancerConfig.(*clusterConfig)
	if !ok {
		return fmt.Errorf("a config is a %T", s.BalancerConfig)
	}
	picker := base.NewErrPicker(status.Error(codes.Unavailable, picked+c.Cluster))
	b.cc.UpdateState(balancer.State{ConnectivityState: connectivity.Ready, Picker: picker})
	return nil
}

func (b *namingBalancer) ResolverError(error) {}
func (b *namingBalancer) ExitIdle()           {}
func (b *namingBalancer) Close()              {}

// TestRouting compares the clusters of ACCEPTANCE_CALLS calls (3000) with random routes.
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
		s.put(name, pack(routesTo(name, resource.TypeRoutes)))
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
			want, got := callGRPC(t, cc, path, headers), callLBD(host, path, headers)
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
			t.Errorf("no call has the result %q: the routes are not useful", kind)
		}
	}
}

// The results of calls without a cluster.
const (
	noRoute  = "no route"
	noHost   = "no virtual host"
	noAction = "no cluster"
)

// callGRPC returns the cluster that grpc-go chooses for a call.
func callGRPC(t *testing.T, cc *grpc.ClientConn, path string, headers []resource.Header) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	md := metadata.MD{}
	for _, h := range headers {
		md.Append(h.Name, h.Value)
	}
	ctx = metadata.NewOutgoingContext(ctx, md)
	text := ""
	// Before the first update of its resolver, a channel may have no addresses.
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

// callLBD returns the cluster that lbd chooses for a pick.
func callLBD(host *resource.VirtualHost, path string, headers []resource.Header) string {
	if host == nil {
		return noHost
	}
	switch route := host.Route(&resource.Request{Path: path, Headers: headers, Draw: rand.Uint64}); {
	case route == nil:
		return noRoute
	case route.Unsupported != "":
		return noAction
	default:
		name, _, _ := route.Cluster(rand.Uint64())
		return "cluster " + name
	}
}

// routing makes random routes and calls.
type routing struct{ *rand.Rand }

func one[V any](r routing, of ...V) V { return of[r.IntN(len(of))] }

// routes is a RouteConfiguration in which each route has its own cluster.
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
				parse(route, `{"non_forwarding_action": {}}`)
			case 1:
				parse(route, `{"redirect": {}}`)
			case 2:
				parse(route, `{"route": {"cluster_header": "x"}}`)
			default:
				parse(route, `{"route": {"cluster": "c%d"}}`, cluster)
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
		parse(m, `{"path": %q}`, r.path())
	case 1:
		parse(m, `{"safe_regex": {"regex": %q}}`, one(r, "/a.*", "/[a-b]", "/a|/b", "(?i)/A/B", ".*b", "^/b$"))
	default:
		parse(m, `{"prefix": %q}`, one(r, "", "", "/", "/a", "/A", "/a/", "/ſ"))
	}
	if r.IntN(2) == 0 {
		parse(m, `{"case_sensitive": %t}`, r.IntN(2) == 0)
	}
	if r.IntN(10) == 0 {
		parse(m, `{"query_parameters": [{"name": "q"}]}`)
	}
	if r.IntN(6) == 0 {
		parse(m, `{"runtime_fraction": {"default_value": {"numerator": %d}}}`, one(r, 0, 100))
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

// name is the name of a call's header. None is binary: grpc-go matches binary headers,
// although gRFC A28 excludes them.
func (r routing) name() string { return one(r, "x", "x", "y") }

func (r routing) header() *routev3.HeaderMatcher {
	m := &routev3.HeaderMatcher{Name: one(r, "x", "X", "y", "x-bin", ":path"), InvertMatch: r.IntN(3) == 0}
	text, some := strconv.Quote(r.value()), strconv.Quote(one(r, "a", "A", "b", "1", ","))
	regex := fmt.Sprintf(`{"regex": %q}`, one(r, "a", "a|ab", "[a-z]*", "(?i)A.*"))
	kinds := []string{"exact", "prefix", "suffix", "contains", "safe_regex"}
	values := []string{text, some, some, some, regex}
	ignoreCase, stringKind := r.IntN(2) == 0, r.IntN(len(kinds))
	switch kind := r.IntN(8); kind {
	case 5:
		return parse(m, `{"range_match": {"start": %d, "end": %d}}`, one(r, -5, 0, 7), one(r, 0, 2, 8))
	case 6:
		return parse(m, `{"present_match": %t}`, r.IntN(2) == 0)
	case 7:
		return parse(m, `{"string_match": {"ignore_case": %t, %q: %s}}`, ignoreCase, kinds[stringKind], values[stringKind])
	default:
		return parse(m, `{"%s_match": %s}`, kinds[kind], values[kind])
	}
}

// call is the path and the headers of a call.
func (r routing) call() (path string, headers []resource.Header) {
	for range r.IntN(4) {
		headers = append(headers, resource.Header{Name: r.name(), Value: r.value()})
	}
	return r.path(), headers
}
