package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// TestLoadReportsAddUp: each pick is reported once, also if the server is unreachable in the
// meantime.
func TestLoadReportsAddUp(t *testing.T) {
	t.Parallel()
	shedding := assignmentOf("orders", "10.0.0.1:80")
	shedding.Policy = &endpointv3.ClusterLoadAssignment_Policy{DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{
		Category: "throttle", DropPercentage: &typev3.FractionalPercent{Numerator: 30},
	}}}
	_, p := serveSnapshot(t,
		reporting(edsCluster("orders")), shedding, reporting(edsCluster("cart")), assignmentOf("cart", "10.0.0.2:80"),
		edsCluster("quiet"), assignmentOf("quiet", "10.0.0.3:80"),
		listenerTo(t, "shop", "routes"), routesOf("routes", route("/cart/", "cart"), route("/", "orders")),
	)
	made := make(map[string]loadSum)
	t.Cleanup(func() { // after the daemon has ended
		for _, cluster := range []string{"orders", "cart"} {
			if got := p.loads.read(cluster); got != made[cluster] {
				t.Errorf("%s: %+v was reported at the end, and %+v made", cluster, got, made[cluster])
			}
		}
	})
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), Target: []string{"xds:///shop"}})

	picks := func(query, cluster string, n int) {
		t.Helper()
		for range n {
			sum := made[cluster]
			switch got := picked(t, url, query); got {
			case "dropped":
				sum.dropped++
			case "10.0.0.1:80", "10.0.0.2:80":
				sum.issued++
				sum.succeeded++
			default:
				t.Fatalf("%s: %s", query, got)
			}
			made[cluster] = sum
		}
	}
	leases := func(query, cluster, outcome string, n int) {
		t.Helper()
		for range n {
			sum := made[cluster]
			a := do(t, "POST", url+"/pick?"+query, "")
			if a.address() == "dropped" {
				sum.dropped++
				made[cluster] = sum
				continue
			}
			var v struct {
				Lease struct{ ID string }
			}
			if err := json.Unmarshal([]byte(a.body), &v); err != nil || v.Lease.ID == "" {
				t.Fatalf("%+v, %v", a, err)
			}
			expect(t, http.StatusOK, "POST", url+"/v1/leases/"+v.Lease.ID+"/done", fmt.Sprintf(`{"outcome":%q}`, outcome))
			sum.issued++
			if outcome == "success" {
				sum.succeeded++
			} else {
				sum.failed++
			}
			made[cluster] = sum
		}
	}
	all := func() {
		t.Helper()
		picks("cluster=orders", "orders", 40)
		picks("target=shop", "orders", 10)
		picks("target=shop&path=/cart/", "cart", 10)
		leases("cluster=orders", "orders", "success", 20)
		leases("cluster=orders", "orders", "error", 10)
		leases("target=shop&path=/cart/", "cart", "cancelled", 5)
		expectPick(t, url, "cluster=quiet", "10.0.0.3:80")
	}
	reported := func() {
		t.Helper()
		for _, cluster := range []string{"orders", "cart"} {
			eventually(t, "the report of "+cluster, func() bool { return p.loads.read(cluster) == made[cluster] })
		}
	}
	all()
	reported()
	if made["orders"].dropped == 0 || made["orders"].failed == 0 || made["cart"].failed == 0 {
		t.Fatalf("nothing of some kind was made: %+v", made)
	}
	p.kill()
	untilMetric(t, url, `lbd_cluster_stale{cluster="orders"}`, "1")
	all()
	p.start()
	reported()
	all()
	reported()
	if got := p.loads.read("quiet"); got != (loadSum{}) {
		t.Errorf("a cluster that wants no reports is reported: %+v", got)
	}
	state := xdsState(t, url, "").LoadReports
	if len(state) != 1 || state[0].Server != p.address || !state[0].Connected || state[0].Clusters != 2 || state[0].Interval != "50ms" || state[0].LastReport == nil {
		t.Errorf("%+v", state)
	}
	all() // sent when the daemon ends
}
