package api_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/audit"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// differences returns the words of the answer to a change.
func differences(t *testing.T, body []byte) string {
	t.Helper()
	var out []string
	for _, c := range decode[api.PushAnswer](t, body).Changes {
		out = append(out, c.Difference)
	}
	return strings.Join(out, "; ")
}

func TestOneEndpointIsPushed(t *testing.T) {
	d := start(t, nil)
	for _, step := range []struct {
		status                       int
		method, address, query, body string
		says                         string
	}{
		{200, "PUT", "10.0.0.7:8080", "?dry_run", "", "added with 1 usable endpoint"},
		{201, "PUT", "10.0.0.7:8080", "", "", "added with 1 usable endpoint"},
		{200, "PUT", "10.0.0.7:8080", "", "{}", ""},
		{201, "PUT", "10.0.0.8:8080", "", `{"weight":3}`, "weight of the empty locality 1 → 2; 1 endpoint added to the empty locality (10.0.0.8:8080)"},
		{200, "PUT", "10.0.0.8:8080", "", `{"health":"DRAINING"}`, "weight of the empty locality 2 → 1; health of 1 endpoint in the empty locality changed (10.0.0.8:8080 UNKNOWN → DRAINING)"},
		{200, "PUT", "10.0.0.8:8080", "", `{"hostname":"eight"}`, "addresses or names of 1 endpoint in the empty locality changed"},
		{200, "PUT", "10.0.0.8:8080", "", `{"locality":{"region":"r","zone":"a"}}`, "1 endpoint removed from the empty locality; locality r/a added with 1 endpoint"},
		{201, "PUT", "[::1]:80", "", `{"locality":{}}`, "weight of the empty locality 1 → 2; 1 endpoint added to the empty locality ([::1]:80)"},
		{200, "PUT", "%5B::1%5D%3A80", "", "", ""},
		{200, "DELETE", "[0:0::1]:80", "?dry_run", "", "weight of the empty locality 2 → 1; 1 endpoint removed from the empty locality"},
		{200, "DELETE", "[0:0::1]:80", "", "", "weight of the empty locality 2 → 1; 1 endpoint removed from the empty locality"},
		{200, "DELETE", "10.0.0.7:8080", "?allow_empty", "", "1 endpoint removed from the empty locality"},
	} {
		w := d.must(step.status, step.method, orders+"/"+step.address+step.query, step.body)
		if got := differences(t, w.Body.Bytes()); got != step.says {
			t.Errorf("%s %s%s %s:\ngot  %s\nwant %s", step.method, step.address, step.query, step.body, got, step.says)
		}
	}
	d.expect(orders, `{
  "cluster_name": "orders",
  "endpoints": [
    {},
    {
      "locality": {
        "region": "r",
        "zone": "a"
      },
      "lb_endpoints": [
        {
          "endpoint": {
            "address": {
              "socket_address": {
                "address": "10.0.0.8",
                "port_value": 8080
              }
            },
            "hostname": "eight"
          },
          "health_status": "DRAINING",
          "load_balancing_weight": 3
        }
      ]
    }
  ]
}`)
}

func TestOneEndpointIsRefused(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080")
	const one = orders + "/10.0.0.7:8080"
	d.refusedWith("set allow_empty=true", fault.Blocked, "DELETE", one, "")
	d.refusedWith("set allow_empty=true", fault.Blocked, "PUT", one, `{"health":"UNHEALTHY"}`)
	d.refusedWith("set allow_empty=true", fault.Blocked, "PUT", "/v1/clusters/new/endpoints/10.0.0.7:8080", `{"health":"UNHEALTHY"}`)
	d.refusedWith("ClusterLoadAssignment/orders has no endpoint 10.0.0.9:8080", fault.UnknownEndpoint, "DELETE", orders+"/10.0.0.9:8080", "")
	d.refusedWith("ClusterLoadAssignment/new was not pushed", fault.UnknownCluster, "DELETE", "/v1/clusters/new/endpoints/10.0.0.7:8080", "")
	d.refusedWith("there are us-east1/b", fault.InvalidArgument, "PUT", orders+"/10.0.0.9:8080", `{"locality":{"region":"us-east1","zone":"c"}}`)
	d.refusedWith("which is reserved", fault.InvalidResource, "PUT", "/v1/clusters/_other/endpoints/10.0.0.7:8080", "")
	d.refusedWith("priorities must begin at 0", fault.InvalidResource, "PUT", "/v1/clusters/new/endpoints/10.0.0.7:8080", `{"priority":1}`)
	for body, says := range map[string]string{
		`{"weight":0}`:       "weight: must be at least 1",
		`{"weight":-1}`:      "weight: a JSON number -1 is not valid here",
		`{"health":"ill"}`:   `health: "ill" is no health status`,
		`{"color":"red"}`:    "unknown field",
		"null":               "null is not valid",
		`["10.0.0.7:8080"]`:  "a JSON array is not valid here",
		`{"locality":"r/a"}`: "a JSON string is not valid here",
	} {
		d.refusedWith(says, fault.InvalidArgument, "PUT", one, body)
	}
	if got := decode[api.PushAnswer](t, d.must(200, "PUT", one, `{"weight":null,"locality":null}`).Body.Bytes()); len(got.Changes) != 0 {
		t.Errorf("null is not absent: %v", got.Changes)
	}
	d.refused(fault.UnsupportedMedia, "PUT", one, "weight: 3", "Content-Type: application/yaml")
	d.refused(fault.TooLarge, "PUT", one, strings.Repeat(" ", api.MaxEndpointBytes+1))
	for _, address := range []string{"10.0.0.7", "10.0.0.7:0", ":80", "10.0.0:80", "a%00b:80", "orders"} {
		d.refused(fault.InvalidArgument, "PUT", orders+"/"+address, "")
		d.refused(fault.InvalidArgument, "DELETE", orders+"/"+address, "")
	}
	d.refused(fault.InvalidArgument, "PUT", one+"?strict=false", "")
	d.refused("method_not_allowed", "GET", one, "")
	if got := d.must(200, "GET", orders, "", "Accept: application/yaml").Body.String(); strings.Count(got, "port_value") != 1 {
		t.Errorf("a refused change was made: %s", got)
	}
}

// The conditions are about the assignment.
func TestOneEndpointWithConditions(t *testing.T) {
	d := start(t, func(o *service.Options) { o.Sources.RequireIfMatch = true })
	const one = orders + "/10.0.0.7:8080"
	etag := func(body []byte) string { return decode[api.PushAnswer](t, body).ETag }
	d.refused(fault.PreconditionRequired, "PUT", one, "")
	d.refused(fault.PreconditionFailed, "PUT", one, "", "If-Match: *")
	first := etag(d.must(http.StatusCreated, "PUT", one, "", "If-None-Match: *").Body.Bytes())
	if now := d.must(200, "GET", orders, "").Header().Get("ETag"); now != `"`+first+`-json"` {
		t.Errorf("the ETag is %s, and of the assignment %s", first, now)
	}
	second := etag(d.must(http.StatusCreated, "PUT", orders+"/10.0.0.8:8080", "", "If-Match: "+first).Body.Bytes())
	d.refused(fault.PreconditionFailed, "PUT", one, `{"weight":2}`, "If-Match: "+first)
	d.refused(fault.PreconditionFailed, "DELETE", one, "", "If-Match: "+first)
	d.refused(fault.PreconditionRequired, "DELETE", one, "")
	if last := etag(d.must(200, "DELETE", one, "", "If-Match: "+second).Body.Bytes()); last == "" || last == second {
		t.Errorf("the ETag after a removal is %q, and before it %q", last, second)
	}
}

// A change of one endpoint is in the history, with its author and reason, and can be undone.
func TestOneEndpointHasAHistory(t *testing.T) {
	c := startWithCallers(t, "127.0.0.1:8080")
	for _, address := range []string{"10.0.0.7:8080", "10.0.0.8:8080"} {
		if w := c.as("push", "PUT", orders+"/"+address, ""); w.Code != http.StatusCreated {
			t.Fatal(w.Code, w.Body)
		}
	}
	if w := c.as("push", "DELETE", orders+"/10.0.0.7:8080", "", "Lbd-Message: it is slow"); w.Code != 200 {
		t.Fatal(w.Code, w.Body)
	}
	list := c.as("read", "GET", "/v1/history?cluster=orders&limit=1", "").Body.String()
	for _, want := range []string{`"caller":"push"`, `"message":"it is slow"`, `1 endpoint removed`} {
		if !strings.Contains(list, want) {
			t.Errorf("no %s in %s", want, list)
		}
	}
	if w := c.as("push", "POST", "/v1/history/2/restore?cluster=orders", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "1 endpoint added") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := c.as("restricted", "PUT", "/v1/clusters/secret/endpoints/10.0.0.7:8080", ""); w.Code != http.StatusForbidden {
		t.Errorf("another cluster: %d %s", w.Code, w.Body)
	}
}

// A registered endpoint is renewed by the same request, or with others.
func TestRegisteredEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, nil)
		const one, two = orders + "/10.0.0.7:8080", orders + "/[2001:db8::7]:8080"
		for ttl, says := range map[string]string{
			"": "is not a duration, such as 30s", "30": "is not a duration, such as 30s", "-1s": "ttl: -1s is not from 1s to 1h0m0s in whole milliseconds",
			"999ms": "ttl: 999ms is not from 1s", "1h0m1s": "ttl: 1h0m1s is not from 1s", "1.0001s": "in whole milliseconds",
		} {
			d.refusedWith(says, fault.InvalidArgument, "PUT", one+"?ttl="+ttl, "")
		}
		d.must(200, "PUT", one+"?ttl=30s&dry_run", "")
		d.must(http.StatusCreated, "PUT", one+"?ttl=30s", `{"weight":2}`)
		d.must(http.StatusCreated, "PUT", two+"?ttl=10s", "")
		d.must(http.StatusCreated, "PUT", orders+"/10.0.0.9:8080", "")
		if got := d.must(200, "GET", orders, "").Body.String(); !strings.Contains(got, `"ttl": "30s"`) {
			t.Errorf("the ttl is not shown: %s", got)
		}
		body := `{"endpoints":[{"cluster":"orders","address":"10.0.0.7:8080"},{"cluster":"orders","address":"[2001:db8:0::7]:8080"},{"cluster":"orders","address":"10.0.0.9:8080"},{"cluster":"other","address":"10.0.0.7:8080"}]}`
		for range 5 {
			time.Sleep(9 * time.Second)
			for _, same := range []string{"", `{"weight":2}`} {
				if a := decode[api.PushAnswer](t, d.must(200, "PUT", one+"?ttl=30s", same).Body.Bytes()); len(a.Changes) != 0 || a.Index != 3 || a.ETag == "" {
					t.Errorf("a renewal: %+v", a)
				}
			}
			is := decode[api.Renewed](t, d.must(200, "POST", "/v1/renewals", body).Body.Bytes()).Endpoints
			for i, ttl := range []time.Duration{30 * time.Second, 10 * time.Second, 0, 0} {
				switch {
				case ttl != 0 && (is[i].Problem != nil || !is[i].ExpiresAt.Equal(time.Now().Add(ttl))):
					t.Errorf("%d: %+v", i, is[i])
				case ttl == 0 && (is[i].ExpiresAt != nil || is[i].Problem.Code != fault.UnknownEndpoint || !strings.HasSuffix(is[i].Problem.Detail, "register it again")):
					t.Errorf("%d: %+v", i, is[i])
				}
			}
		}
		time.Sleep(11 * time.Second)
		if is := decode[api.Renewed](t, d.must(200, "POST", "/v1/renewals", body).Body.Bytes()).Endpoints; is[0].Problem != nil || is[1].Problem == nil {
			t.Errorf("after the ttl of one: %+v", is)
		}
		metrics := d.must(200, "GET", "/metrics", "").Body.String()
		for _, want := range []string{`lbd_registered_endpoints{cluster="orders"} 1`, `lbd_expired_endpoints_held{cluster="orders"} 0`, "lbd_expired_endpoints_total 1"} {
			if !strings.Contains(metrics, want+"\n") {
				t.Errorf("no %s", want)
			}
		}
		d.must(200, "PUT", one+"?ttl=0s", "")
		d.must(200, "PUT", one+"?ttl=1s&dry_run", "")
		time.Sleep(time.Minute)
		if got := d.must(200, "GET", orders, "").Body.String(); strings.Contains(got, "ttl") || strings.Count(got, "port_value") != 2 {
			t.Errorf("not the two that stay: %s", got)
		}
	})
}

func TestRenewalsAreRefused(t *testing.T) {
	d := start(t, nil)
	for body, says := range map[string]string{
		"": "endpoints is required", "{}": "endpoints is required", `{"endpoints":[{"cluster":"a"}]}`: "endpoints[0]: address is empty",
		`{"endpoints":[{"address":"a:1"}]}`: "endpoints[0]: cluster is empty", `{"ttl":"1s","endpoints":[]}`: "unknown field",
		`{"endpoints":[` + strings.Repeat(`{},`, api.MaxRenewals) + `{}]}`: "1001 endpoints; at most 1000 are allowed",
	} {
		d.refusedWith(says, fault.InvalidArgument, "POST", "/v1/renewals", body)
	}
	d.refused(fault.InvalidArgument, "POST", "/v1/renewals?ttl=1s", `{"endpoints":[]}`)
	d.refused(fault.TooLarge, "POST", "/v1/renewals", strings.Repeat(" ", api.MaxRenewalsBytes+1))
	d.must(200, "POST", "/v1/renewals", `{"endpoints":[]}`)
	c := startWithCallers(t, "127.0.0.1:8080")
	w := c.as("restricted", "POST", "/v1/renewals", `{"endpoints":[{"cluster":"secret","address":"a:1"},{"cluster":"orders","address":"a:1"}]}`)
	is := decode[api.Renewed](t, w.Body.Bytes()).Endpoints
	if is[0].Problem.Code != "permission_denied" || is[1].Problem.Code != fault.UnknownEndpoint {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Renewals are not in the audit log; what changes endpoints is, and refused renewals are.
func TestRenewalsAreNotAudited(t *testing.T) {
	var lines bytes.Buffer
	log, err := audit.Open("-", &lines, slog.New(slog.DiscardHandler))
	servicetest.Must(t, err)
	d := startServing(t, nil, sources.Connections{}, func(o *api.Options) { o.Audit = log })
	const one = orders + "/10.0.0.7:8080"
	d.must(http.StatusCreated, "PUT", one+"?ttl=30s", "")
	d.must(200, "PUT", one+"?ttl=30s", "")
	d.must(200, "POST", "/v1/renewals", `{"endpoints":[{"cluster":"orders","address":"10.0.0.7:8080"}]}`)
	d.must(http.StatusBadRequest, "POST", "/v1/renewals", "{}")
	d.must(200, "PUT", one, "")
	servicetest.Must(t, log.Close())
	var got []string
	for line := range strings.Lines(lines.String()) {
		r := decode[audit.Record](t, []byte(line))
		got = append(got, fmt.Sprint(r.Method, " ", r.Path, " ", r.Status))
	}
	want := []string{"PUT " + one + "?ttl=30s 201", "POST /v1/renewals 400", "PUT " + one + " 200"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// An endpoint is one in all spellings of its address.
func TestSpellingsOfAnAddress(t *testing.T) {
	d := start(t, nil)
	answer := decode[api.PushAnswer](t, d.must(201, "PUT", orders, "[0:0:0:0:0:0:0:1]:80\nLOCALHOST:80\n[::ffff:10.0.0.7]:80\n", "Content-Type: text/plain").Body.Bytes())
	var notes []string
	for _, n := range answer.Notes {
		if strings.Contains(n.Reason, "taken as") && strings.HasSuffix(n.Field, ".socket_address.address") {
			notes = append(notes, n.Reason)
		}
	}
	if want := []string{"is 0:0:0:0:0:0:0:1: taken as ::1", "is LOCALHOST: taken as localhost", "is ::ffff:10.0.0.7: taken as 10.0.0.7"}; !slices.Equal(notes, want) {
		t.Errorf("notes %q", notes)
	}
	const all = "&exclude=[0::1]:80&exclude=LocalHost:80&exclude=[::ffff:a00:7]:80"
	d.refused(fault.AllExcluded, "GET", "/pick?cluster=orders"+all, "")
	d.must(200, "PUT", orders+"/[0::0:1]:80", `{"weight":2}`)
	d.must(201, "PUT", "/v1/clusters/orders/overlays/a", `{"kind":"drain","endpoint":"[0:0::1]:80"}`)
	d.must(201, "PUT", "/v1/clusters/orders/overlays/b", `{"kind":"drain","endpoint":"LOCALHOST:80"}`)
	if picked := decode[api.PicksAnswer](t, d.must(200, "GET", "/pick?cluster=orders&n=4", "").Body.Bytes()); len(picked.Picks) == 0 || slices.ContainsFunc(picked.Picks, func(p api.ListedEndpoint) bool { return p.Address != "10.0.0.7:80" }) {
		t.Errorf("picks of drained endpoints: %+v", picked)
	}
	report := decode[api.ReportAnswer](t, d.must(200, "POST", "/v1/reports",
		`{"reporter":"a","interval":"1s","clusters":[{"cluster":"orders","endpoints":[{"address":"[::FFFF:10.0.0.7]:80","requests":1}]}]}`).Body.Bytes())
	if report.Endpoints != 1 {
		t.Errorf("report %+v", report)
	}
	d.must(201, "PUT", orders+"/ORDERS-1:80?ttl=30s", "")
	d.must(200, "POST", "/v1/renewals", `{"endpoints":[{"cluster":"orders","address":"Orders-1:80"}]}`)
	d.must(200, "DELETE", orders+"/Orders-1:80", "")
}
