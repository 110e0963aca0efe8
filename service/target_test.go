package service_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/resource"
)

// listener is a Listener with routes of its own, which serve any authority.
func listener(name string, routes ...object) object {
	return object{
		"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": name,
		"api_listener": object{"api_listener": object{
			"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
			"route_config": object{
				"name": "inline", "virtual_hosts": []object{{"name": "all", "domains": []string{"*"}, "routes": routes}},
			},
			"http_filters": []object{{"name": "router", "typed_config": object{
				"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
			}}},
		}},
	}
}

// route leads a prefix to clusters, "name" or "name=weight".
func route(prefix string, clusters ...string) object {
	if len(clusters) == 1 {
		return object{"name": prefix, "match": object{"prefix": prefix}, "route": object{"cluster": clusters[0]}}
	}
	var weighted []object
	for _, c := range clusters {
		name, weight, _ := strings.Cut(c, "=")
		weighted = append(weighted, object{"name": name, "weight": weight})
	}
	return object{"name": prefix, "match": object{"prefix": prefix}, "route": object{"weighted_clusters": object{"clusters": weighted}}}
}

// tenant is a matcher of a header.
func tenant(name string) object {
	return object{"name": "tenant", "string_match": object{"exact": name}}
}

// assigned is an assignment of one locality.
func assigned(cluster string, hosts ...string) object {
	var all []object
	for _, h := range hosts {
		all = append(all, endpoint(h))
	}
	return object{
		"@type":        "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
		"cluster_name": cluster, "endpoints": []object{{"lb_endpoints": all}},
	}
}

func pushAll(tb testing.TB, s *service.Service, resources ...object) *sources.PushResult {
	tb.Helper()
	res, err := s.PushSnapshot(tb.Context(), &sources.SnapshotRequest{Body: encode(tb, object{"resources": resources})})
	if err != nil {
		tb.Fatal(err)
	}
	return res
}

func remove(tb testing.TB, s *service.Service, keep ...object) {
	tb.Helper()
	_, err := s.PushSnapshot(tb.Context(), &sources.SnapshotRequest{
		Body: encode(tb, object{"resources": keep}), Replace: true, MaxRemoved: -1, AllowEmpty: true,
	})
	if err != nil {
		tb.Fatal(err)
	}
}

func TestRoutesChooseTheCluster(t *testing.T) {
	s, _ := start(t, "", nil)
	pushAll(t, s,
		listener("shop",
			object{"match": object{"prefix": "/", "headers": []object{tenant("b")}}, "route": object{"cluster": "b"}},
			route("/a", "a"), route("/mixed", "a=3", "b=1"), route("/closed/", "gone")),
		assigned("a", "a-1"), assigned("b", "b-1"))
	for _, c := range []struct {
		path    string
		headers []picks.Header
		want    string
	}{
		{"/a.Service/Get", nil, "a a-1:80"},
		{"/a.Service/Get", []picks.Header{{Name: "tenant", Value: "b"}}, "b b-1:80"},
		{"/a.Service/Get", []picks.Header{{Name: "tenant", Value: "c"}}, "a a-1:80"},
		{"/other", nil, "!no_route"},
		{"/closed/x", nil, "!no_ready_endpoint"},
	} {
		for _, name := range []string{"shop", "xds:///shop"} {
			out, err := pick(s, picks.Request{Target: name, Path: c.path, Headers: c.headers})
			got := "!" + string(code(err))
			if err == nil {
				got = out.Picks[0].Cluster + " " + out.Picks[0].Address
				if out.Target != "xds:///shop" || out.Generation == 0 {
					t.Errorf("%s: answered for target %q, generation %d", c.path, out.Target, out.Generation)
				}
			}
			if got != c.want {
				t.Errorf("%s %v: got %s, want %s", c.path, c.headers, got, c.want)
			}
		}
	}
	out, err := pick(s, picks.Request{Target: "shop", Path: "/mixed", N: 400})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, p := range out.Picks {
		counts[p.Cluster]++
	}
	if counts["a"] < 250 || counts["b"] < 50 || counts["a"]+counts["b"] != 400 { // seeded draws
		t.Errorf("of 400 picks at 3 to 1: %v", counts)
	}
}

func TestPicksOfATargetTakeWhatOthersTake(t *testing.T) {
	s, _ := start(t, "", nil)
	pushAll(t, s, listener("shop", route("/", "a")), assigned("a", "a-1", "a-2"))
	headers := []picks.Header{{Name: "tenant", Value: "a"}}
	request := picks.Request{Target: "shop", Path: "/", Exclude: []string{"a-1:80"}, N: 3, TTL: time.Minute, IdempotencyKey: "k", Explain: true, Headers: headers}
	first, err := pick(s, request)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range first.Picks {
		if p.Address != "a-2:80" || p.Explain[0].Route == nil || p.Explain[0].Route.Cluster != "a" || p.Explain[1].Cluster == nil {
			t.Errorf("got %+v", p)
		}
		lease, err := s.Lease(p.Lease.ID)
		if err != nil || lease.Cluster != "a" || lease.Target != "xds:///shop" {
			t.Errorf("lease %+v, %v", lease, err)
		}
	}
	again, err := pick(s, request)
	if err != nil || again.Picks[2].Lease.ID != first.Picks[2].Lease.ID {
		t.Errorf("the same key: %+v, %v", again, err)
	}
	headers[0].Value = "b" // as a caller does that uses its slice again
	if _, err := pick(s, request); code(err) != fault.InvalidArgument {
		t.Errorf("the same key with another header: %v", err)
	}
	headers[0].Value = "a"
	for name, change := range map[string]func(*picks.Request){
		"path":    func(r *picks.Request) { r.Path = "/x" },
		"headers": func(r *picks.Request) { r.Headers = []picks.Header{{Name: "a", Value: "b"}} },
		"target":  func(r *picks.Request) { r.Target, r.Cluster = "", "a" },
	} {
		other := request
		change(&other)
		if _, err := pick(s, other); code(err) != fault.InvalidArgument {
			t.Errorf("the same key with another %s: %v", name, err)
		}
	}
	state, err := s.Cluster(t.Context(), "a", "", false)
	if err != nil || state.Leases != 3 || state.Breaker.InFlight != 3 {
		t.Errorf("leases %d, in flight %d, %v", state.Leases, state.Breaker.InFlight, err)
	}
	for _, p := range first.Picks {
		if _, err := s.EndLease(p.Lease.ID, picks.Success, nil); err != nil {
			t.Error(err)
		}
	}
	if state, err = s.Cluster(t.Context(), "a", "shop", false); err != nil || state.Leases != 0 || state.Breaker.InFlight != 0 {
		t.Errorf("leases %d, in flight %d, %v", state.Leases, state.Breaker.InFlight, err)
	}
}

// TestARouteIsExplained: its step is the first, of refusals too.
func TestARouteIsExplained(t *testing.T) {
	s, _ := start(t, "", nil)
	hashed := route("/", "a=1", "b=3")
	action, ok := hashed["route"].(object)
	if !ok {
		t.Fatalf("%v has no action", hashed)
	}
	action["hash_policy"] = []object{{"header": object{"header_name": "user"}}}
	pushAll(t, s, listener("shop", route("/x", "a"), hashed), assigned("a", "a-1"), assigned("b", "b-1"))
	out, err := pick(s, picks.Request{Target: "shop", Path: "/y", Headers: []picks.Header{{Name: "user", Value: "u"}}, Explain: true})
	if err != nil {
		t.Fatal(err)
	}
	step := out.Picks[0].Explain[0]
	r := step.Route
	if r == nil || len(r.Tried) != 2 || r.Tried[0].Mismatch == "" || r.Tried[1].Mismatch != "" || r.Draw == nil || len(r.Clusters) != 2 ||
		r.Clusters[1].Share != 0.75 || r.Cluster != out.Picks[0].Cluster || r.HashFrom != "route" || len(r.Hashed) != 1 || r.Hashed[0].Hash != r.Hash {
		t.Errorf("got %+v", r)
	}
	weight := map[string]int{"a": 1, "b": 3}[r.Cluster]
	want := fmt.Sprintf(`xds:///shop: route "/" (prefix "/"), number 2 of virtual host "all", takes the request; it leads to cluster %q, drawn of 2 with weight %d of 4`, r.Cluster, weight)
	if step.Says != want {
		t.Errorf("says %s\nwant %s", step.Says, want)
	}
	pushAll(t, s, listener("shop", route("/x", "a")))
	_, err = pick(s, picks.Request{Target: "shop", Path: "/y", Explain: true})
	explained, ok := errors.AsType[*picks.ExplainedError](err)
	if !ok || len(explained.Explain) != 1 || explained.Explain[0].Says != `xds:///shop: none of the 1 routes of virtual host "all" takes the request` {
		t.Fatalf("got %+v", err)
	}
	if e, ok := errors.AsType[*fault.Error](err); !ok || e.Code != fault.NoRoute || e.Target != "xds:///shop" {
		t.Errorf("got %+v", e)
	}
}

func TestTargetsAreDescribed(t *testing.T) {
	s, _ := start(t, "", nil)
	pushAll(t, s, listener("shop", route("/a", "a"), route("/", "a=1", "b=3")), assigned("a", "a-1"), assigned("b", "b-1"))
	if _, err := s.HostTarget(t.Context(), "bare", sources.ChangeOptions{}); err != nil {
		t.Fatal(err)
	}
	all, err := s.Targets()
	if err != nil || len(all) != 2 || all[0].Name != "xds:///bare" || all[0].State != "TRANSIENT_FAILURE" || !strings.Contains(all[0].Error, "Listener/bare is not known") ||
		all[1].Name != "xds:///shop" || all[1].State != "READY" || all[1].Clusters != 2 || all[1].Error != "" || fmt.Sprint(all[1].HostedBy) != "[push]" {
		t.Fatalf("got %+v, %v", all, err)
	}
	shop, err := s.Target("shop")
	if err != nil {
		t.Fatal(err)
	}
	if shop.Listener.Resource != "Listener/shop" || shop.RouteConfiguration.Resource != "Listener/shop" || shop.Listener.Source != "push" || shop.Listener.Updated.IsZero() {
		t.Errorf("from %+v, %+v", shop.Listener, shop.RouteConfiguration)
	}
	if h := shop.VirtualHost; h.Name != "all" || len(h.Routes) != 2 || h.Routes[0].Match != `prefix "/a"` || h.Routes[1].Clusters[1] != (observe.RouteCluster{Name: "b", Weight: 3, Share: .75}) {
		t.Errorf("virtual host %+v", h)
	}
	if c := shop.ClusterStates; len(c) != 2 || c[0].Name != "a" || c[0].Target != "xds:///shop" || c[0].Endpoints.Ready != 1 {
		t.Errorf("clusters %+v", c)
	}
	if _, err := s.Target("unknown"); code(err) != fault.UnknownTarget {
		t.Error(err)
	}
}

// TestAClusterIsDescribedInEachTree: with the counts of that tree's picks.
func TestAClusterIsDescribedInEachTree(t *testing.T) {
	s, _ := start(t, "", nil)
	pushAll(t, s, listener("shop", route("/", "a")), listener("zoo", route("/", "a")), assigned("a", "a-1"))
	for range 2 {
		if _, err := pick(s, picks.Request{Target: "zoo", Path: "/"}); err != nil {
			t.Fatal(err)
		}
	}
	for target, picks := range map[string]uint64{"": 0, "shop": 0, "zoo": 2} {
		c, err := s.Cluster(t.Context(), "a", target, true)
		if err != nil || strings.TrimPrefix(c.Target, "xds:///") != target || c.Priorities[0].Localities[0].Picks != picks ||
			fmt.Sprint(c.Targets) != "[xds:///shop xds:///zoo]" || c.Priorities[0].Localities[0].Endpoints[0].State != "READY" {
			t.Errorf("%q: got %+v, %v", target, c, err)
		}
	}
	for target, want := range map[string]fault.Code{"unknown": fault.UnknownTarget, "shop": fault.UnknownCluster} {
		if _, err := s.Cluster(t.Context(), "b", target, true); code(err) != want {
			t.Errorf("%q: %v", target, err)
		}
		if err := s.AwaitCluster(t.Context(), "b", target, 0, 0); code(err) != want {
			t.Errorf("%q: %v", target, err)
		}
	}
	if all := s.Clusters(); len(all) != 1 || fmt.Sprint(all[0].Targets) != "[xds:///shop xds:///zoo]" || all[0].Target != "" {
		t.Errorf("listed as %+v", all)
	}
}

// TestAClusterOfTargetsOnlyIsListed: one of which nothing is known has no tree of
// its own.
func TestAClusterOfTargetsOnlyIsListed(t *testing.T) {
	s, _ := start(t, "", nil)
	pushAll(t, s, listener("zoo", route("/", "a")), listener("shop", route("/", "a")))
	all := s.Clusters()
	if len(all) != 1 || all[0].Name != "a" || all[0].Target != "xds:///shop" || all[0].State != "TRANSIENT_FAILURE" {
		t.Errorf("listed as %+v", all)
	}
	if c, err := s.Cluster(t.Context(), "a", "", true); err != nil || c.Target != "xds:///shop" || !strings.Contains(c.Error, "is not known") {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := pick(s, picks.Request{Cluster: "a"}); code(err) != fault.UnknownCluster || !strings.Contains(err.Error(), "is only in xds:///shop") {
		t.Errorf("got %v", err)
	}
}

func TestEventsNameTheirTarget(t *testing.T) {
	s, _ := start(t, "", nil)
	pushAll(t, s, listener("shop", route("/", "a")), assigned("a", "a-1"))
	count := func(f observe.EventFilter) (n int) {
		f.Types, f.Limit = []observe.EventType{observe.EventStateChanged}, 10
		return len(s.Events(f))
	}
	if all, shop, full, zoo := count(observe.EventFilter{}), count(observe.EventFilter{Target: "shop"}), count(observe.EventFilter{Target: "xds:///shop"}), count(observe.EventFilter{Target: "zoo"}); all != 2 || shop != 1 || full != 1 || zoo != 0 {
		t.Errorf("%d events, %d and %d of shop, %d of zoo", all, shop, full, zoo)
	}
}

// never is a connector whose attempts do not end.
type never struct{}

func (never) Start([]string, func(lb.Connection)) func() { return func() {} }

// TestPicksQueueWhileRoutesMove: a pick that waits for a cluster that leaves its
// target is routed again.
func TestPicksQueueWhileRoutesMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := start(t, "", func(o *service.Options) {
			o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: never{}, resource.ConnectNone: nil}
			o.ConnectMode = resource.ConnectTCP
		})
		defer stop()
		ready := object{
			"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "b", "type": "EDS",
			"metadata": object{"filter_metadata": object{"lbd": object{"connect": "none"}}},
		}
		pushAll(t, s, listener("shop", route("/", "a")), assigned("a", "a-1"), assigned("b", "b-1"), ready)
		done := make(chan error)
		var out picks.Picks
		go func() {
			done <- s.Pick(t.Context(), &picks.Request{Target: "shop", Path: "/", Wait: time.Minute}, &out)
		}()
		synctest.Wait()
		pushAll(t, s, listener("shop", route("/", "b")))
		if err := <-done; err != nil || out.Picks[0].Cluster != "b" {
			t.Errorf("%+v, %v", out, err)
		}
		if c, err := s.Cluster(t.Context(), "a", "shop", false); code(err) != fault.UnknownCluster {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// TestAwaitFollowsTheTree: of a target, not of the cluster's own.
func TestAwaitFollowsTheTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := start(t, "", nil)
		defer stop()
		pushAll(t, s, listener("shop", route("/", "a")), assigned("a", "a-1"))
		before, err := s.Cluster(t.Context(), "a", "shop", false)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- s.AwaitCluster(t.Context(), "a", "shop", before.Generation, time.Hour) }()
		synctest.Wait()
		pushAll(t, s, listener("shop", route("/a", "a")))
		if err := <-done; err != nil {
			t.Error(err)
		}
		if after, err := s.Cluster(t.Context(), "a", "shop", false); err != nil || after.Generation == before.Generation {
			t.Errorf("%+v, %v", after, err)
		}
	})
}
