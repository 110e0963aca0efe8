package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd"
	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// roleOf has the role that each route requires. Of two, each permits the request, and the error names
// the second.
var roleOf = map[string]access.Roles{
	"GET /pick": access.Pick, "POST /pick": access.Pick, "GET /v1/pick": access.Pick, "POST /v1/pick": access.Pick,
	"GET /v1/leases/{id}": access.Pick, "POST /v1/leases/{id}/done": access.Pick, "POST /v1/leases/{id}/renew": access.Pick,
	"POST /v1/leases/done": access.Pick, "GET /v1/leases": access.Pick | access.Read, "DELETE /v1/leases": access.Pick | access.Admin,

	"GET /v1/clusters": access.Read, "GET /v1/clusters/watch": access.Read, "GET /v1/clusters/{name}": access.Read,
	"GET /v1/clusters/{name}/watch": access.Read, "GET /v1/clusters/{name}/history": access.Read,
	"GET /v1/overlays": access.Read, "GET /v1/clusters/{name}/overlays": access.Read, "GET /v1/clusters/{name}/overlays/{id}": access.Read,
	"PUT /v1/clusters/{name}/overlays/{id}": access.Push, "DELETE /v1/clusters/{name}/overlays/{id}": access.Push,
	"GET /v1/clusters/{name}/endpoints": access.Read, "GET /v1/clusters/{name}/config": access.Read,
	"GET /v1/targets": access.Read, "GET /v1/targets/{name}": access.Read, "GET /v1/xds": access.Read,
	"GET /v1/snapshot": access.Read, "GET /v1/files": access.Read, "GET /v1/store": access.Read, "GET /v1/daemon": access.Read, "GET /v1/fleet": access.Read, "GET /v1/doctor": access.Read, "GET /v1/daemon/watch": access.Read,
	"GET /v1/events": access.Read, "GET /v1/events/watch": access.Read,

	"PUT /v1/clusters/{name}/endpoints": access.Push, "DELETE /v1/clusters/{name}/endpoints": access.Push,
	"PUT /v1/clusters/{name}/endpoints/{address}": access.Push, "DELETE /v1/clusters/{name}/endpoints/{address}": access.Push,
	"POST /v1/renewals": access.Push, "POST /v1/clusters/{name}/reconnect": access.Push,
	"POST /v1/reports":               access.Pick,
	"PUT /v1/clusters/{name}/config": access.Push, "DELETE /v1/clusters/{name}/config": access.Push,
	"GET /v1/history": access.Read, "GET /v1/history/{index}": access.Read, "GET /v1/history/{index}/diff": access.Read,
	"POST /v1/history/{index}/restore": access.Push,
	"PUT /v1/snapshot":                 access.Push, "POST /v1/snapshot": access.Push,
	"PUT /v1/targets/{name}": access.Push, "DELETE /v1/targets/{name}": access.Push,

	"POST /v1/files/held/{hash}/permit": access.Admin,
	"GET /metrics":                      access.Metrics, "GET /metrics/endpoints": access.Metrics,
	"GET /": access.Dashboard, "GET /assets/{file}": access.Dashboard, "GET /docs": access.Dashboard, "GET /docs/{file}": access.Dashboard,

	"GET /livez": 0, "GET /readyz": 0, "GET /openapi.yaml": 0, "GET /problems/{code}": 0,
}

// callers is an API whose callers have tokens: each role's name is the token of a
// caller with that role, everything is one with all roles, and restricted is one of a
// caller with all roles for the clusters orders* only.
type callers struct {
	*daemon
	listener *listen.Listener
	tokens   map[string]string
}

func startWithCallers(t *testing.T, spec string) *callers {
	t.Helper()
	return startCallers(t, spec, nil, sources.Connections{})
}

// startCallers starts a service with other options and connections.
func startCallers(t *testing.T, spec string, change func(*service.Options), to sources.Connections) *callers {
	t.Helper()
	tokens := make(map[string]string)
	var file strings.Builder
	file.WriteString("tokens:\n")
	for _, c := range append(access.All.Names(), "restricted", "everything", "other") {
		token, hash := access.NewToken()
		tokens[c] = token
		roles, more := c, ""
		switch c {
		case "everything":
			roles = strings.Join(access.All.Names(), ", ")
		case "restricted":
			roles, more = strings.Join(access.All.Names(), ", "), ", clusters: [orders*]"
		case "other":
			roles, more = strings.Join(access.All.Names(), ", "), ", clusters: [secret*]"
		}
		fmt.Fprintf(&file, "- {name: %s, sha256: %q, roles: [%s]%s}\n", c, hash, roles, more)
	}
	known, err := access.Parse([]byte(file.String()))
	servicetest.Must(t, err)
	specs, err := listen.Parse([]string{spec})
	servicetest.Must(t, err)
	d := startServing(t, change, to, func(o *api.Options) {
		o.Callers = &listen.Callers{Identities: func() *access.Identities { return known }}
	})
	l := &listen.Listener{Spec: specs[0], Policy: specs[0].Policy(true, false)}
	return &callers{daemon: d, listener: l, tokens: tokens}
}

// as makes a request with the token of a caller; "" has none.
func (c *callers) as(caller, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body)).WithContext(listen.BaseContext(c.listener))
	r.Host = "127.0.0.1:8080"
	if caller != "" {
		r.Header.Set("Authorization", "Bearer "+c.tokens[caller])
	}
	for _, h := range headers {
		key, value, _ := strings.Cut(h, ": ")
		r.Header.Set(key, value)
	}
	return c.answer(r)
}

// problemOf returns the problem of a response; the zero value if there is none.
func problemOf(w *httptest.ResponseRecorder) api.Problem {
	var p api.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		return api.Problem{}
	}
	return p
}

var parameters = regexp.MustCompile(`\{[a-z]+\}`)

// Every route requires the role that the table has, whatever role the caller has
// otherwise, and none other.
func TestEveryRouteRequiresItsRole(t *testing.T) {
	contract := regexp.MustCompile(`(?m)^  (/\S*):\n((?:    .*\n|\n)*)`)
	found := map[string]bool{}
	for _, path := range contract.FindAllStringSubmatch(string(lbd.OpenAPI), -1) {
		for _, method := range []string{"get", "put", "post", "delete"} {
			if strings.Contains(path[2], "    "+method+":\n") {
				found[strings.ToUpper(method)+" "+path[1]] = true
			}
		}
	}
	for route := range found {
		if _, ok := roleOf[route]; !ok {
			t.Errorf("%s is in the contract, and its role is not tested", route)
		}
	}
	if len(found) < 30 {
		t.Fatalf("only %d routes are found in the contract", len(found))
	}
	c := startWithCallers(t, "127.0.0.1:8080")
	for route, role := range roleOf {
		method, pattern, _ := strings.Cut(route, " ")
		path := parameters.ReplaceAllString(pattern, "orders")
		if strings.HasSuffix(path, "/watch") {
			path += "?bad" // rejected once the caller is let through
		}
		for _, caller := range append(access.All.Names(), "") {
			w := c.as(caller, method, path, "")
			problem := problemOf(w)
			rejected := problem.Code == "unauthenticated" || problem.Code == "permission_denied"
			names := role.Names()
			may := role == 0 || role == access.Dashboard || slices.Contains(names, caller)
			if rejected == may {
				t.Errorf("%s as %q: %d %s", route, caller, w.Code, w.Body)
			}
			if rejected {
				missing := names[len(names)-1]
				if problem.Role != missing || !strings.Contains(problem.Detail, "role "+missing+" is required") || (w.Code == 401) != (caller == "") {
					t.Errorf("%s as %q: %d %s", route, caller, w.Code, w.Body)
				}
			}
			if (w.Code == 401) != (w.Header().Get("WWW-Authenticate") != "") {
				t.Errorf("%s as %q: %d, WWW-Authenticate %q", route, caller, w.Code, w.Header().Get("WWW-Authenticate"))
			}
		}
	}
}

// What a restricted caller gets does not depend on whether a cluster exists.
func TestRestrictedCaller(t *testing.T) {
	c := startWithCallers(t, "127.0.0.1:8080")
	const one = `{"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"127.0.0.1","port_value":1}}}}]}]}`
	for _, name := range []string{"orders", "orders-eu", "secret"} {
		if w := c.as("push", "PUT", "/v1/clusters/"+name+"/endpoints", one, "Content-Type: application/json"); w.Code != 201 {
			t.Fatalf("push of %s: %d %s", name, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/pick?cluster=%s", "/pick?target=%s", "/pick?target=xds:///%s", "/pick?target=xds:%s", "/v1/targets/xds:%s", "/v1/clusters/%s", "/v1/clusters/%s/endpoints", "/v1/clusters/%s/history", "/v1/targets/%s", "/v1/clusters/%s/watch"} {
		exists := c.as("restricted", "GET", fmt.Sprintf(path, "secret"), "")
		missing := c.as("restricted", "GET", fmt.Sprintf(path, "absent"), "")
		if exists.Code != 403 || exists.Body.String() != strings.ReplaceAll(missing.Body.String(), "absent", "secret") || !strings.Contains(exists.Body.String(), `restricted may not use`) {
			t.Errorf("%s: %d %s; of a cluster that does not exist: %d %s", path, exists.Code, exists.Body, missing.Code, missing.Body)
		}
	}
	for _, path := range []string{"/v1/clusters/orders?target=%s", "/v1/clusters/orders/history?target=%s", "/v1/clusters/orders/watch?target=xds:%s"} {
		if w := c.as("restricted", "GET", fmt.Sprintf(path, "secret"), ""); w.Code != 403 || !strings.Contains(w.Body.String(), "restricted may not use") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	// A resource names only what its author may use, whether that exists or not.
	refused := func(what, resource string, exists, missing *httptest.ResponseRecorder) {
		t.Helper()
		if exists.Code != 403 || exists.Body.String() != strings.ReplaceAll(missing.Body.String(), "absent", "secret") || !strings.Contains(exists.Body.String(), "which "+resource+" names") {
			t.Errorf("%s: %d %s; of a name that does not exist: %d %s", what, exists.Code, exists.Body, missing.Code, missing.Body)
		}
	}
	for _, body := range []string{
		aggregateOf("orders", "%s"),
		`{"type":"EDS","eds_cluster_config":{"service_name":"%s","eds_config":{"ads":{}}}}`,
	} {
		for _, query := range []string{"?dry_run=true", "?max_shift=100%25", ""} {
			push := func(caller, to string) *httptest.ResponseRecorder {
				return c.as(caller, "PUT", "/v1/clusters/orders-eu/config"+query, fmt.Sprintf(body, to), "Content-Type: application/json")
			}
			refused(query, "Cluster/orders-eu", push("restricted", "secret"), push("restricted", "absent"))
			for caller, to := range map[string]string{"restricted": "orders", "push": "secret"} {
				if w := push(caller, to); w.Code/100 != 2 {
					t.Errorf("%s of what %s may use: %d %s", query, caller, w.Code, w.Body)
				}
			}
		}
	}
	// The forecast of a change shows nothing of what others have made of clusters that its author may not see.
	for i, body := range []string{aggregateOf("orders", "secret"), `{"type":"EDS","eds_cluster_config":{"service_name":"secret","eds_config":{"ads":{}}}}`} {
		hidden := strings.Replace(one, "127.0.0.1", "10.9.9.9", 1)
		for path, body := range map[string]string{"secret/endpoints": hidden, "orders-eu/config": body} {
			if w := c.as("push", "PUT", "/v1/clusters/"+path, body, "Content-Type: application/json"); w.Code/100 != 2 {
				t.Fatal(w.Code, w.Body)
			}
		}
		for caller, sees := range map[string]bool{"restricted": false, "push": true} {
			w := c.as(caller, "PUT", "/v1/clusters/orders-eu/config?dry_run=true", aggregateOf("orders"), "Content-Type: application/json")
			if !strings.Contains(w.Body.String(), `"cluster":"orders-eu"`) || strings.Contains(w.Body.String(), "10.9.9.9") != sees {
				t.Errorf("the forecast %d for %s: %d %s", i, caller, w.Code, w.Body)
			}
		}
	}
	restore := map[string]string{} // the queries by cluster
	for i, to := range []string{"secret", "absent", "orders"} {
		w := c.as("push", "POST", "/v1/snapshot", `{"resources":[`+target("orders-shop", "orders", to)+`]}`, "Content-Type: application/json")
		restore[to] = fmt.Sprintf("/v1/history/%s/restore?resource=Listener/orders-shop", w.Header().Get("Lbd-Index"))
		if w.Code != 200 || i == 0 && w.Header().Get("Lbd-Index") == "" {
			t.Fatal(w.Code, w.Body)
		}
	}
	refused("a restore", "Listener/orders-shop", c.as("restricted", "POST", restore["secret"], ""), c.as("restricted", "POST", restore["absent"], ""))
	if w := c.as("restricted", "POST", restore["orders"], ""); w.Code != 200 {
		t.Errorf("a restore of what the caller may use: %d %s", w.Code, w.Body)
	}
	for path, want := range map[string]int{
		"/pick?cluster=orders": 200, "/pick?target=orders": 404, "/pick?cluster=orders-eu": 200, "/v1/clusters/orders": 200, "/v1/clusters/orders/endpoints": 200,
		"/v1/events?cluster=orders": 200, "/v1/events?cluster=secret": 403, "/v1/events?target=xds:secret": 403, "/v1/events/watch?cluster=secret": 403,
	} {
		if w := c.as("restricted", "GET", path, ""); w.Code != want {
			t.Errorf("%s: %d %s; want %d", path, w.Code, w.Body, want)
		}
	}
	if w := c.as("restricted", "DELETE", "/v1/clusters/secret/endpoints", ""); w.Code != 403 {
		t.Errorf("DELETE: %d %s", w.Code, w.Body)
	}
	var list api.ClusterList
	if err := json.Unmarshal(c.as("restricted", "GET", "/v1/clusters", "").Body.Bytes(), &list); err != nil || len(list.Clusters) != 2 {
		t.Errorf("lists %+v, %v", list.Clusters, err)
	}
	if w := c.as("push", "DELETE", "/v1/clusters/orders/endpoints", ""); w.Code != 200 {
		t.Errorf("DELETE by a caller who may: %d %s", w.Code, w.Body)
	}
	var events api.EventList
	if err := json.Unmarshal(c.as("read", "GET", "/v1/events?type=pushed&limit=1", "").Body.Bytes(), &events); err != nil || len(events.Events) != 1 || events.Events[0].By != "push" {
		t.Errorf("events %+v, %v", events.Events, err)
	}
}

// One caller's Idempotency-Key is not another's.
func TestIdempotencyKeysAreOfTheirCaller(t *testing.T) {
	c := startWithCallers(t, "127.0.0.1:8080,anonymous=pick")
	const one = `{"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"127.0.0.1","port_value":1}}}}]}]}`
	if w := c.as("push", "PUT", "/v1/clusters/orders/endpoints", one, "Content-Type: application/json"); w.Code != 201 {
		t.Fatal(w.Body)
	}
	lease := func(caller string) string {
		w := c.as(caller, "POST", "/pick?cluster=orders", "", "Idempotency-Key: 1")
		if w.Code != 201 {
			t.Fatalf("as %q: %d %s", caller, w.Code, w.Body)
		}
		return w.Header().Get("Location")
	}
	leaseFrom := func(address string) string {
		r := httptest.NewRequest(http.MethodPost, "/pick?cluster=orders", http.NoBody).WithContext(listen.BaseContext(c.listener))
		r.Host, r.RemoteAddr = "127.0.0.1:8080", address
		r.Header.Set("Idempotency-Key", "1")
		return c.answer(r).Header().Get("Location")
	}
	own, others, anonymous := lease("pick"), lease("restricted"), lease("")
	if own == others || own == anonymous || others == anonymous || own != lease("pick") {
		t.Errorf("leases %s, %s, %s", own, others, anonymous)
	}
	// Callers without identity have the keys of their account.
	leases := map[string]bool{own: true, others: true}
	for _, address := range []string{"192.0.2.1:7", "192.0.2.7:7", "[2001:db8::1]:7", "[2001:db8:0:1::1]:7", "@"} {
		leases[leaseFrom(address)] = true
	}
	if len(leases) != 7 || !leases[anonymous] || !leases[leaseFrom("[2001:db8::2]:9")] {
		t.Errorf("leases %v; %s", leases, anonymous)
	}
}

func TestHostIsChecked(t *testing.T) {
	d := start(t, nil)
	l := func(spec string) *listen.Listener {
		specs, err := listen.Parse([]string{spec})
		servicetest.Must(t, err)
		return &listen.Listener{Spec: specs[0], Policy: specs[0].Policy(false, false)}
	}
	for _, c := range []struct {
		spec, path, host string
		want             int
	}{
		{"127.0.0.1:1", "/v1/clusters", "localhost:1", 200},
		{"127.0.0.1:1", "/v1/clusters", "attacker.example", 421},
		{"127.0.0.1:1", "/docs", "attacker.example", 421},
		{"127.0.0.1:1", "/livez", "attacker.example", 200},
		{"unix:/run/lbd", "/v1/clusters", "attacker.example", 200},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil).WithContext(listen.BaseContext(l(c.spec)))
		r.Host = c.host
		w := httptest.NewRecorder()
		d.handler.ServeHTTP(w, r)
		if w.Code != c.want || c.want == 421 && (problemOf(w).Code != "misdirected_request" || !strings.Contains(w.Body.String(), "--allow-host")) {
			t.Errorf("%+v: %d %s", c, w.Code, w.Body)
		}
	}
}
