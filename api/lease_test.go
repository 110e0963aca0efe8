package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
)

// lease leases one pick and returns the lease's path.
func (d *daemon) lease() string {
	d.tb.Helper()
	return d.must(http.StatusCreated, "POST", "/pick?cluster=orders", "").Header().Get("Location")
}

func TestLeaseLivesUntilItIsDone(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080")
	path := d.lease()
	held := d.must(200, "GET", path, "")
	if got, want := still(held.Body.String()), `{"id":"ID","cluster":"orders","address":"10.0.0.7:8080","priority":0,"state":"held","granted_at":"T","expires_at":"T"}`+"\n"; got != want {
		t.Errorf("held: got %swant %s", got, want)
	}
	before := decode[picks.LeaseState](t, held.Body.Bytes())
	renewed := decode[picks.LeaseState](t, d.must(200, "POST", path+"/renew?ttl=5m", "").Body.Bytes())
	if !renewed.ExpiresAt.After(before.ExpiresAt) {
		t.Errorf("renewed for 5m from 30s: %v, then %v", before.ExpiresAt, renewed.ExpiresAt)
	}
	shortened := decode[picks.LeaseState](t, d.must(200, "POST", path+"/renew", "").Body.Bytes())
	if by := renewed.ExpiresAt.Sub(shortened.ExpiresAt); by < 4*time.Minute || by > 5*time.Minute-picks.DefaultTTL {
		t.Errorf("renewed for 30s from 5m: %v earlier", by)
	}
	first := d.must(200, "POST", path+"/done", `{"outcome":"error","load":{"cpu_utilization":0.4,"named_metrics":{"queue":3}}}`)
	if got := decode[picks.LeaseState](t, first.Body.Bytes()); got.State != "ended" || got.Outcome != picks.Failure {
		t.Errorf("done: %s", first.Body)
	}
	if again := d.must(200, "POST", path+"/done", ""); again.Body.String() != first.Body.String() {
		t.Errorf("done again: %s, first %s", again.Body, first.Body)
	}
	d.refused(fault.UnknownLease, "POST", path+"/renew", "")
	d.must(200, "GET", path, "")
}

func TestDoneBodies(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080")
	for body, want := range map[string]picks.Outcome{
		"": picks.Success, " \n": picks.Success, "{}": picks.Success,
		`{"outcome":"cancelled"}`: picks.Cancelled, `{"outcome":"unreachable"}`: picks.Unreachable, `{"outcome":"unreachable","load":null}`: picks.Unreachable,
	} {
		w := d.must(200, "POST", d.lease()+"/done", body, "Content-Type: application/x-www-form-urlencoded")
		if got := decode[picks.LeaseState](t, w.Body.Bytes()); got.Outcome != want {
			t.Errorf("%q: %s, want %s", body, got.Outcome, want)
		}
	}
	path := d.lease() + "/done"
	for body, says := range map[string]string{
		`{"outcome":"expired"}`:                 `outcome: "expired" is not success, error, cancelled or unreachable`,
		`{"outcome":3}`:                         "outcome: a JSON number is not valid here",
		`{"result":"success"}`:                  `unknown field "result"`,
		`{"outcome":`:                           "does not end",
		`{"outcome":"success"} junk`:            "unexpected data",
		`{"outcome":"success"}}`:                "unexpected data",
		`null`:                                  "null is not valid",
		`{"load":{"named_metrics":{"a":null}}}`: "null is not valid",
	} {
		d.refusedWith(says, fault.InvalidArgument, "POST", path, body)
	}
	d.refused(fault.UnsupportedMedia, "POST", path, "{}", "Content-Type: text/csv")
	d.refused(fault.UnsupportedMedia, "POST", path, "{}", "Content-Encoding: gzip")
	d.refused(fault.TooLarge, "POST", path, `{"outcome":"`+strings.Repeat("x", api.MaxLeaseBytes)+`"}`)
	for _, target := range []string{path, "/pick?cluster=orders"} {
		unsized := httptest.NewRequest(http.MethodPost, target, strings.NewReader(strings.Repeat(" ", api.MaxLeaseBytes+1)))
		unsized.ContentLength = -1
		if w := d.answer(unsized); w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d for a body that does not say how large it is", target, w.Code)
		}
	}
	d.refused(fault.UnknownLease, "POST", "/v1/leases/unknown/done", "")
	d.refused(fault.UnknownLease, "GET", "/v1/leases/unknown", "")
	d.refused(fault.InvalidArgument, "GET", "/v1/leases/unknown?x", "")
	d.refused(fault.InvalidArgument, "POST", "/v1/leases/unknown/renew?ttl=1h", "")
	if held := decode[picks.LeaseState](t, d.must(200, "GET", strings.TrimSuffix(path, "/done"), "").Body.Bytes()); held.State != "held" {
		t.Error("a refused done ended the lease")
	}
	// As in proto3 JSON, null is absent.
	for _, body := range []string{`{"load":null}`, `{"outcome":null,"load":{"eps":null,"named_metrics":null}}`} {
		if ended := decode[picks.LeaseState](t, d.must(200, "POST", d.lease()+"/done", body).Body.Bytes()); ended.Outcome != picks.Success {
			t.Errorf("%s: %v", body, ended)
		}
	}
}

func TestManyLeasesGetAVerdictEach(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080")
	one, two := strings.TrimPrefix(d.lease(), "/v1/leases/"), strings.TrimPrefix(d.lease(), "/v1/leases/")
	w := d.must(200, "POST", "/v1/leases/done", fmt.Sprintf(
		`{"leases":[{"id":%q},{"id":"unknown"},{"id":%q,"outcome":"bad"},{"id":%q,"outcome":"error","load":{"eps":1}}]}`, one, two, two))
	v := decode[api.Verdicts](t, w.Body.Bytes()).Leases
	if len(v) != 4 || v[0].Lease.Outcome != picks.Success || v[1].Problem.Code != fault.UnknownLease || v[1].Problem.Status != 404 ||
		v[2].Problem.Code != fault.InvalidArgument || v[3].Lease.Outcome != picks.Failure || v[3].ID != two {
		t.Errorf("verdicts: %s", w.Body)
	}
	d.must(200, "POST", "/v1/leases/done", `{"leases":[]}`)
	d.refused(fault.InvalidArgument, "POST", "/v1/leases/done", "")
	for _, body := range []string{"{}", "null", `{"leases":[null]}`, `{"leases":[{"outcome":"success"}]}`, `{"leases":null}`} {
		d.refused(fault.InvalidArgument, "POST", "/v1/leases/done", body)
	}
	d.refused(fault.InvalidArgument, "POST", "/v1/leases/done", `{"leases":[`+strings.Repeat(`{"id":"x"},`, api.MaxDone)+`{"id":"x"}]}`)
	d.refused(fault.TooLarge, "POST", "/v1/leases/done", strings.Repeat(" ", api.MaxLeasesBytes+1))
}

// Leases are listed and ended by cluster, owner and identity: those of others with the role read or
// admin only.
func TestLeasesByOwner(t *testing.T) {
	c := startWithCallers(t, "127.0.0.1:8080")
	if w := c.as("restricted", http.MethodPut, "/v1/clusters/orders/endpoints", assignment("", "10.0.0.7:8080")); w.Code != http.StatusCreated {
		t.Fatal(w.Code, w.Body)
	}
	for _, q := range []string{"n=3&owner=web-1", "n=2&owner=web-2"} {
		if w := c.as("pick", http.MethodPost, "/pick?cluster=orders&"+q, ""); w.Code != http.StatusCreated {
			t.Fatal(w.Code, w.Body)
		}
	}
	if w := c.as("restricted", http.MethodPost, "/pick?cluster=orders", ""); w.Code != http.StatusCreated {
		t.Fatal(w.Code, w.Body)
	}
	if w := c.as("push", http.MethodPut, "/v1/clusters/users/endpoints", assignment("", "10.0.0.8:8080")); w.Code != http.StatusCreated {
		t.Fatal(w.Code, w.Body)
	}
	if w := c.as("pick", http.MethodPost, "/pick?cluster=users", ""); w.Code != http.StatusCreated {
		t.Fatal(w.Code, w.Body)
	}
	for _, tt := range []struct {
		caller, method, query string
		status                int
		want                  string
	}{
		{"restricted", http.MethodGet, "", 200, `"identity":"pick","owner":"web-2"`},
		{"restricted", http.MethodGet, "?limit=2", 200, `"next":"`},
		{"restricted", http.MethodGet, "?cluster=users", 200, `{"leases":[]}`},
		{"pick", http.MethodGet, "?identity=restricted", 403, `"role":"read"`},
		{"pick", http.MethodGet, "?owner=web-1&older_than=1h", 200, `{"leases":[]}`},
		{"read", http.MethodGet, "?limit=2", 200, `"next":"`},
		{"push", http.MethodGet, "", 403, `"role":"read"`},
		{"pick", http.MethodDelete, "", 400, "cluster, owner, identity or older_than is required"},
		{"pick", http.MethodDelete, "?identity=restricted", 403, `"role":"admin"`},
		{"pick", http.MethodDelete, "?owner=web-1", 200, `{"ended":3,"by":[{"cluster":"orders","identity":"pick","owner":"web-1","leases":3}]}`},
		{"pick", http.MethodDelete, "?cluster=orders", 200, `{"ended":2,`},
		{"restricted", http.MethodDelete, "?cluster=orders", 200, `{"ended":1,"by":[{"cluster":"orders","identity":"restricted","leases":1}]}`},
		{"restricted", http.MethodDelete, "?cluster=orders", 200, `{"ended":0,"by":[]}`},
		{"read", http.MethodDelete, "?cluster=orders", 403, `"role":"admin"`},
		{"admin", http.MethodGet, "", 403, `"role":"read"`},
		{"admin", http.MethodDelete, "?cluster=users", 200, `{"ended":1,"by":[{"cluster":"users","identity":"pick","leases":1}]}`},
	} {
		if w := c.as(tt.caller, tt.method, "/v1/leases"+tt.query, ""); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s %s %s: %d %s", tt.caller, tt.method, tt.query, w.Code, w.Body)
		}
	}
	if w := c.as("restricted", http.MethodGet, "/v1/leases", ""); w.Body.String() != `{"leases":[]}`+"\n" {
		t.Errorf("leases remain: %s", w.Body)
	}
}

// The outcome may be spelled in any way that JSON permits.
func TestSpellingsOfTheOutcome(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080")
	for _, tt := range []struct {
		body, header string
		status       int
		want         string
	}{
		{"", "", 200, `"outcome":"success"`},
		{"{}", "", 200, `"outcome":"success"`},
		{`{"outcome":"success"}`, "", 200, `"outcome":"success"`},
		{" {\"outcome\": \"error\"}\n", "", 200, `"outcome":"error"`},
		{`{"outcome":"cancelled"}`, "Content-Type: application/json; charset=utf-8", 200, `"outcome":"cancelled"`},
		{`{ "outcome" : "error" }`, "", 200, `"outcome":"error"`},
		{`{"outcome":"\u0065rror"}`, "", 200, `"outcome":"error"`},
		{`{"outcome":"error","load":{"utilization":{"a":0.5}}}`, "", 200, `"outcome":"error"`},
		{`{"outcome":"Error"}`, "", 400, "is not success, error, cancelled or unreachable"},
		{`{"outcome":"error"`, "", 400, "does not end"},
		{`{"outcome":"error"} {}`, "", 400, "body"},
		{`{"outcome":"error"}`, "Content-Type: text/plain", 415, "text/plain"},
		{`{"outcome":"error"}`, "Content-Encoding: gzip", 415, "gzip"},
	} {
		lease := d.must(201, "POST", "/pick?cluster=orders", "").Header().Get("Location")
		var headers []string
		if tt.header != "" {
			headers = append(headers, tt.header)
		}
		if w := d.do("POST", lease+"/done", tt.body, headers...); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%q, %s: %d %s", tt.body, tt.header, w.Code, w.Body)
		}
	}
}
