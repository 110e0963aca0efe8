package api_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/client"
	xds "github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/lrs"
	"github.com/lbd-dev/lbd/xds/resource"
)

// canary is part of all names that the restricted caller may not see.
const canary = "canary"

// visibility is what a restricted caller gets from a route.
type visibility struct {
	// request is the query, or LEASE for the lease of another cluster.
	request string
	status  int
	// name stands for the parameters of the path; empty is orders.
	name string
	// hides says that other callers get other names.
	hides bool
	// want are texts that the caller gets.
	want []string
}

// visible has a decision for each route. The caller may see orders*.
var visible = map[string]visibility{
	"GET /pick": {request: "?cluster=orders", status: 200}, "POST /pick": {request: "?cluster=orders", status: 201},
	"GET /v1/pick": {request: "?target=orders-shop&explain=true", status: 200}, "POST /v1/pick": {request: "?cluster=orders", status: 201},
	"GET /v1/leases":             {status: 200, hides: true, want: []string{`"cluster":"orders"`}},
	"DELETE /v1/leases":          {request: "?older_than=0s", status: 200, want: []string{`"cluster":"orders"`}},
	"GET /v1/leases/{id}":        {request: "LEASE", status: 404},
	"POST /v1/leases/{id}/done":  {request: "LEASE", status: 404},
	"POST /v1/leases/{id}/renew": {request: "LEASE", status: 404},
	"POST /v1/leases/done":       {request: "LEASE", status: 200, want: []string{"unknown_lease"}},
	"POST /v1/reports":           {status: 400},

	"GET /v1/clusters":                               {status: 200, hides: true, want: []string{`"name":"orders"`, `"targets":["xds:///orders-shop"]`}},
	"GET /v1/clusters/watch":                         {status: 200, hides: true, want: []string{"event: resync", `{"name":"orders"`, `"targets":["xds:///orders-shop"]`, "event: heartbeat"}},
	"GET /v1/clusters/{name}":                        {status: 200, hides: true, want: []string{`"targets":["xds:///orders-shop"]`}},
	"GET /v1/clusters/{name}/watch":                  {status: 200, hides: true, want: []string{"event: state", `"targets":["xds:///orders-shop"],"state":`, "event: counts"}},
	"GET /v1/clusters/{name}/history":                {status: 200, want: []string{`"cluster":"orders"`}},
	"POST /v1/clusters/{name}/reconnect":             {status: 200, want: []string{`{"endpoints":0}`}},
	"GET /v1/clusters/{name}/endpoints":              {status: 200},
	"GET /v1/clusters/{name}/config":                 {status: 404},
	"PUT /v1/clusters/{name}/endpoints":              {status: 400},
	"DELETE /v1/clusters/{name}/endpoints":           {request: "?dry_run=true", status: 200},
	"POST /v1/renewals":                              {status: 400},
	"PUT /v1/clusters/{name}/config":                 {status: 400},
	"DELETE /v1/clusters/{name}/config":              {request: "?dry_run=true", status: 404},
	"GET /v1/overlays":                               {status: 200, hides: true, want: []string{`"id":"visible"`}},
	"GET /v1/clusters/{name}/overlays":               {status: 200, want: []string{`"id":"visible"`}},
	"GET /v1/clusters/{name}/overlays/{id}":          {status: 404},
	"PUT /v1/clusters/{name}/overlays/{id}":          {status: 400},
	"DELETE /v1/clusters/{name}/overlays/{id}":       {request: "?dry_run=true", status: 404},
	"GET /v1/targets":                                {status: 200, hides: true, want: []string{`"name":"xds:///orders-shop"`}},
	"GET /v1/targets/{name}":                         {name: "orders-shop", status: 200, hides: true, want: []string{`"cluster_states":[{"name":"orders"`}},
	"PUT /v1/targets/{name}":                         {name: "orders-shop", request: "?dry_run=true", status: 200},
	"DELETE /v1/targets/{name}":                      {name: "orders-shop", request: "?dry_run=true", status: 404},
	"PUT /v1/clusters/{name}/endpoints/{address}":    {status: 400},
	"DELETE /v1/clusters/{name}/endpoints/{address}": {status: 400},

	"GET /v1/snapshot":                  {status: 200, hides: true, want: []string{`"cluster_name": "orders"`, `"name": "orders-shop"`}},
	"PUT /v1/snapshot":                  {status: 403},
	"POST /v1/snapshot":                 {status: 403},
	"GET /v1/xds":                       {status: 200, hides: true, want: []string{`"name":"orders"`, `"total":3`, `"targets_total":2`, `"targets":2,"waiting":0`}},
	"GET /v1/history":                   {status: 200, hides: true, want: []string{`"resource":"ClusterLoadAssignment/orders"`}},
	"GET /v1/history/{index}":           {name: "1", status: 200, hides: true, want: []string{`"resource":"ClusterLoadAssignment/orders"`}},
	"GET /v1/history/{index}/diff":      {name: "1", status: 200, hides: true, want: []string{`"resource":"ClusterLoadAssignment/orders"`}},
	"POST /v1/history/{index}/restore":  {name: "1", request: "?cluster=orders&dry_run", status: 200, want: []string{`"changes":[]`}},
	"GET /v1/files":                     {status: 200, hides: true, want: []string{`"file":"good.json"`, `"ClusterLoadAssignment/orders-file"`}},
	"POST /v1/files/held/{hash}/permit": {status: 403},
	"GET /v1/store":                     {status: 200, want: []string{`"kind":"file"`}},
	"GET /v1/fleet":                     {status: 200, want: []string{`"shared":false`}}, // roster's tests have one with replicas
	"GET /v1/doctor":                    {status: 200, hides: true, want: []string{"Cluster/orders is invalid", `"check":"fleet"`}},
	"GET /v1/daemon":                    {status: 200, hides: true, want: []string{"Cluster/orders is invalid", "store_failing"}},
	"GET /v1/daemon/watch":              {status: 200, hides: true, want: []string{"event: daemon", "Cluster/orders is invalid"}},
	"GET /v1/events":                    {request: "?limit=5000", status: 200, hides: true, want: []string{`"cluster":"orders"`, `"says":"3 resources changed"`, "unreachable for a moment"}},
	"GET /v1/events/watch":              {request: "?last=1000", status: 200, hides: true, want: []string{"event: event", `"cluster":"orders"`, `"says":"3 resources changed"`, "event: heartbeat\nid: "}},

	"GET /metrics": {status: 200, hides: true, want: []string{
		`lbd_picks_total{cluster="orders",result="ok",target=""}`, `lbd_picks_total{cluster="orders",result="ok",target="xds:///orders-shop"}`, "go_goroutines", "lbd_build_info",
	}},
	"GET /metrics/endpoints": {status: 200, hides: true, want: []string{`lbd_endpoint_weight{address="10.0.0.1:80",cluster="orders"`}},

	"GET /livez": {request: "?verbose", status: 200}, "GET /readyz": {request: "?verbose", status: 200, hides: true, want: []string{"Cluster/orders is invalid"}},
	"GET /": {status: 200}, "GET /assets/{file}": {status: 404}, "GET /docs": {status: 200}, "GET /docs/{file}": {status: 404},
	"GET /openapi.yaml": {status: 200}, "GET /problems/{code}": {status: 404},
}

// Each route has a decision about callers that may see only some clusters, and does not show
// them the names of others.
func TestEveryRouteHidesOtherClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, lease := startWithCanary(t)
		routes := map[string]bool{}
		router, ok := c.handler.(chi.Routes)
		if !ok {
			t.Fatalf("the handler is a %T", c.handler)
		}
		servicetest.Must(t, chi.Walk(router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			if method != http.MethodHead {
				routes[method+" "+route] = true
			}
			return nil
		}))
		for route := range visible {
			if !routes[route] {
				t.Errorf("%s is not a route", route)
			}
		}
		for _, route := range slices.Backward(slices.Sorted(maps.Keys(routes))) { // DELETE comes last
			v, ok := visible[route]
			if !ok {
				t.Errorf("%s: decide in the table what callers with clusters get", route)
				continue
			}
			checkVisible(t, c, route, v, lease)
		}
		if len(routes) < 40 {
			t.Errorf("only %d routes", len(routes))
		}
		checkVisible(t, c, "GET /v1/doctor", visibility{request: "?cluster=orders", status: 200, want: []string{`"cluster":"orders"`}}, lease)
		checkVisible(t, c, "GET /v1/doctor", visibility{request: "?cluster=orders-inner", status: 200, want: []string{`"cluster":"orders-inner"`}}, lease)
		checkVisible(t, c, "GET /v1/doctor", visibility{request: "?cluster=linked", status: 403, want: []string{"permission_denied"}}, lease)
		// A cluster that only a target out of the scope has.
		for route, want := range map[string]string{
			"GET /v1/clusters/{name}": `{"name":"orders-inner","state":`, "GET /v1/clusters/{name}/watch": `{"name":"orders-inner","state":`,
			"GET /v1/clusters/{name}/history": `"target":""`,
		} {
			checkVisible(t, c, route, visibility{name: "orders-inner", status: 200, hides: true, want: []string{want}}, lease)
		}
	})
}

// Leases of a cluster that were picked through a target, or an AGGREGATE, out of the scope do not show it.
func TestLeasesHideTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := startWithCanary(t)
		if w := c.as("push", "PUT", "/v1/clusters/"+canary+"-agg/config", aggregateOf("orders")); w.Code != 201 {
			t.Fatal(w.Code, w.Body)
		}
		for query, shown := range map[string]string{
			"target=" + canary + "-shop": `"target":"xds:///canary-shop"`, "cluster=" + canary + "-agg": `"cluster":"canary-agg","leaf":"orders"`,
		} {
			c.as("everything", "DELETE", "/v1/leases?older_than=0s", "")
			lease := c.as("pick", "POST", "/pick?ttl=10m&"+query, "").Header().Get("Location")
			if w := c.as("pick", "GET", lease, ""); !strings.Contains(w.Body.String(), shown) {
				t.Fatal(w.Code, w.Body)
			}
			for _, request := range []struct{ method, path, body string }{
				{"GET", lease, ""},
				{"GET", "/v1/leases", ""},
				{"GET", "/v1/leases?cluster=orders", ""},
				{"POST", lease + "/renew", ""},
				{"POST", "/v1/leases/done", fmt.Sprintf(`{"leases":[{"id":%q}]}`, strings.TrimPrefix(lease, "/v1/leases/"))},
				{"POST", lease + "/done", ""},
				{"PICK", query, ""},
				{"DELETE", "/v1/leases?cluster=orders", ""},
				{"PICK", query, ""},
				{"DELETE", "/v1/leases?older_than=0s", ""},
			} {
				if request.method == "PICK" {
					c.as("pick", "POST", "/pick?ttl=10m&"+query, "")
					continue
				}
				w := c.as("restricted", request.method, request.path, request.body)
				if answer := w.Body.String(); w.Code != 200 || !strings.Contains(answer, `"cluster":"orders"`) || strings.Contains(answer, canary) {
					t.Errorf("%s %s: %d %s", request.method, request.path, w.Code, answer)
				}
			}
			if w := c.as("restricted", "GET", "/v1/events?type=leases_ended", ""); w.Code != 200 || strings.Contains(w.Body.String(), canary) {
				t.Errorf("events: %d %s", w.Code, w.Body)
			}
		}
	})
}

func checkVisible(t *testing.T, c *callers, route string, v visibility, lease string) {
	method, pattern, _ := strings.Cut(route, " ")
	path, body := parameters.ReplaceAllString(pattern, cmp.Or(v.name, "orders")), ""
	if v.request == "LEASE" {
		path = strings.Replace(pattern, "{id}", lease, 1)
		body, v.request = fmt.Sprintf(`{"leases":[{"id":%q}]}`, lease), ""
		if strings.Contains(pattern, "{id}") {
			body = ""
		}
	}
	w := c.during(20*time.Second, "restricted", method, path+v.request, body)
	answer := fmt.Sprint(w.Header(), w.Body)
	if w.Code != v.status {
		t.Errorf("%s: %d, want %d: %s", route, w.Code, v.status, w.Body)
	}
	if i := strings.Index(answer, canary); i >= 0 {
		t.Errorf("%s shows another cluster: …%s…", route, answer[max(0, i-200):min(len(answer), i+100)])
	}
	if strings.Contains(answer, `"name":"linked","target`) || strings.Contains(answer, `"name":"linked","state`) {
		t.Errorf("%s shows the state of another cluster, to which a target refers: %s", route, answer)
	}
	for _, want := range v.want {
		if !strings.Contains(answer, want) {
			t.Errorf("%s lacks %q: %s", route, want, answer)
		}
	}
	if !v.hides {
		return
	}
	all := c.during(20*time.Second, "everything", method, path+v.request, "")
	if !strings.Contains(fmt.Sprint(all.Header(), all.Body), canary) {
		t.Errorf("%s shows no other cluster to a caller that may see all: %s", route, all.Body)
	}
}

// during makes a request that the caller ends after a time.
func (c *callers) during(d time.Duration, caller, method, path, body string) *httptest.ResponseRecorder {
	ctx, cancel := context.WithTimeout(listen.BaseContext(c.listener), d)
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:8080"
	r.Header.Set("Authorization", "Bearer "+c.tokens[caller])
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	return w
}

// target is JSON of a Listener, whose routes lead to clusters.
func target(name string, clusters ...string) string {
	var routes []string
	for _, to := range clusters {
		routes = append(routes, fmt.Sprintf(`{"name":"r","match":{"prefix":"/"},"route":{"cluster":%q}}`, to))
	}
	return fmt.Sprintf(`{"@type":"type.googleapis.com/envoy.config.listener.v3.Listener","name":%q,"api_listener":{"api_listener":`+
		`{"@type":"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",`+
		`"route_config":{"virtual_hosts":[{"name":"all","domains":["*"],"routes":[%s]}]}}}}`, name, strings.Join(routes, ","))
}

// aggregateOf is JSON of an AGGREGATE.
func aggregateOf(leaves ...string) string {
	return `{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","cluster_type":{"name":"envoy.clusters.aggregate","typed_config":{` +
		`"@type":"type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig","clusters":["` + strings.Join(leaves, `","`) + `"]}}}`
}

// served is JSON of an assignment.
func served(cluster, address string) string {
	return fmt.Sprintf(`{"@type":"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment","cluster_name":%q,`+
		`"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":%q,"port_value":80}}}}]}]}`, cluster, address)
}

// startWithCanary starts a daemon with the clusters orders, orders-eu and canary, and with all that
// may name them. The routes of orders-shop lead to another cluster, linked, whose name they show. It returns the ID of a lease of canary, which another caller holds.
func startWithCanary(t *testing.T) (c *callers, lease string) {
	b, err := bootstrap.Parse([]byte(`{"node":{"id":"test"},"xds_servers":[{"server_uri":"passthrough:///one","channel_creds":[{"type":"insecure"}]}]}`),
		bootstrap.Options{Version: "1"})
	servicetest.Must(t, err)
	var later atomic.Pointer[[]observe.Condition]
	later.Store(new([]observe.Condition))
	c = startCallers(t, "127.0.0.1:8080", func(o *service.Options) {
		o.Sources.Bootstrap = b
		o.Conditions = []func() []observe.Condition{func() []observe.Condition { return *later.Load() }}
	}, sources.Connections{Servers: canaryServers{}, LastGood: noVersions{}, Reports: noReports{}})
	must := func(status int, caller, method, path, body string) *httptest.ResponseRecorder {
		t.Helper()
		w := c.as(caller, method, path, body)
		if w.Code != status {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
		return w
	}
	must(200, "push", "POST", "/v1/snapshot", `{"resources":[`+strings.Join([]string{
		served("orders", "10.0.0.1"), served("orders-eu", "10.0.0.2"), served(canary, "10.0.0.3"),
		target("orders-shop", "orders", "linked"), served("linked", "10.0.0.5"), served("xds:///orders-"+canary, "10.0.0.6"), target(canary+"-shop", "orders", canary, "orders-inner"),
	}, ",")+`]}`)
	must(201, "push", "PUT", "/v1/clusters/orders/overlays/visible", `{"kind":"hold_ejections"}`)
	must(201, "push", "PUT", "/v1/clusters/"+canary+"/overlays/"+canary, `{"kind":"hold_ejections"}`)
	inner, err := xds.All([]byte(`{"resources":[`+served("orders-inner", "10.0.0.4")+`,{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"orders-inner",`+
		`"type":"EDS","eds_cluster_config":{"eds_config":{"ads":{}}}}]}`), xds.Options{Format: xds.FormatJSON})
	servicetest.Must(t, err)
	for _, i := range slices.Backward(inner.Items) { // first the Cluster
		c.service.Inbound.ServerUpdate([]resource.Update{{Target: "xds:///" + canary + "-shop", Item: i, Server: "passthrough:///one"}})
	}
	must(422, "push", "PUT", "/v1/clusters/"+canary+"/endpoints", `{"canary":1}`)
	must(422, "push", "POST", "/v1/snapshot", `{"resources":[`+served(canary, "no address")+`]}`)
	for _, query := range []string{"cluster=orders", "cluster=" + canary, "target=orders-shop", "target=" + canary + "-shop"} {
		must(201, "pick", "POST", "/pick?ttl=10m&"+query, "")
	}
	must(200, "everything", "DELETE", "/v1/leases?older_than=0s", "")
	must(201, "pick", "POST", "/pick?ttl=10m&cluster=orders", "")
	lease = strings.TrimPrefix(must(201, "pick", "POST", "/pick?ttl=10m&cluster="+canary, "").Header().Get("Location"), "/v1/leases/")

	set := files.Set{Resources: map[resource.Key]files.Resource{}, Sums: map[string]string{}}
	for file, names := range map[string][]string{
		"good.json": {"orders-file", "orders-more"}, "mixed.json": {"orders-mixed", canary + "-mixed"}, canary + ".json": {canary + "-file"},
	} {
		content, err := xds.All([]byte(bundle(names...)), xds.Options{Format: xds.FormatJSON})
		servicetest.Must(t, err)
		for _, i := range content.Items {
			set.Resources[i.Key] = files.Resource{Item: i, File: file}
		}
		set.Sums[file] = "0123"
	}
	set.Bad = []files.Bad{{File: "good.json", Kept: true, Err: &xds.InvalidError{Problems: []xds.Problem{
		{Resource: "ClusterLoadAssignment/orders-more", Reason: "is invalid"}, {Resource: "ClusterLoadAssignment/" + canary, Reason: "is invalid"},
	}}}}
	set.Held = []files.Held{{Hash: "1", Reasons: []string{canary}, Clusters: []string{canary}, Files: []files.FileChange{{File: "good.json", Change: "modified"}}}}
	c.service.Sources.FilesChanged(set)

	c.service.Inbound.ServerEvent(client.Disconnected{Server: "passthrough:///one", Err: errors.New("unreachable for a moment"), Answered: true})
	c.service.Inbound.ServerEvent(client.Rejected{
		Server: "passthrough:///one", Resources: client.Resources{Keys: []resource.Key{{Type: resource.TypeCluster, Name: canary}}, Count: 1},
		Err: errors.New(canary + " is invalid"), Version: "1",
	})
	c.service.Inbound.ServerEvent(client.FellBack{From: "passthrough:///one", To: "passthrough:///two", Targets: []string{"cluster:" + canary}, Err: errors.New("away")})
	later.Store(&[]observe.Condition{
		{Kind: observe.ConditionResourceRejected, Subject: "Cluster/orders", Text: "Cluster/orders is invalid"},
		{Kind: observe.ConditionResourceRejected, Subject: "Cluster/" + canary, Text: "Cluster/canary is invalid"},
		{Kind: observe.ConditionFileBad, Subject: "a.json", Text: "resource file a.json is bad: canary"},
		{Kind: observe.ConditionChangeHeld, Subject: "1", Text: "canary would lose its endpoints"},
		{Kind: observe.ConditionCredentialsInvalid, Text: "tokens[0]: canary*"},
		{Kind: observe.ConditionStoreFailing, Text: "disk full"},
	})
	synctest.Wait()
	return c, lease
}

// canaryServers are management servers without answers, whose clients want orders and canary.
type canaryServers struct{}

func (canaryServers) Want(string, []resource.Key, []resource.Key) {}
func (canaryServers) Away(string, string) bool                    { return false }
func (canaryServers) Server(string, string) *bootstrap.Server     { return nil }
func (canaryServers) Connected(bootstrap.Server) bool             { return true }

func (canaryServers) Status() client.Status {
	s := client.Status{
		Servers:   []client.ServerStatus{{URI: "passthrough:///one", Connected: true, Targets: 3}},
		Unapplied: []client.UnappliedField{{Type: resource.TypeCluster, Field: "f", Example: canary}},
	}
	for target, names := range map[string][]string{
		"xds:///orders-shop": {"orders", canary}, "xds:///canary-shop": {"orders"}, "cluster:orders-eu": {"orders-eu"}, "cluster:" + canary: {canary},
	} {
		s.Targets = append(s.Targets, client.TargetStatus{Target: target, Server: "passthrough:///one", Connected: true})
		for _, name := range names {
			s.Resources = append(s.Resources, client.ResourceStatus{Target: target, Key: resource.Key{Type: resource.TypeCluster, Name: name}, State: client.Requested})
		}
		if name, ok := strings.CutPrefix(target, "xds:///"); ok {
			s.Resources = append(s.Resources, client.ResourceStatus{Target: target, Key: resource.Key{Type: resource.TypeListener, Name: name}, State: client.Acked})
		}
	}
	return s
}

type noVersions struct{}

func (noVersions) All() iter.Seq[resource.Update] { return func(func(resource.Update) bool) {} }
func (noVersions) Put([]resource.Update)          {}

type noReports struct{}

func (noReports) Report(bootstrap.Server, ...resource.ServiceKey) {}
func (noReports) Stop(...resource.ServiceKey)                     {}
func (noReports) Status() []lrs.ServerStatus {
	return []lrs.ServerStatus{{URI: "passthrough:///one", Clusters: 7}}
}
