package service_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/decode"
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
	res, err := s.Sources.PushSnapshot(tb.Context(), &sources.SnapshotRequest{Body: encode(tb, object{"resources": resources})})
	must(tb, err)
	return res
}

func remove(tb testing.TB, s *service.Service, keep ...object) {
	tb.Helper()
	_, err := s.Sources.PushSnapshot(tb.Context(), &sources.SnapshotRequest{
		Body: encode(tb, object{"resources": keep}), Replace: true, MaxRemoved: -1, AllowEmpty: true,
	})
	must(tb, err)
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
	out := mustPick(t, s, picks.Request{Target: "shop", Path: "/mixed", N: 400})
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
	first := mustPick(t, s, request)
	for _, p := range first.Picks {
		if p.Address != "a-2:80" || p.Explain[0].Route == nil || p.Explain[0].Route.Cluster != "a" || p.Explain[1].Cluster == nil {
			t.Errorf("got %+v", p)
		}
		lease, err := s.Picks.Lease(p.Lease.ID)
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
	state, err := s.State.Cluster(t.Context(), "a", "", false)
	if err != nil || state.Leases != 3 || state.Breaker.InFlight != 3 {
		t.Errorf("leases %d, in flight %d, %v", state.Leases, state.Breaker.InFlight, err)
	}
	for _, p := range first.Picks {
		endLease(t, s, p.Lease.ID, picks.Success, nil)
	}
	if state, err = s.State.Cluster(t.Context(), "a", "shop", false); err != nil || state.Leases != 0 || state.Breaker.InFlight != 0 {
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
	must(t, err)
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
	if _, err := s.Sources.HostTarget(t.Context(), "bare", sources.ChangeOptions{}); err != nil {
		t.Fatal(err)
	}
	all, err := s.State.Targets()
	if err != nil || len(all) != 2 || all[0].Name != "xds:///bare" || all[0].State != "TRANSIENT_FAILURE" || !strings.Contains(all[0].Error, "Listener/bare is not known") ||
		all[1].Name != "xds:///shop" || all[1].State != "READY" || all[1].Clusters != 2 || all[1].Error != "" || fmt.Sprint(all[1].HostedBy) != "[push]" {
		t.Fatalf("got %+v, %v", all, err)
	}
	shop, err := s.State.Target("shop")
	must(t, err)
	if shop.Listener.Resource != "Listener/shop" || shop.RouteConfiguration.Resource != "Listener/shop" || shop.Listener.Source != "push" || shop.Listener.Updated.IsZero() {
		t.Errorf("from %+v, %+v", shop.Listener, shop.RouteConfiguration)
	}
	if h := shop.VirtualHost; h.Name != "all" || len(h.Routes) != 2 || h.Routes[0].Match != `prefix "/a"` || h.Routes[1].Clusters[1] != (observe.RouteCluster{Name: "b", Weight: 3, Share: .75}) {
		t.Errorf("virtual host %+v", h)
	}
	if c := shop.ClusterStates; len(c) != 2 || c[0].Name != "a" || c[0].Target != "xds:///shop" || c[0].Endpoints.Ready != 1 {
		t.Errorf("clusters %+v", c)
	}
	if _, err := s.State.Target("unknown"); code(err) != fault.UnknownTarget {
		t.Error(err)
	}
}

// TestAClusterIsDescribedInEachTree: with the counts of that tree's picks.
func TestAClusterIsDescribedInEachTree(t *testing.T) {
	s, _ := start(t, "", nil)
	pushAll(t, s, listener("shop", route("/", "a")), listener("zoo", route("/", "a")), assigned("a", "a-1"))
	for range 2 {
		mustPick(t, s, picks.Request{Target: "zoo", Path: "/"})
	}
	for target, picks := range map[string]uint64{"": 0, "shop": 0, "zoo": 2} {
		c, err := s.State.Cluster(t.Context(), "a", target, true)
		if err != nil || strings.TrimPrefix(c.Target, "xds:///") != target || c.Priorities[0].Localities[0].Picks != picks ||
			fmt.Sprint(c.Targets) != "[xds:///shop xds:///zoo]" || c.Priorities[0].Localities[0].Endpoints[0].State != "READY" {
			t.Errorf("%q: got %+v, %v", target, c, err)
		}
	}
	for target, want := range map[string]fault.Code{"unknown": fault.UnknownTarget, "shop": fault.UnknownCluster} {
		if _, err := s.State.Cluster(t.Context(), "b", target, true); code(err) != want {
			t.Errorf("%q: %v", target, err)
		}
		if err := s.State.AwaitCluster(t.Context(), "b", target, 0, 0); code(err) != want {
			t.Errorf("%q: %v", target, err)
		}
	}
	if all := s.State.Clusters(); len(all) != 1 || fmt.Sprint(all[0].Targets) != "[xds:///shop xds:///zoo]" || all[0].Target != "" {
		t.Errorf("listed as %+v", all)
	}
}

// TestAClusterOfTargetsOnlyIsListed: one of which nothing is known has no tree of
// its own.
func TestAClusterOfTargetsOnlyIsListed(t *testing.T) {
	s, _ := start(t, "", nil)
	pushAll(t, s, listener("zoo", route("/", "a")), listener("shop", route("/", "a")))
	all := s.State.Clusters()
	if len(all) != 1 || all[0].Name != "a" || all[0].Target != "xds:///shop" || all[0].State != "TRANSIENT_FAILURE" {
		t.Errorf("listed as %+v", all)
	}
	if c, err := s.State.Cluster(t.Context(), "a", "", true); err != nil || c.Target != "xds:///shop" || !strings.Contains(c.Error, "is not known") {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := pick(s, picks.Request{Cluster: "a"}); code(err) != fault.UnknownCluster || !strings.Contains(err.Error(), "is only in xds:///shop") {
		t.Errorf("got %v", err)
	}
	for viewer, want := range map[sees]string{"zoo": "is only in xds:///zoo:", "a": `cluster "a" not found`} {
		if _, err := pick(s, picks.Request{Cluster: "a", Viewer: viewer}); code(err) != fault.UnknownCluster || !strings.Contains(err.Error(), want) {
			t.Errorf("to a caller that sees %s: %v", viewer, err)
		}
	}
}

// The error of a tree names its target only to a caller that named it: others may not see the target.
func TestErrorsOfATreeNameItsTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		s, stop := start(t, "", func(o *service.Options) {
			o.Logger = slog.New(stuck{Handler: slog.DiscardHandler, cluster: "a", until: until})
		})
		pushed := make(chan struct{})
		go func() {
			defer close(pushed)
			pushAll(t, s, listener("shop", route("/", "a")))
		}()
		synctest.Wait()
		for target, want := range map[string]string{"": "", "shop": "xds:///shop"} {
			_, err := s.State.Cluster(t.Context(), "a", target, true)
			if e, ok := errors.AsType[*fault.Error](err); !ok || e.Code != fault.Internal || e.Target != want {
				t.Errorf("with target %q: %+v", target, err)
			}
		}
		close(until)
		<-pushed
		stop()
	})
}

// sees is a caller that may see one name.
type sees string

func (s sees) MaySee(name string) bool { return name == string(s) }

func TestEventsNameTheirTarget(t *testing.T) {
	s, _ := start(t, "", nil)
	pushAll(t, s, listener("shop", route("/", "a")), assigned("a", "a-1"))
	count := func(f observe.EventFilter) (n int) {
		f.Types, f.Limit = []observe.EventType{observe.EventStateChanged}, 10
		return len(s.Events.Last(f))
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
		s, _ := start(t, "", func(o *service.Options) {
			o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: never{}, resource.ConnectNone: nil}
			o.Sources.ConnectMode = resource.ConnectTCP
		})
		ready := object{
			"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "b", "type": "EDS",
			"metadata": object{"filter_metadata": object{"lbd": object{"connect": "none"}}},
		}
		pushAll(t, s, listener("shop", route("/", "a")), assigned("a", "a-1"), assigned("b", "b-1"), ready)
		done := make(chan error)
		var out picks.Picks
		go func() {
			done <- s.Picks.Pick(t.Context(), &picks.Request{Target: "shop", Path: "/", Wait: time.Minute}, &out)
		}()
		synctest.Wait()
		pushAll(t, s, listener("shop", route("/", "b")))
		if err := <-done; err != nil || out.Picks[0].Cluster != "b" {
			t.Errorf("%+v, %v", out, err)
		}
		if c, err := s.State.Cluster(t.Context(), "a", "shop", false); code(err) != fault.UnknownCluster {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// TestAwaitFollowsTheTree: of a target, not of the cluster's own.
func TestAwaitFollowsTheTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := start(t, "", nil)
		pushAll(t, s, listener("shop", route("/", "a")), assigned("a", "a-1"))
		before := clusterState(t, s, "a", "shop", false)
		done := make(chan error)
		go func() { done <- s.State.AwaitCluster(t.Context(), "a", "shop", before.Generation, time.Hour) }()
		synctest.Wait()
		pushAll(t, s, listener("shop", route("/a", "a")))
		if err := <-done; err != nil {
			t.Error(err)
		}
		if after, err := s.State.Cluster(t.Context(), "a", "shop", false); err != nil || after.Generation == before.Generation {
			t.Errorf("%+v, %v", after, err)
		}
	})
}

func TestATargetIsHostedByName(t *testing.T) {
	dir := t.TempDir()
	s, stop := start(t, dir, nil)
	host := func(name string) (*sources.PushResult, error) {
		return s.Sources.HostTarget(t.Context(), name, sources.ChangeOptions{})
	}
	drop := func(name string) (*sources.PushResult, error) {
		return s.Sources.DropTarget(t.Context(), name, sources.ChangeOptions{})
	}
	expect := func(want fault.Code, says string) {
		t.Helper()
		_, err := pick(s, picks.Request{Target: "shop", Path: "/"})
		if code(err) != want || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("got %s: %v; want %s: %s", code(err), err, want, says)
		}
	}
	if res, err := s.Sources.HostTarget(t.Context(), "shop", sources.ChangeOptions{DryRun: true}); err != nil || !res.New || len(res.Changes) != 1 {
		t.Errorf("dry run: %+v, %v", res, err)
	}
	expect(fault.UnknownTarget, `target "shop" not found`)
	if res, err := host("shop"); err != nil || !res.New || res.Generation == 0 || res.Changes[0] != (difference.Change{Resource: "Target/xds:///shop", Change: "added"}) {
		t.Fatalf("got %+v, %v", res, err)
	}
	if res, err := host("xds:///shop"); err != nil || res.New || len(res.Changes) != 0 {
		t.Errorf("hosted twice: %+v, %v", res, err)
	}
	expect(fault.UnknownTarget, "xds:///shop: Listener/shop is not known: push it with PUT /v1/snapshot")
	for _, name := range []string{"shop", "xds:shop", "xds:///shop"} { // as TargetName takes it
		if target, err := s.State.Target(name); err != nil || target.Name != "xds:///shop" {
			t.Errorf("%s is %+v, %v", name, target, err)
		}
	}
	stop()

	s, stop = start(t, dir, nil)
	expect(fault.UnknownTarget, "Listener/shop is not known")
	pushAll(t, s, listener("shop", route("/", "a")), assigned("a", "a-1"))
	expect("", "")
	snapshot, err := s.Sources.Snapshot(t.Context(), "", nil, sources.JSON)
	if err != nil || strings.Contains(string(snapshot.Body.Bytes()), "Target") {
		t.Errorf("the snapshot is %s, %v", snapshot.Body, err)
	}
	remove(t, s) // the Listener, and not what is hosted
	expect(fault.UnknownTarget, "Listener/shop is not known")
	if empty, err := s.Sources.Snapshot(t.Context(), "", nil, sources.JSON); err != nil || empty.Hash == snapshot.Hash {
		t.Errorf("the snapshot's hash is %s still, %v", empty.Hash, err)
	}
	pushAll(t, s, listener("shop", route("/", "a")), assigned("a", "a-1"))
	if back, err := s.Sources.Snapshot(t.Context(), "", nil, sources.JSON); err != nil || back.Hash != snapshot.Hash {
		t.Errorf("the snapshot's hash is %s, %v; want %s", back.Hash, err, snapshot.Hash)
	}
	if res, err := drop("shop"); err != nil || len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0].Reason, "a Listener that was pushed hosts it") {
		t.Errorf("dropped: %+v, %v", res, err)
	}
	if same, err := s.Sources.Snapshot(t.Context(), "", nil, sources.JSON); err != nil || same.Hash != snapshot.Hash {
		t.Errorf("the snapshot's hash is %s, %v; want %s: hosting does not change it", same.Hash, err, snapshot.Hash)
	}
	expect("", "")
	if _, err := drop("shop"); code(err) != fault.UnknownTarget || !strings.Contains(err.Error(), "a Listener that was pushed hosts it") {
		t.Errorf("dropped twice: %v", err)
	}
	remove(t, s)
	expect(fault.UnknownTarget, `target "shop" not found`)
	if _, err := drop("shop"); code(err) != fault.UnknownTarget {
		t.Errorf("dropped what is not there: %v", err)
	}
	stop()
	s, _ = start(t, dir, nil)
	expect(fault.UnknownTarget, `target "shop" not found`)
}

// TestFlagsHostTargets: a target of a flag is hosted as long as the daemon runs.
func TestFlagsHostTargets(t *testing.T) {
	s, _ := start(t, "", func(o *service.Options) { o.Sources.Targets = []string{"xds:///shop"} })
	if _, err := s.Sources.DropTarget(t.Context(), "shop", sources.ChangeOptions{}); code(err) != fault.UnknownTarget || !strings.Contains(err.Error(), "--target hosts it") {
		t.Errorf("got %v", err)
	}
	if _, err := s.Sources.HostTarget(t.Context(), "shop", sources.ChangeOptions{}); err != nil {
		t.Error(err)
	}
	if state, err := s.State.Target("shop"); err != nil || fmt.Sprint(state.HostedBy) != "[flag api]" ||
		!strings.HasPrefix(state.Error, "xds:///shop: Listener/shop is not known: push it") {
		t.Errorf("got %+v, %v", state, err)
	}
	if res, err := s.Sources.DropTarget(t.Context(), "shop", sources.ChangeOptions{}); err != nil || len(res.Warnings) != 1 {
		t.Errorf("got %+v, %v", res, err)
	}
	if _, err := s.State.Target("shop"); err != nil {
		t.Error(err)
	}
}

func TestNamesOfTargets(t *testing.T) {
	for name, want := range map[string]string{
		"shop": "xds:///shop", "xds:///shop": "xds:///shop", "xds:shop": "xds:///shop", "a/b": "xds:///a/b",
		"xds://traffic/shop": "xds://traffic/shop", "//traffic/shop": "xds://traffic/shop",
		"": "", "xds:": "", "xds:///": "", "/shop": "", "xds:////shop": "", "xds://traffic": "", "xds://traffic/": "", "a\nb": "", "\xff": "",
		strings.Repeat("a", decode.MaxNameBytes): "",
	} {
		got, err := ledger.TargetName(name)
		if got != want || (err == nil) != (want != "") || err != nil && code(err) != fault.InvalidArgument {
			t.Errorf("%q: got %q, %v; want %q", name, got, err, want)
		}
	}
}

// TestFlagTargetsWithoutListener: without a bootstrap, only a push or a file can provide a
// target's Listener.
func TestFlagTargetsWithoutListener(t *testing.T) {
	dir := t.TempDir()
	s, stop := start(t, dir, nil)
	pushAll(t, s, listener("pushed", route("/", "a")), assigned("a", "a-1"))
	stop()
	for name, c := range map[string]struct {
		bootstrap *bootstrap.Config
		want      int
	}{
		"without bootstrap": {nil, 1},
		"with one":          {&bootstrap.Config{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			_, stop := start(t, dir, func(o *service.Options) {
				o.Logger, o.Sources.Bootstrap = slog.New(slog.NewTextHandler(&log, nil)), c.bootstrap
				o.Sources.Targets = []string{"xds:///pushed", "xds:///shop"}
			})
			stop()
			if got := strings.Count(log.String(), "level=WARN"); got != c.want || c.want > 0 && !strings.Contains(log.String(), "target=xds:///shop") {
				t.Errorf("%d warnings, want %d:\n%s", got, c.want, log.String())
			}
		})
	}
}
