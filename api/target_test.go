package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
)

// shop is YAML of a target with two clusters, which a header selects.
const shop = `resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: shop
  api_listener:
    api_listener:
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
      route_config:
        virtual_hosts:
        - name: all
          domains: ["*"]
          routes:
          - match: {prefix: /, headers: [{name: tenant, string_match: {exact: beta}}]}
            route: {cluster: beta}
          - name: stable
            match: {prefix: /shop.}
            route: {cluster: stable}
- "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: stable
  endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 80}}}}]}]
- "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: beta
  endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.0.0.2, port_value: 80}}}}]}]
`

func TestPickFromATarget(t *testing.T) {
	d := start(t, nil)
	d.must(http.StatusOK, "POST", "/v1/snapshot", shop)
	const place = `"locality":{"region":"","zone":"","sub_zone":""},"priority":0`
	for query, want := range map[string]string{
		"target=shop&path=/shop.Cart/Add":                                 `{"cluster":"stable","target":"xds:///shop","address":"10.0.0.1:80",` + place + `,"generation":G}`,
		"target=xds:///shop&path=/shop.Cart/Add":                          `{"cluster":"stable","target":"xds:///shop","address":"10.0.0.1:80",` + place + `,"generation":G}`,
		"path=%2Fshop.Cart%2FAdd&header.Tenant=beta&target=xds%3A///shop": `{"cluster":"beta","target":"xds:///shop","address":"10.0.0.2:80",` + place + `,"generation":G}`,
		"target=shop&header.tenant=beta":                                  `{"cluster":"beta","target":"xds:///shop","address":"10.0.0.2:80",` + place + `,"generation":G}`,
		"target=shop&path=/shop.&n=2": `{"target":"xds:///shop","generation":G,"picks":[{"cluster":"stable","address":"10.0.0.1:80",` + place +
			`},{"cluster":"stable","address":"10.0.0.1:80",` + place + `}],"dropped":{},"circuit_broken":0}`,
	} {
		d.expect("/pick?"+query, want)
	}
	if got := d.must(200, "GET", "/pick?target=shop&path=/shop.&n=2", "", "Accept: text/plain").Body.String(); got != "10.0.0.1:80\n10.0.0.1:80\n" {
		t.Errorf("as text: %q", got)
	}
	w := d.must(http.StatusCreated, "POST", "/pick?target=shop&path=/shop.", "")
	lease := decode[picks.LeaseState](t, d.must(200, "GET", w.Header().Get("Location"), "").Body.Bytes())
	if lease.Target != "xds:///shop" || lease.Cluster != "stable" {
		t.Errorf("lease %+v", lease)
	}
	// Values of one name are joined, as routes see them.
	if p, _ := d.refused(fault.NoRoute, "GET", "/pick?target=shop&header.tenant=beta&header.tenant=x", ""); p.Target != "xds:///shop" || p.GRPCCode != "NOT_FOUND" {
		t.Errorf("got %+v", p)
	}
	p, _ := d.refused(fault.NoRoute, "GET", "/pick?target=shop&explain", "")
	if len(p.Explain) != 1 || len(p.Explain[0].Route.Tried) != 2 || !strings.Contains(p.Explain[0].Route.Tried[0].Mismatch, "header tenant is absent") {
		t.Errorf("got %+v", p.Explain)
	}
	if p, _ := d.refused(fault.UnknownTarget, "GET", "/pick?target=unknown", ""); p.Target != "unknown" {
		t.Errorf("got %+v", p)
	}
}

func TestTargetsAreHostedAndDropped(t *testing.T) {
	d := start(t, nil)
	w := d.must(http.StatusCreated, "PUT", "/v1/targets/"+url.PathEscape("xds:///shop"), "")
	tag := decode[api.PushAnswer](t, w.Body.Bytes()).ETag
	d.must(http.StatusOK, "PUT", "/v1/targets/shop", "")
	d.refused(fault.PreconditionFailed, "PUT", "/v1/targets/shop", "", "If-None-Match: *")
	d.must(http.StatusOK, "PUT", "/v1/targets/shop", "{}")
	d.must(http.StatusOK, "PUT", "/v1/targets/shop", " { }\n", "Content-Type: application/json")
	for _, body := range []string{`{"name":"shop"}`, "null", "[]", "{", "shop", "{} {}"} {
		d.refused(fault.InvalidArgument, "PUT", "/v1/targets/shop", body)
	}
	d.refused(fault.InvalidArgument, "PUT", "/v1/targets/%2Fshop", "")
	d.refused(fault.InvalidArgument, "PUT", "/v1/targets/shop?strict", "")
	d.refusedWith("Listener/shop is not known: push it", fault.UnknownTarget, "GET", "/pick?target=shop", "")
	d.must(http.StatusOK, "POST", "/v1/snapshot", shop)
	d.must(200, "GET", "/pick?target=shop&path=/shop.", "")
	if body := d.must(200, "GET", "/v1/snapshot", "").Body.String(); strings.Contains(body, "Target") {
		t.Errorf("the snapshot is %s", body)
	}
	d.must(http.StatusOK, "PUT", "/v1/snapshot?allow_empty", "resources: []")
	state := decode[observe.TargetState](t, d.must(200, "GET", "/v1/targets/shop", "").Body.Bytes())
	if fmt.Sprint(state.HostedBy) != "[api]" || state.Error == "" || state.VirtualHost != nil {
		t.Errorf("got %+v", state)
	}
	d.refused(fault.PreconditionFailed, "DELETE", "/v1/targets/shop", "", "If-Match: x")
	d.must(http.StatusOK, "DELETE", "/v1/targets/shop?dry_run", "", "If-Match: "+tag)
	d.must(http.StatusOK, "DELETE", "/v1/targets/shop", "", "If-Match: "+tag)
	d.refused(fault.UnknownTarget, "DELETE", "/v1/targets/shop", "")
	d.must(http.StatusOK, "POST", "/v1/snapshot", shop)
	if p, w := d.refused(fault.UnknownTarget, "DELETE", "/v1/targets/shop", ""); w.Code != http.StatusNotFound || !strings.Contains(p.Detail, "a Listener that was pushed hosts it") {
		t.Errorf("says %s", p.Detail)
	}
}

// TestClusterWithoutResources: the contract permits that it has no updated_at.
func TestClusterWithoutResources(t *testing.T) {
	d := start(t, nil)
	listener, _, _ := strings.Cut(shop, `- "@type": type.googleapis.com/envoy.config.endpoint`)
	d.must(http.StatusOK, "POST", "/v1/snapshot", listener)
	for _, path := range []string{"/v1/clusters", "/v1/clusters/stable", "/v1/targets/shop"} {
		d.must(http.StatusOK, "GET", path, "") // it compares the answer with the contract
	}
}

func TestTargetsAreListed(t *testing.T) {
	d := start(t, nil)
	d.expect("/v1/targets", `{"targets":[]}`)
	d.must(http.StatusOK, "POST", "/v1/snapshot", shop)
	for _, name := range []string{"a", "b", "c"} {
		d.must(http.StatusCreated, "PUT", "/v1/targets/"+name, "")
	}
	names := func(query string) string {
		list := decode[api.TargetList](t, d.must(200, "GET", "/v1/targets"+query, "").Body.Bytes())
		var out []string
		for _, s := range list.Targets {
			out = append(out, strings.TrimPrefix(s.Name, "xds:///"))
		}
		return strings.Join(out, " ") + "|" + list.Next
	}
	for query, want := range map[string]string{
		"":                             "a b c shop|",
		"?limit=2":                     "a b|xds:///b",
		"?limit=2&after=xds:///b":      "c shop|",
		"?prefix=xds:///s":             "shop|",
		"?prefix=xds:///&limit=1":      "a|xds:///a",
		"?after=xds:///a&prefix=xds:c": "|",
	} {
		if got := names(query); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	state := decode[observe.TargetState](t, d.must(200, "GET", "/v1/targets/shop", "").Body.Bytes())
	if state.State != "READY" || len(state.ClusterStates) != 2 || state.VirtualHost.Routes[0].Match != `prefix "/", header tenant: exact "beta"` || state.VirtualHost.Routes[1].Name != "stable" {
		t.Errorf("got %+v", state)
	}
	cluster := decode[observe.ClusterState](t, d.must(200, "GET", "/v1/clusters/beta?target=shop", "").Body.Bytes())
	if cluster.Target != "xds:///shop" || fmt.Sprint(cluster.Targets) != "[xds:///shop]" {
		t.Errorf("got %+v", cluster)
	}
	d.refused(fault.UnknownTarget, "GET", "/v1/targets/unknown", "")
	d.refused(fault.UnknownCluster, "GET", "/v1/clusters/gamma?target=shop&index=1", "")
	d.refused(fault.InvalidArgument, "GET", "/v1/targets?limit=0", "")
	d.refused(fault.InvalidArgument, "GET", "/v1/targets/shop?x", "")
	if list := decode[api.EventList](t, d.must(200, "GET", "/v1/events?target=shop&type=state_changed", "").Body.Bytes()); len(list.Events) != 2 || list.Events[0].Target != "xds:///shop" {
		t.Errorf("events %+v", list)
	}
}
