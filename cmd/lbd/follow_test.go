package main

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	ringhashv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	rsrc "github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/sources"
)

// xdsState asks for /v1/xds.
func xdsState(t *testing.T, url, query string) sources.XDSState {
	t.Helper()
	return get[sources.XDSState](t, url+"/v1/xds?"+query)
}

// TestSnapshotCache follows a SnapshotCache: its first snapshot, a change, and an
// invalid one.
func TestSnapshotCache(t *testing.T) {
	t.Parallel()
	plane, p := serveSnapshot(t, edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80"))
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p)})
	expectPick(t, url, "cluster=orders", "10.0.0.1:80")
	caller := call(t, url, "cluster=orders")
	plane.set(edsCluster("orders"), assignmentOf("orders", "10.0.0.2:80"))
	eventually(t, "the change", func() bool { return picked(t, url, "cluster=orders") == "10.0.0.2:80" })

	wrong := edsCluster("orders")
	wrong.LbPolicy = clusterv3.Cluster_MAGLEV
	plane.set(wrong, assignmentOf("orders", "10.0.0.3:80"))
	const why = "Cluster/orders: lb_policy: "
	eventually(t, "the NACK at the server", func() bool { return p.refused(why) })
	// What is good of the same snapshot is taken, what is bad stays as it was.
	eventually(t, "the good part", func() bool { return picked(t, url, "cluster=orders") == "10.0.0.3:80" })
	untilMetric(t, url, `lbd_xds_resources{state="nacked_but_cached",type="Cluster"}`, "1")
	// It is sent again, and refused again, as long as the server has it.
	if n := metric(t, url, `lbd_xds_updates_total{result="invalid",server="`+p.address+`",type="Cluster"}`); n == "" || n == "0" {
		t.Errorf("%q refusals are counted", n)
	}
	expectEvent(t, url, "xds_rejected", why)
	state := xdsState(t, url, "type=Cluster")
	if len(state.Resources) != 1 || state.Total != 1 {
		t.Fatalf("%+v", state)
	}
	r := state.Resources[0]
	if r.State != "nacked_but_cached" || r.Version == "3" || r.Rejected == nil || r.Rejected.Version != "3" || !strings.Contains(r.Rejected.Reason, "lb_policy") {
		t.Errorf("%+v, %+v", r, r.Rejected)
	}
	if a := do(t, "GET", url+"/pick?cluster=orders", ""); a.header.Get("Lbd-Stale") != "" {
		t.Error("a refused resource makes stale what the server stands by")
	}

	plane.set(edsCluster("orders"), assignmentOf("orders", "10.0.0.3:80"))
	untilMetric(t, url, `lbd_xds_resources{state="acked",type="Cluster"}`, "1")
	caller.more()

	eventually(t, "an event that describes the change", func() bool {
		return strings.Contains(do(t, "GET", url+"/v1/events?type=xds_changed&cluster=orders", "").body, "(10.0.0.3:80)")
	})
}

func TestLinearCache(t *testing.T) {
	t.Parallel()
	clusters := cache.NewLinearCache(rsrc.ClusterType, cache.WithInitialResources(map[string]types.Resource{"orders": edsCluster("orders")}))
	assignments := cache.NewLinearCache(rsrc.EndpointType, cache.WithInitialResources(map[string]types.Resource{"orders": assignmentOf("orders", "10.0.0.1:80")}))
	both := &cache.MuxCache{
		Classify:      func(r *cache.Request) string { return r.GetTypeUrl() },
		ClassifyDelta: func(r *cache.DeltaRequest) string { return r.GetTypeUrl() },
		Caches:        map[string]cache.Cache{rsrc.ClusterType: clusters, rsrc.EndpointType: assignments},
	}
	p := newControlPlane(t, both)
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p)})
	expectPick(t, url, "cluster=orders", "10.0.0.1:80")
	update := func(c *cache.LinearCache, name string, r types.Resource) {
		noError(t, c.UpdateResource(name, r))
	}
	update(assignments, "orders", assignmentOf("orders", "10.0.0.2:80"))
	eventually(t, "the change", func() bool { return picked(t, url, "cluster=orders") == "10.0.0.2:80" })
	update(assignments, "orders", assignmentOf("", "10.0.0.3:80"))
	eventually(t, "the NACK", func() bool { return p.refused("cluster_name") })
	expectPick(t, url, "cluster=orders", "10.0.0.2:80")
	// A pick waits for a late cluster.
	late := pickLater(t, url, "cluster=late")
	eventually(t, "the question", func() bool { return xdsState(t, url, "prefix=late&state=requested").Total == 1 })
	update(assignments, "late", assignmentOf("late", "10.0.0.9:80"))
	update(clusters, "late", edsCluster("late"))
	if got := <-late; got.address() != "10.0.0.9:80" {
		t.Errorf("picked %+v", got)
	}
	noError(t, clusters.DeleteResource("late"))
	// A deleted cluster stays in use, which is reported (gRFC A88).
	eventually(t, "its deletion", func() bool { return xdsState(t, url, "prefix=late&state=does_not_exist_but_cached").Total == 1 })
	expectPick(t, url, "cluster=late", "10.0.0.9:80")
	expectEvent(t, url, "xds_resource_error", "Cluster/late does not exist")
	untilMetric(t, url, `lbd_xds_resources{state="does_not_exist_but_cached",type="Cluster"}`, "1")
	update(clusters, "late", edsCluster("late"))
	eventually(t, "its return", func() bool { return xdsState(t, url, "prefix=late&type=Cluster&state=acked").Total == 1 })
}

// TestPushTakesPrecedence pushes over resources of a management server and deletes the push, during
// picks.
func TestPushTakesPrecedence(t *testing.T) {
	t.Parallel()
	plane, p := serveSnapshot(t, edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80"))
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), Data: t.TempDir()})
	caller := call(t, url, "cluster=orders")
	caller.more()
	for i := range 3 {
		pushed := fmt.Sprintf("10.0.1.%d:80", i)
		pushEndpoints(t, url, "orders", pushed)
		expectPick(t, url, "cluster=orders", pushed)
		caller.more()
		expect(t, http.StatusOK, "DELETE", url+"/v1/clusters/orders/endpoints", "")
		eventually(t, "the server's", func() bool { return picked(t, url, "cluster=orders") == "10.0.0.1:80" })
		caller.more()
	}
	// The same for a cluster that was not requested before.
	plane.set(edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80"), edsCluster("cart"), assignmentOf("cart", "10.0.0.2:80"))
	do(t, "PUT", url+"/v1/clusters/cart/endpoints", envoyFile("cart", "10.0.1.9:80"))
	other := call(t, url, "cluster=cart")
	other.more()
	do(t, "DELETE", url+"/v1/clusters/cart/endpoints", "")
	eventually(t, "the server's", func() bool { return picked(t, url, "cluster=cart") == "10.0.0.2:80" })
	other.more()
}

// TestTargetsOfServer hosts targets by flag, API and pushed Listener, with clusters of the
// management server.
func TestTargetsOfServer(t *testing.T) {
	t.Parallel()
	beta := route("/", "beta")
	beta.Match.Headers = []*routev3.HeaderMatcher{{Name: "tenant", HeaderMatchSpecifier: &routev3.HeaderMatcher_ExactMatch{ExactMatch: "beta"}}}
	world := []types.Resource{
		listenerTo(t, "shop", "shop-routes"), listenerTo(t, "other", "shop-routes"),
		routesOf("shop-routes", beta, route("/cart/", "cart"), route("/", "a", "b")),
	}
	for i, name := range []string{"a", "b", "beta", "cart"} {
		world = append(world, edsCluster(name), assignmentOf(name, fmt.Sprintf("10.0.0.%d:80", i+1)))
	}
	plane, p := serveSnapshot(t, world...)
	data := t.TempDir()
	config := Config{Bootstrap: bootstrapOf(t, p), Target: []string{"xds:///shop"}, Data: data}
	t.Run("hosted", func(t *testing.T) {
		url := startFollowing(t, config)
		expectPick(t, url, "target=shop&path=/cart/add", "10.0.0.4:80")
		expectPick(t, url, "target=xds:///shop&header.Tenant=beta", "10.0.0.3:80")
		seen := make(map[string]bool)
		eventually(t, "a pick of each weighted cluster", func() bool {
			seen[picked(t, url, "target=shop")] = true
			return seen["10.0.0.1:80"] && seen["10.0.0.2:80"]
		})
		if len(seen) != 2 {
			t.Errorf("the weighted clusters are %v", seen)
		}
		expectPick(t, url, "target=other", "unknown_target")
		expect(t, http.StatusCreated, "PUT", url+"/v1/targets/other", "")
		expectPick(t, url, "target=other&path=/cart/", "10.0.0.4:80")
		// A route changes, under picks.
		caller := call(t, url, "target=shop&path=/cart/add")
		caller.more()
		world[2] = routesOf("shop-routes", route("/", "beta"))
		plane.set(world...)
		eventually(t, "the other route", func() bool { return picked(t, url, "target=shop&path=/cart/add") == "10.0.0.3:80" })
		caller.more()
		caller.stop()
		// The Listener is deleted, which changes nothing, and comes back.
		plane.set(world[1:]...)
		eventually(t, "its deletion", func() bool { return xdsState(t, url, "type=Listener&state=does_not_exist_but_cached").Total == 1 })
		expectPick(t, url, "target=shop", "10.0.0.3:80")
		plane.set(world...)
		eventually(t, "its return", func() bool { return xdsState(t, url, "type=Listener&state=does_not_exist_but_cached").Total == 0 })
	})
	t.Run("restarted", func(t *testing.T) {
		url := startFollowing(t, config)
		expectPick(t, url, "target=other&path=/cart/", "10.0.0.3:80")
		expect(t, http.StatusOK, "DELETE", url+"/v1/targets/other", "")
		expectPick(t, url, "target=other", "unknown_target")
		eventually(t, "the server is not asked for it any more", func() bool { return xdsState(t, url, "prefix=other").Total == 0 })
		// Hosted again it is asked for again.
		do(t, "PUT", url+"/v1/targets/other", "")
		expectPick(t, url, "target=other", "10.0.0.3:80")
		// A Listener that is pushed hosts a target whose clusters are the server's.
		a := do(t, "POST", url+"/v1/snapshot", `{"resources":[{"@type":"type.googleapis.com/envoy.config.listener.v3.Listener","name":"mine",
			"api_listener":{"api_listener":{"@type":"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
			"route_config":{"virtual_hosts":[{"domains":["*"],"routes":[{"match":{"prefix":"/"},"route":{"cluster":"cart"}}]}]}}}}]}`)
		if a.status != http.StatusOK {
			t.Fatalf("%+v", a)
		}
		expectPick(t, url, "target=mine", "10.0.0.4:80")
	})
}

// TestAuthorities gives two authorities a server each.
func TestAuthorities(t *testing.T) {
	t.Parallel()
	const far = "xdstp://far/envoy.config.listener.v3.Listener/shop"
	const near = "shop"
	one, two := newSnapshots(t), newSnapshots(t)
	one.set(listenerTo(t, near, "routes"), routesOf("routes", route("/", "a")), edsCluster("a"), assignmentOf("a", "10.0.0.1:80"))
	farRoutes, farCluster, farAssignment := "xdstp://far/envoy.config.route.v3.RouteConfiguration/r", "xdstp://far/envoy.config.cluster.v3.Cluster/c", "xdstp://far/envoy.config.endpoint.v3.ClusterLoadAssignment/e"
	c := edsCluster(farCluster)
	c.EdsClusterConfig.ServiceName = farAssignment
	two.set(listenerTo(t, far, farRoutes), routesOf(farRoutes, route("/", farCluster)), c, assignmentOf(farAssignment, "10.0.0.2:80"))
	first, second := newControlPlane(t, one), newControlPlane(t, two)
	url := startFollowing(t, Config{
		Bootstrap: writeBootstrap(t, fmt.Sprintf(`{"node":{"id":"test"},"xds_servers":[%s],"authorities":{"far":{"xds_servers":[%s]}}}`, serversOf(first), serversOf(second))),
		Target:    []string{"xds:///shop", "xds://far/shop"},
	})
	expectPick(t, url, "target=shop", "10.0.0.1:80")
	expectPick(t, url, "target=xds://far/shop", "10.0.0.2:80")
	// Each is stale while its own server is away, and the other is not.
	isStale := func(target string) bool {
		return do(t, "GET", url+"/pick?target="+target, "").header.Get("Lbd-Stale") == "true"
	}
	second.kill()
	eventually(t, "the far one to be stale", func() bool { return isStale("xds://far/shop") })
	if isStale("shop") {
		t.Error("the other authority's server is there")
	}
	second.start()
	eventually(t, "the far one to be fresh", func() bool { return !isStale("xds://far/shop") })
	// The error of an unknown authority has its name.
	expect(t, http.StatusCreated, "PUT", url+"/v1/targets/"+strings.ReplaceAll("xds://nowhere/shop", "/", "%2F"), "")
	expect(t, http.StatusServiceUnavailable, "GET", url+"/pick?target=xds://nowhere/shop", "", "nowhere")
}

// TestClusterTypes takes aggregate and LOGICAL_DNS clusters of a management
// server.
func TestClusterTypes(t *testing.T) {
	t.Parallel()
	address, _ := upstream(t)
	dns := dnsCluster(strings.Replace(address, "127.0.0.1", "localhost", 1))
	world := []types.Resource{
		aggregateOf(t, "all", "dns", "orders"), aggregateOf(t, "broken", "orders", "nowhere"),
		dns, edsCluster("orders"), assignmentOf("orders", "127.0.0.1:1"),
	}
	plane, p := serveSnapshot(t, world...)
	url := startFollowing(t, Config{Bootstrap: failingBootstrapOf(t, p), Connect: "tcp_hold"})
	for _, cluster := range []string{"dns", "all"} {
		// localhost may also have an IPv6 address, on which nothing listens.
		expectPick(t, url, "cluster="+cluster, address)
	}
	// A pick waits for the leaves of an aggregate.
	done := pickLater(t, url, "cluster=broken")
	eventually(t, "the question for the missing part", func() bool { return xdsState(t, url, "prefix=nowhere").Total == 1 })
	other := aggregateOf(t, "nowhere", "dns")
	plane.set(append(slices.Clone(world), other)...)
	if a := <-done; a.address() != address {
		t.Errorf("the aggregate is whole: %+v", a)
	}
	// The state names a missing leaf.
	plane.set(world...)
	eventually(t, "the missing part", func() bool {
		return do(t, "GET", url+"/pick?cluster=broken", "").address() == "no_ready_endpoint"
	})
	expect(t, http.StatusOK, "GET", url+"/v1/clusters/broken", "", "nowhere")
}

// aggregateOf is a cluster made of others.
func aggregateOf(t *testing.T, name string, of ...string) *clusterv3.Cluster {
	t.Helper()
	return &clusterv3.Cluster{
		Name: name,
		ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: "envoy.clusters.aggregate", TypedConfig: packed(t, &aggregatev3.ClusterConfig{Clusters: of}),
		}},
	}
}

// TestRingHashWithoutFunction: a RingHash without hash_function is rejected from a
// management server, as gRPC does, and taken as XX_HASH with a warning when pushed.
func TestRingHashWithoutFunction(t *testing.T) {
	t.Parallel()
	plane := newSnapshots(t)
	ring := edsCluster("orders")
	ring.LoadBalancingPolicy = &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "r", TypedConfig: packed(t, &ringhashv3.RingHash{})},
	}}}
	plane.set(ring, assignmentOf("orders", "10.0.0.1:80"))
	p := newControlPlane(t, plane)
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p)})
	do(t, "GET", url+"/pick?cluster=orders&wait=0s", "") // has lbd ask for it
	eventually(t, "the NACK at the server", func() bool { return p.refused("hash_function: DEFAULT_HASH is not supported") })

	const body = `{"type":"EDS","load_balancing_policy":{"policies":[{"typed_extension_config":{"name":"r","typed_config":` +
		`{"@type":"type.googleapis.com/envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash"}}}]}}`
	expect(t, http.StatusCreated, "PUT", url+"/v1/clusters/pushed/config", body, "taken as XX_HASH")
}

// ambientErrors returns the resources of a state that are in use despite an error.
func ambientErrors(t *testing.T, url string) string {
	t.Helper()
	state := get[struct {
		AmbientErrors []observe.AmbientError `json:"ambient_errors"`
	}](t, url)
	var out []string
	for _, e := range state.AmbientErrors {
		if e.Error == "" || e.Since.IsZero() {
			t.Errorf("%+v", e)
		}
		out = append(out, e.Resource)
	}
	return strings.Join(out, " ")
}

// TestAmbientErrorsAreShown: a Cluster and a Listener that the server deletes are shown
// by the clusters and targets that use them, and in the detail of picks that fail. The
// tree stays as it is.
func TestAmbientErrorsAreShown(t *testing.T) {
	t.Parallel()
	endpoint, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	defer endpoint.Close()
	world := []types.Resource{
		listenerTo(t, "shop", "shop-routes"), edsCluster("cart"),
		routesOf("shop-routes", route("/cart/", "cart"), route("/", "orders")), edsCluster("orders"),
		assignmentOf("cart", endpoint.Addr().String()), assignmentOf("orders", endpoint.Addr().String()),
	}
	plane, p := serveSnapshot(t, world...)
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), Target: []string{"xds:///shop"}, Connect: "tcp"})
	for _, path := range []string{"/cart/", "/"} { // both are connected: nothing else makes a generation
		expectPick(t, url, "target=shop&path="+path, endpoint.Addr().String())
	}
	shown := func(path, want string) {
		t.Helper()
		eventually(t, path+" with "+want, func() bool { return ambientErrors(t, url+path) == want })
	}
	const cart, orders, shop = "/v1/clusters/cart?target=shop", "/v1/clusters/orders?target=shop", "/v1/targets/shop"
	shown(cart, "")
	generation := get[observe.ClusterSummary](t, url+cart).Generation

	plane.set(append([]types.Resource{world[0]}, world[2:]...)...)
	shown(cart, "Cluster/cart")
	shown(orders, "")
	shown(shop, "Cluster/cart")
	plane.set(world[2:]...)
	shown(cart, "Listener/shop Cluster/cart")
	shown(orders, "Listener/shop")
	shown(shop, "Cluster/cart Listener/shop")
	if got := get[observe.ClusterSummary](t, url+cart).Generation; got != generation {
		t.Errorf("an ambient error makes generation %d of %d", got, generation)
	}

	_ = endpoint.Close()
	const note = "using the cached Cluster/cart: Cluster/cart does not exist: management server "
	eventually(t, "a pick that fails with the note", func() bool {
		a := do(t, "GET", url+"/pick?target=shop&path=/cart/", "")
		return a.status == http.StatusServiceUnavailable && strings.Contains(a.body, "(resolution note: using the cached Listener/shop:") && strings.Contains(a.body, note)
	})
	plane.set(world...)
	shown(cart, "")
	shown(shop, "")
	eventually(t, "a pick that fails without a note", func() bool {
		a := do(t, "GET", url+"/pick?target=shop&path=/cart/", "")
		return a.status == http.StatusServiceUnavailable && !strings.Contains(a.body, "note")
	})
}

// TestChangesWhileATargetWaits: while a target waits for an unknown cluster, it uses drains and pushes of its
// other clusters, and what waits with it says so.
func TestChangesWhileATargetWaits(t *testing.T) {
	t.Parallel()
	world := []types.Resource{
		listenerTo(t, "shop", "routes"), routesOf("routes", route("/a", "a"), route("/b", "b")),
		edsCluster("a"), assignmentOf("a", "10.0.0.1:80", "10.0.0.2:80"), edsCluster("b"),
	}
	plane, p := serveSnapshot(t, world...)
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), Target: []string{"xds:///shop"}})
	expect(t, http.StatusCreated, "PUT", url+"/v1/clusters/b/endpoints", envoyFile("b", "10.0.1.1:80"))
	expectPick(t, url, "target=shop&path=/b", "10.0.1.1:80")
	world[1] = routesOf("routes", route("/a", "a"), route("/b", "b"), route("/c", "unknown"))
	plane.set(world...)
	eventually(t, "the wait", func() bool { return xdsState(t, url, "type=Cluster&prefix=unknown").Total == 1 })

	expect(t, http.StatusCreated, "PUT", url+"/v1/clusters/a/overlays/one", `{"kind":"drain","endpoint":"10.0.0.1:80"}`)
	for range 4 {
		expectPick(t, url, "target=shop&path=/a", "10.0.0.2:80")
	}
	expect(t, http.StatusOK, "PUT", url+"/v1/clusters/b/endpoints", envoyFile("b", "10.0.1.2:80"))
	expectPick(t, url, "target=shop&path=/b", "10.0.1.2:80")
	expect(t, http.StatusOK, "DELETE", url+"/v1/clusters/b/endpoints", "", "ClusterLoadAssignment/b", "is not in force yet")
	expectPick(t, url, "target=shop&path=/b", "10.0.1.2:80")
	expectPick(t, url, "target=shop&path=/b&min_index=4", "index_not_reached")
	world = append(world, edsCluster("unknown"), assignmentOf("unknown", "10.0.2.1:80"), assignmentOf("b", "10.0.1.3:80"))
	plane.set(world...)
	expectPick(t, url, "target=shop&path=/b&min_index=4&wait=5s", "10.0.1.3:80")
}
