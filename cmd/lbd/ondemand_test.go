package main

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	rsrc "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// heap returns the live heap in bytes.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // after finalizers
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestOnDemand picks from clusters by name, up to the limit.
func TestOnDemand(t *testing.T) {
	t.Parallel()
	var world []types.Resource
	for i := range 6 {
		name := fmt.Sprint("c", i)
		world = append(world, edsCluster(name), assignmentOf(name, fmt.Sprintf("10.0.0.%d:80", i)))
	}
	_, p := serveSnapshot(t, world...)
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), OnDemand: 3, OnDemandIdle: time.Second})
	caller := call(t, url, "cluster=c0")
	caller.more()
	for _, name := range []string{"c1", "c2"} {
		expect(t, http.StatusOK, "GET", url+"/pick?cluster="+name, "")
	}
	// On a slow machine, c1 and c2 may have been released.
	eventually(t, "a refusal", func() bool {
		for i := 1; i < 6; i++ {
			a := do(t, "GET", url+"/pick?cluster="+fmt.Sprint("c", i), "")
			if a.status == http.StatusTooManyRequests {
				if a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "limit of clusters on demand reached (3,") {
					t.Errorf("%+v", a)
				}
				return true
			}
		}
		return false
	})
	// Idle clusters are released.
	eventually(t, "the end of those that are idle", func() bool {
		state := xdsState(t, url, "")
		return state.OnDemand.Clusters == 1 && state.Total == 2 && state.OnDemand.Max == 3
	})
	eventually(t, "a place for others", func() bool { return do(t, "GET", url+"/pick?cluster=c5", "").status == http.StatusOK })
	caller.more()
	// A released cluster returns with the next pick.
	coming := call(t, url, "cluster=c4&n=2")
	coming.more()
}

// TestReleasedUnderPicks: picks that are rarer than the idle time release the cluster each time.
func TestReleasedUnderPicks(t *testing.T) {
	t.Parallel()
	_, p := serveSnapshot(t, edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80"))
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), OnDemandIdle: time.Second})
	for range 2 {
		expectPick(t, url, "cluster=orders", "10.0.0.1:80")
		eventually(t, "its end", func() bool { return xdsState(t, url, "").OnDemand.Clusters == 0 })
		expect(t, http.StatusNotFound, "GET", url+"/v1/clusters/orders", "")
		if state := xdsState(t, url, ""); state.Total != 0 {
			t.Errorf("%+v", state.Resources)
		}
	}
}

// TestUnusedResourcesAreRemovedFromDisk: resources of clusters without picks since the restart are
// removed from disk.
func TestUnusedResourcesAreRemovedFromDisk(t *testing.T) {
	t.Parallel()
	_, p := serveSnapshot(t, edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80"), edsCluster("cart"), assignmentOf("cart", "10.0.0.2:80"))
	data := t.TempDir()
	t.Run("before", func(t *testing.T) {
		url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), Data: data})
		picked(t, url, "cluster=orders")
		picked(t, url, "cluster=cart")
		eventually(t, "both on disk", func() bool { return kept(t, data) == 4 })
	})
	t.Run("after", func(t *testing.T) {
		url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), Data: data, OnDemandIdle: time.Second})
		caller := call(t, url, "cluster=orders")
		eventually(t, "one of them on disk", func() bool { return kept(t, data) == 2 })
		caller.more()
	})
}

// TestQueuedPickOfReleasedCluster: a queued pick requests a released cluster again.
func TestQueuedPickOfReleasedCluster(t *testing.T) {
	t.Parallel()
	plane, p := serveSnapshot(t, edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80"))
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), OnDemandIdle: time.Second})
	answered := pickLater(t, url, "cluster=late&wait=60s")
	eventually(t, "another question", func() bool {
		select {
		case got := <-answered:
			t.Fatalf("the pick did not wait: %+v", got)
		default:
		}
		return p.askedFor(rsrc.ClusterType, "late") > 1
	})
	plane.set(edsCluster("late"), assignmentOf("late", "10.0.0.2:80"))
	if got := <-answered; got.address() != "10.0.0.2:80" {
		t.Errorf("the pick that waits: %+v", got)
	}
}

// TestUnknownNameIsNotRecorded: an unknown name is in no metric, event or list.
func TestUnknownNameIsNotRecorded(t *testing.T) {
	t.Parallel()
	_, p := serveSnapshot(t, edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80"))
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), OnDemandIdle: 16 * time.Second})
	picked(t, url, "cluster=orders")
	a := do(t, "GET", url+"/pick?cluster=nowhere&wait=1ms", "")
	if a.address() != "pick_timeout" || !strings.Contains(a.body, "not known yet") {
		t.Errorf("%+v", a)
	}
	untraced(t, url, "nowhere")
	if os.Getenv("LBD_TEST_LONG") == "" {
		return
	}
	// The server has 15 s to send it.
	expectPick(t, url, "cluster=nowhere&wait=30s", "unknown_cluster")
	untraced(t, url, "nowhere")
	eventually(t, "its end", func() bool { return xdsState(t, url, "").OnDemand.Clusters == 0 })
	if state := xdsState(t, url, "prefix=nowhere"); state.Total != 0 {
		t.Errorf("%+v", state)
	}
}

// untraced checks that a name is in no metric, event or list.
func untraced(t *testing.T, url, name string) {
	t.Helper()
	for _, at := range []string{"/metrics", "/metrics/endpoints", "/v1/events", "/v1/clusters"} {
		if a := do(t, "GET", url+at, ""); a.status != http.StatusOK || strings.Contains(a.body, name) {
			t.Errorf("%s has %s: %d", at, name, a.status)
		}
	}
	expect(t, http.StatusNotFound, "GET", url+"/v1/clusters/"+name, "")
}

// TestClustersAddedAndDeleted: repeatedly added and deleted clusters leave no metrics and goroutines.
func TestClustersAddedAndDeleted(t *testing.T) {
	t.Parallel()
	plane := newSnapshots(t)
	orders := []types.Resource{edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80")}
	plane.set(orders...)
	p := newControlPlane(t, plane)
	// A process, whose goroutines are its own.
	url := startProcess(t, "--connect=none", "--data=", "--bootstrap="+failingBootstrapOf(t, p), "--on-demand-idle=1s", "--pick-wait=1m").url
	caller := call(t, url, "cluster=orders")
	caller.more()
	round := func(i int) {
		name := fmt.Sprint("guest", i)
		plane.set(append(orders, edsCluster(name), assignmentOf(name, "10.0.0.2:80"))...)
		expectPick(t, url, "cluster="+name, "10.0.0.2:80")
		plane.set(orders...)
		eventually(t, "its end", func() bool { return picked(t, url, "cluster="+name+"&wait=0") == "unknown_cluster" })
		if a := do(t, "GET", url+"/metrics", ""); strings.Contains(a.body, name) {
			t.Errorf("metrics have the deleted cluster %s", name)
		}
	}
	round(0)
	settled := func() int {
		http.DefaultClient.CloseIdleConnections()
		n, err := strconv.Atoi(metric(t, url, "go_goroutines"))
		noError(t, err)
		return n
	}
	eventually(t, "quiet", func() bool { return xdsState(t, url, "").OnDemand.Clusters == 1 })
	before := settled()
	for i := range 10 {
		round(i + 1)
	}
	eventually(t, "the end of all", func() bool { return xdsState(t, url, "").OnDemand.Clusters == 1 })
	eventually(t, "the end of their goroutines", func() bool { return settled() <= before+3 })
	caller.more()
}

// TestUnknownNamesHaveTheirOwnLimit: at the limit of unknown names, picks from known clusters
// succeed.
func TestUnknownNamesHaveTheirOwnLimit(t *testing.T) {
	t.Parallel()
	var world []types.Resource
	for i := range 5 {
		name := fmt.Sprint("c", i)
		world = append(world, edsCluster(name), assignmentOf(name, "10.0.0.1:80"))
	}
	_, p := serveSnapshot(t, world...)
	data := t.TempDir()
	t.Run("before", func(t *testing.T) {
		url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), Data: data})
		for i := range 4 {
			picked(t, url, fmt.Sprint("cluster=c", i))
		}
		eventually(t, "all on disk", func() bool { return kept(t, data) == 8 })
	})
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), Data: data, OnDemand: 5, OnDemandUnknown: 10})
	picked(t, url, "cluster=c0")
	refused := 0
	for i := range 50 {
		if picked(t, url, fmt.Sprintf("cluster=invented-%d&wait=0", i)) == "rate_limited" {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no invented name was refused")
	}
	for i := range 4 { // in use, or kept of the server
		expectPick(t, url, fmt.Sprint("cluster=c", i), "10.0.0.1:80")
	}
	// A name that is new takes the place of the oldest invented name.
	eventually(t, "a place", func() bool { return picked(t, url, "cluster=c4") == "10.0.0.1:80" })
	if got := xdsState(t, url, "").OnDemand; got.Known != 5 || got.Unknown > 10 {
		t.Errorf("%+v", got)
	}
}

// TestAnEndlessStreamOfNames asks for new names as fast as they are refused.
func TestAnEndlessStreamOfNames(t *testing.T) {
	names := 5_000
	if os.Getenv("LBD_TEST_LONG") != "" {
		names = 500_000
	}
	_, p := serveSnapshot(t, edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80"))
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), OnDemandUnknown: 100, Data: t.TempDir()})
	caller := call(t, url, "cluster=orders")
	caller.more()
	ask := func(from, to int) (refused int) {
		for i := from; i < to; i++ {
			switch got := picked(t, url, fmt.Sprintf("cluster=name-%d&wait=0", i)); got {
			case "rate_limited":
				refused++
			case "pick_timeout":
			default:
				t.Fatalf("name %d: %s", i, got)
			}
		}
		return refused
	}
	ask(0, 1000) // as many as there is place for, and more
	before := heap()
	refused := ask(1000, names)
	grown := int64(heap()) - int64(before)
	t.Logf("%d names, %d refused: the heap grew by %d KiB", names, refused, grown>>10)
	if grown > 64<<20 { // what other tests leave to be collected is in it
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	if state := xdsState(t, url, ""); state.OnDemand.Unknown > 100 || state.OnDemand.Known > 1 || state.Total > 102 {
		t.Errorf("%+v of %d", state.OnDemand, state.Total)
	}
	untraced(t, url, "name-")
	caller.more()
}

// TestManyClusters loads 200 clusters of a target at once, or 1000 with LBD_TEST_LONG.
func TestManyClusters(t *testing.T) {
	clusters := 200
	if os.Getenv("LBD_TEST_LONG") != "" {
		clusters = 1000
	}
	const each = 100
	var world []types.Resource
	var routes []*routev3.Route
	for i := range clusters {
		name := fmt.Sprintf("c%03d", i)
		addresses := make([]string, each)
		for j := range addresses {
			addresses[j] = fmt.Sprintf("10.%d.%d.%d:80", i/250, i%250, j+1)
		}
		world = append(world, edsCluster(name), assignmentOf(name, addresses...))
		routes = append(routes, route("/"+name+"/", name))
	}
	plane, p := serveSnapshot(t, append(world, listenerTo(t, "shop", "routes"), routesOf("routes", routes...))...)
	before := heap()
	start := time.Now()
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), Target: []string{"xds:///shop"}, PickWait: time.Minute})
	expect(t, http.StatusOK, "GET", url+"/pick?target=shop&path=/c199/", "")
	loaded := time.Since(start)
	after := heap()
	if state := xdsState(t, url, "state=acked&limit=1"); state.Total != 2*clusters+2 {
		t.Errorf("%d resources are there", state.Total)
	}
	// One change of one of them, with the whole sent again.
	world[1].(*endpointv3.ClusterLoadAssignment).Endpoints[0].LbEndpoints = endpoints("10.9.9.9:80") //nolint:errcheck // it is one
	start = time.Now()
	plane.set(append(world, listenerTo(t, "shop", "routes"), routesOf("routes", routes...))...)
	eventually(t, "the change", func() bool { return picked(t, url, "target=shop&path=/c000/") == "10.9.9.9:80" })
	t.Logf("%d clusters of %d endpoints: loaded in %v, %d MiB of heap with the server's own; one change of one in %v",
		clusters, each, loaded.Round(time.Millisecond), (after-before)>>20, time.Since(start).Round(time.Millisecond))
}
