package main

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"

	"github.com/lbd-dev/lbd/service/observe"
)

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
	expectPick(t, url, "target=shop&path=/cart/", endpoint.Addr().String())
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
