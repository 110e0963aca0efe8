package main

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
)

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
