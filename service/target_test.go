package service_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// tenant is a matcher of a header.
func tenant(name string) servicetest.Object {
	return servicetest.Object{"name": "tenant", "string_match": servicetest.Object{"exact": name}}
}

func TestRoutesChooseTheCluster(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.PushAll(t, s,
		servicetest.Listener("shop",
			servicetest.Object{"match": servicetest.Object{"prefix": "/", "headers": []servicetest.Object{tenant("b")}}, "route": servicetest.Object{"cluster": "b"}},
			servicetest.Route("/a", "a"), servicetest.Route("/mixed", "a=3", "b=1"), servicetest.Route("/closed/", "gone")),
		servicetest.Assigned("a", "a-1"), servicetest.Assigned("b", "b-1"))
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
			out, err := servicetest.Pick(s, picks.Request{Target: name, Path: c.path, Headers: c.headers})
			got := "!" + string(servicetest.Code(err))
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
	s, _ := servicetest.Start(t, "", nil)
	servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/", "a")), servicetest.Assigned("a", "a-1", "a-2"))
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
	again, err := servicetest.Pick(s, request)
	if err != nil || again.Picks[2].Lease.ID != first.Picks[2].Lease.ID {
		t.Errorf("the same key: %+v, %v", again, err)
	}
	headers[0].Value = "b" // as a caller does that uses its slice again
	if _, err := servicetest.Pick(s, request); servicetest.Code(err) != fault.InvalidArgument {
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
		if _, err := servicetest.Pick(s, other); servicetest.Code(err) != fault.InvalidArgument {
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
	s, _ := servicetest.Start(t, "", nil)
	hashed := servicetest.Route("/", "a=1", "b=3")
	action, ok := hashed["route"].(servicetest.Object)
	if !ok {
		t.Fatalf("%v has no action", hashed)
	}
	action["hash_policy"] = []servicetest.Object{{"header": servicetest.Object{"header_name": "user"}}}
	servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/x", "a"), hashed), servicetest.Assigned("a", "a-1"), servicetest.Assigned("b", "b-1"))
	out, err := servicetest.Pick(s, picks.Request{Target: "shop", Path: "/y", Headers: []picks.Header{{Name: "user", Value: "u"}}, Explain: true})
	servicetest.Must(t, err)
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
	servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/x", "a")))
	_, err = servicetest.Pick(s, picks.Request{Target: "shop", Path: "/y", Explain: true})
	explained, ok := errors.AsType[*picks.ExplainedError](err)
	if !ok || len(explained.Explain) != 1 || explained.Explain[0].Says != `xds:///shop: none of the 1 routes of virtual host "all" takes the request` {
		t.Fatalf("got %+v", err)
	}
	if e, ok := errors.AsType[*fault.Error](err); !ok || e.Code != fault.NoRoute || e.Target != "xds:///shop" {
		t.Errorf("got %+v", e)
	}
}

func TestTargetsAreDescribed(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/a", "a"), servicetest.Route("/", "a=1", "b=3")), servicetest.Assigned("a", "a-1"), servicetest.Assigned("b", "b-1"))
	_, err := s.Sources.HostTarget(t.Context(), "bare", sources.ChangeOptions{})
	servicetest.Must(t, err)
	all, err := s.State.Targets()
	if err != nil || len(all) != 2 || all[0].Name != "xds:///bare" || all[0].State != "TRANSIENT_FAILURE" || !strings.Contains(all[0].Error, "Listener/bare is not known") ||
		all[1].Name != "xds:///shop" || all[1].State != "READY" || all[1].Clusters != 2 || all[1].Error != "" || fmt.Sprint(all[1].HostedBy) != "[push]" {
		t.Fatalf("got %+v, %v", all, err)
	}
	shop, err := s.State.Target("shop")
	servicetest.Must(t, err)
	if shop.Listener.Resource != "Listener/shop" || shop.RouteConfiguration.Resource != "Listener/shop" || shop.Listener.Source != "push" || shop.Listener.Updated.IsZero() {
		t.Errorf("from %+v, %+v", shop.Listener, shop.RouteConfiguration)
	}
	if h := shop.VirtualHost; h.Name != "all" || len(h.Routes) != 2 || h.Routes[0].Match != `prefix "/a"` || h.Routes[1].Clusters[1] != (observe.RouteCluster{Name: "b", Weight: 3, Share: .75}) {
		t.Errorf("virtual host %+v", h)
	}
	if c := shop.ClusterStates; len(c) != 2 || c[0].Name != "a" || c[0].Target != "xds:///shop" || c[0].Endpoints.Ready != 1 {
		t.Errorf("clusters %+v", c)
	}
	if _, err := s.State.Target("unknown"); servicetest.Code(err) != fault.UnknownTarget {
		t.Error(err)
	}
}

// TestAClusterIsDescribedInEachTree: with the counts of that tree's picks.
func TestAClusterIsDescribedInEachTree(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/", "a")), servicetest.Listener("zoo", servicetest.Route("/", "a")), servicetest.Assigned("a", "a-1"))
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
		if _, err := s.State.Cluster(t.Context(), "b", target, true); servicetest.Code(err) != want {
			t.Errorf("%q: %v", target, err)
		}
		if err := s.State.AwaitCluster(t.Context(), "b", target, 0, 0); servicetest.Code(err) != want {
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
	s, _ := servicetest.Start(t, "", nil)
	servicetest.PushAll(t, s, servicetest.Listener("zoo", servicetest.Route("/", "a")), servicetest.Listener("shop", servicetest.Route("/", "a")))
	all := s.State.Clusters()
	if len(all) != 1 || all[0].Name != "a" || all[0].Target != "xds:///shop" || all[0].State != "TRANSIENT_FAILURE" {
		t.Errorf("listed as %+v", all)
	}
	if c, err := s.State.Cluster(t.Context(), "a", "", true); err != nil || c.Target != "xds:///shop" || !strings.Contains(c.Error, "is not known") {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := servicetest.Pick(s, picks.Request{Cluster: "a"}); servicetest.Code(err) != fault.UnknownCluster || !strings.Contains(err.Error(), "is only in xds:///shop") {
		t.Errorf("got %v", err)
	}
	for viewer, want := range map[sees]string{"zoo": "is only in xds:///zoo:", "a": `cluster "a" not found`} {
		if _, err := servicetest.Pick(s, picks.Request{Cluster: "a", Viewer: viewer}); servicetest.Code(err) != fault.UnknownCluster || !strings.Contains(err.Error(), want) {
			t.Errorf("to a caller that sees %s: %v", viewer, err)
		}
	}
}

// The error of a tree names its target only to a caller that named it: others may not see the target.
func TestErrorsOfATreeNameItsTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		s, stop := servicetest.Start(t, "", func(o *service.Options) {
			o.Logger = slog.New(stuck{Handler: slog.DiscardHandler, cluster: "a", until: until})
		})
		pushed := make(chan struct{})
		go func() {
			defer close(pushed)
			servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/", "a")))
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
	s, _ := servicetest.Start(t, "", nil)
	servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/", "a")), servicetest.Assigned("a", "a-1"))
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
		s, _ := servicetest.Start(t, "", func(o *service.Options) {
			o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: never{}, resource.ConnectNone: nil}
			o.Sources.ConnectMode = resource.ConnectTCP
		})
		ready := servicetest.Object{
			"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "b", "type": "EDS",
			"metadata": servicetest.Object{"filter_metadata": servicetest.Object{"lbd": servicetest.Object{"connect": "none"}}},
		}
		servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/", "a")), servicetest.Assigned("a", "a-1"), servicetest.Assigned("b", "b-1"), ready)
		done := make(chan error)
		var out picks.Picks
		go func() {
			done <- s.Picks.Pick(t.Context(), &picks.Request{Target: "shop", Path: "/", Wait: time.Minute}, &out)
		}()
		synctest.Wait()
		servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/", "b")))
		if err := <-done; err != nil || out.Picks[0].Cluster != "b" {
			t.Errorf("%+v, %v", out, err)
		}
		if c, err := s.State.Cluster(t.Context(), "a", "shop", false); servicetest.Code(err) != fault.UnknownCluster {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// TestAwaitFollowsTheTree: of a target, not of the cluster's own.
func TestAwaitFollowsTheTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/", "a")), servicetest.Assigned("a", "a-1"))
		before := clusterState(t, s, "a", "shop", false)
		done := make(chan error)
		go func() { done <- s.State.AwaitCluster(t.Context(), "a", "shop", before.Generation, time.Hour) }()
		synctest.Wait()
		servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/a", "a")))
		if err := <-done; err != nil {
			t.Error(err)
		}
		if after, err := s.State.Cluster(t.Context(), "a", "shop", false); err != nil || after.Generation == before.Generation {
			t.Errorf("%+v, %v", after, err)
		}
	})
}

func TestNamesOfTargets(t *testing.T) {
	for name, want := range map[string]string{
		"shop": "xds:///shop", "xds:///shop": "xds:///shop", "xds:shop": "xds:///shop", "a/b": "xds:///a/b",
		"xds://traffic/shop": "xds://traffic/shop", "//traffic/shop": "xds://traffic/shop",
		"": "", "xds:": "", "xds:///": "", "/shop": "", "xds:////shop": "", "xds://traffic": "", "xds://traffic/": "", "a\nb": "", "\xff": "",
		strings.Repeat("a", decode.MaxNameBytes): "",
	} {
		got, err := ledger.TargetName(name)
		if got != want || (err == nil) != (want != "") || err != nil && servicetest.Code(err) != fault.InvalidArgument {
			t.Errorf("%q: got %q, %v; want %q", name, got, err, want)
		}
	}
}
