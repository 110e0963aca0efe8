package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/lbd-dev/lbd/xds/lastgood"
)

// staleness returns the Lbd-Stale header of a pick, which comes with Age.
func staleness(t *testing.T, url, query string) string {
	t.Helper()
	a := do(t, "GET", url+"/pick?"+query, "")
	if a.status != http.StatusOK {
		t.Errorf("a pick failed: %+v", a)
	}
	if stale := a.header.Get("Lbd-Stale"); stale == "" || a.header.Get("Age") == "" {
		return stale + a.header.Get("Age")
	}
	return a.header.Get("Lbd-Stale")
}

// expectStale makes a pick whose Lbd-Stale header must have a value; "" without.
func expectStale(t *testing.T, url, query, want string) {
	t.Helper()
	if got := staleness(t, url, query); got != want {
		t.Errorf("%s: stale is %q, want %q", query, got, want)
	}
}

// TestServerRestart restarts the management server during picks, with and without
// new resources.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	plane, p := serveSnapshot(t,
		edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80"), edsCluster("cart"), assignmentOf("cart", "10.0.0.3:80"),
		listenerTo(t, "shop", "routes"), routesOf("routes", route("/", "orders")),
	)
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), Target: []string{"xds:///shop"}, Data: t.TempDir()})
	callers := []*caller{call(t, url, "cluster=orders"), call(t, url, "target=shop"), call(t, url, "cluster=cart")}
	for _, c := range callers {
		c.more()
	}
	for _, query := range []string{"cluster=orders", "target=shop"} {
		expectStale(t, url, query, "")
	}
	for _, news := range []bool{false, true} {
		p.kill()
		untilMetric(t, url, `lbd_cluster_stale{cluster="orders"}`, "1")
		untilMetric(t, url, `lbd_cluster_stale{cluster="cart"}`, "1")
		untilMetric(t, url, `lbd_xds_connected{server="`+p.address+`"}`, "0")
		for _, query := range []string{"cluster=orders", "target=shop"} {
			expectStale(t, url, query, "true")
		}
		expect(t, http.StatusOK, "GET", url+"/v1/clusters/orders?endpoints=false", "", `"stale":true`)
		expectEvent(t, url, "xds_disconnected", p.address)
		want := "10.0.0.1:80"
		if news {
			want = "10.0.0.2:80"
			plane.set(
				edsCluster("orders"), assignmentOf("orders", want), edsCluster("cart"), assignmentOf("cart", "10.0.0.3:80"),
				listenerTo(t, "shop", "routes"), routesOf("routes", route("/", "orders")),
			)
		}
		p.start()
		untilMetric(t, url, `lbd_xds_connected{server="`+p.address+`"}`, "1")
		untilMetric(t, url, `lbd_cluster_stale{cluster="orders"}`, "0")
		untilMetric(t, url, `lbd_cluster_stale{cluster="cart"}`, "0")
		for _, query := range []string{"cluster=orders", "target=shop"} {
			eventually(t, query+" fresh and new", func() bool {
				return staleness(t, url, query) == "" && picked(t, url, query) == want
			})
		}
	}
	for _, c := range callers {
		c.more()
	}
}

// TestStaleAfterRejection: after a reconnect the cluster is not stale, although the server sends the
// rejected version again.
func TestStaleAfterRejection(t *testing.T) {
	t.Parallel()
	plane, p := serveSnapshot(t, dnsCluster("localhost:80"))
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p)})
	caller := call(t, url, "cluster=dns")
	caller.more()
	wrong := dnsCluster("localhost:80")
	wrong.LbPolicy = clusterv3.Cluster_MAGLEV
	plane.set(wrong)
	untilMetric(t, url, `lbd_xds_resources{state="nacked_but_cached",type="Cluster"}`, "1")
	p.kill()
	untilMetric(t, url, `lbd_cluster_stale{cluster="dns"}`, "1")
	p.start()
	untilMetric(t, url, `lbd_cluster_stale{cluster="dns"}`, "0")
	caller.more()
}

// TestFallback uses the second of two servers for a cluster that the first did not send,
// and returns. A cluster with all resources stays with the first.
func TestFallback(t *testing.T) {
	t.Parallel()
	one, two := newSnapshots(t), newSnapshots(t)
	one.set(edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80"))
	two.set(edsCluster("orders"), assignmentOf("orders", "10.0.0.2:80"), edsCluster("cart"), assignmentOf("cart", "10.0.0.3:80"))
	first, second := newControlPlane(t, one), newControlPlane(t, two)
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, first, second)})
	connected := func(p *controlPlane) string { return metric(t, url, `lbd_xds_connected{server="`+p.address+`"}`) }
	if got := connected(first); got != "" {
		t.Errorf("lbd_xds_connected of the first server is %q before any request, want none", got)
	}
	caller := call(t, url, "cluster=orders")
	caller.more()
	if one, two := connected(first), connected(second); one != "1" || two != "" {
		t.Errorf("the first is in use: connected are %q and %q", one, two)
	}
	first.kill()
	untilMetric(t, url, `lbd_cluster_stale{cluster="orders"}`, "1")
	// The second server is asked for a missing resource.
	expectPick(t, url, "cluster=cart", "10.0.0.3:80")
	expectPick(t, url, "cluster=orders", "10.0.0.1:80")
	if got := metric(t, url, `lbd_cluster_stale{cluster="cart"}`); got != "0" {
		t.Errorf("the second has cart: stale is %s", got)
	}
	untilMetric(t, url, `lbd_cluster_stale{cluster="orders"}`, "1")
	if one, two := connected(first), connected(second); one != "0" || two != "1" {
		t.Errorf("the second stands in for the first: connected are %q and %q", one, two)
	}
	expectEvent(t, url, "xds_fell_back", second.address)
	caller.more()
	state := xdsState(t, url, "")
	if state.TargetsTotal != 2 || state.Fallbacks != 1 || len(state.Targets) != 2 ||
		state.Targets[0].Target != "cluster:cart" || state.Targets[0].Server != second.address ||
		state.Targets[1].Target != "cluster:orders" || state.Targets[1].Server != first.address || state.Targets[1].Fallback {
		t.Errorf("targets are %+v", state.Targets)
	}

	one.set(edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80"), edsCluster("cart"), assignmentOf("cart", "10.0.0.4:80"))
	first.start()
	eventually(t, "what the first says", func() bool { return picked(t, url, "cluster=cart") == "10.0.0.4:80" })
	if one, two := connected(first), connected(second); one != "1" || two != "" {
		t.Errorf("the first is in use again: connected are %q and %q", one, two)
	}
	expectEvent(t, url, "xds_returned", first.address)
	untilMetric(t, url, `lbd_cluster_stale{cluster="orders"}`, "0")
	for _, s := range xdsState(t, url, "").Servers {
		if is := s.Server == first.address; s.Connected != is || s.Active != is {
			t.Errorf("%+v", s)
		}
	}
	caller.more()
}

// TestRestartWithoutServer: without the server, a restarted daemon serves the last good
// version, marked as stale.
func TestRestartWithoutServer(t *testing.T) {
	t.Parallel()
	plane, p := serveSnapshot(t,
		edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80"), edsCluster("gone"), assignmentOf("gone", "10.0.0.7:80"),
		listenerTo(t, "shop", "routes"), routesOf("routes", route("/", "orders")),
	)
	data := filepath.Join(t.TempDir(), "data")
	flags := []string{"--data=" + data, "--connect=none", "--pick-wait=30s", "--bootstrap=" + bootstrapOf(t, p), "--target=shop"}
	d := startProcess(t, flags...)
	for query, want := range map[string]string{"cluster=orders": "10.0.0.1:80", "cluster=gone": "10.0.0.7:80", "target=shop": "10.0.0.1:80"} {
		expectPick(t, d.url, query, want)
	}
	eventually(t, "what is kept", func() bool { return kept(t, data) == 6 })
	p.kill()
	untilMetric(t, d.url, `lbd_cluster_stale{cluster="orders"}`, "1")
	d.kill(t)
	d = startProcess(t, flags...)
	for query, want := range map[string]string{"cluster=orders": "10.0.0.1:80", "cluster=gone": "10.0.0.7:80", "target=shop": "10.0.0.1:80"} {
		expectPick(t, d.url, query, want)
		expectStale(t, d.url, query, "true")
	}
	expect(t, http.StatusOK, "GET", d.url+"/v1/clusters/orders?endpoints=false", "", `"source":"cache"`, `"stale":true`)
	untilMetric(t, d.url, `lbd_cluster_stale{cluster="orders"}`, "1")
	callers := []*caller{call(t, d.url, "cluster=orders"), call(t, d.url, "target=shop")}
	plane.set(
		edsCluster("orders"), assignmentOf("orders", "10.0.0.2:80"),
		listenerTo(t, "shop", "routes"), routesOf("routes", route("/", "orders")),
	)
	p.start()
	for _, query := range []string{"cluster=orders", "target=shop"} {
		eventually(t, "what the server says now", func() bool {
			return picked(t, d.url, query) == "10.0.0.2:80" && staleness(t, d.url, query) == ""
		})
	}
	for _, c := range callers {
		c.more()
		c.stop()
	}
}

// kept returns the number of resources on disk, as after a kill. A copy of the file during a
// write has none.
func kept(t *testing.T, data string) int {
	t.Helper()
	const file = "last-known-good/lbd.db"
	body, err := os.ReadFile(filepath.Join(data, file))
	noError(t, err)
	dir := t.TempDir()
	noError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o750))
	writeFile(t, filepath.Join(dir, file), body)
	c := lastgood.OpenResources(dir, nil)
	n := 0
	for range c.All() {
		n++
	}
	noError(t, c.Close())
	return n
}

// TestIdleClustersInOutage: while the management server is unreachable, resources of idle
// clusters are kept for later picks, also after a restart.
func TestIdleClustersInOutage(t *testing.T) {
	t.Parallel()
	_, p := serveSnapshot(t,
		edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80"), edsCluster("cart"), assignmentOf("cart", "10.0.0.3:80"),
	)
	c := Config{Bootstrap: bootstrapOf(t, p), Data: t.TempDir(), OnDemandIdle: time.Second, PickWait: 2 * time.Second}
	idle := func(url string) {
		eventually(t, "the end of what is idle", func() bool { return xdsState(t, url, "").OnDemand.Clusters == 0 })
	}
	t.Run("released", func(t *testing.T) {
		url := startFollowing(t, c)
		orders, cart := call(t, url, "cluster=orders"), call(t, url, "cluster=cart")
		orders.more()
		cart.more()
		p.kill()
		untilMetric(t, url, `lbd_cluster_stale{cluster="orders"}`, "1")
		orders.stop()
		cart.stop()
		idle(url)
		expectStale(t, url, "cluster=orders", "true")
	})
	t.Run("restarted", func(t *testing.T) {
		url := startFollowing(t, c)
		expectStale(t, url, "cluster=cart", "true")
		idle(url)
		expectStale(t, url, "cluster=orders", "true")
	})
}
