package api_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/service/fault"
)

const inJSON = "{" + fieldsInJSON

const fieldsInJSON = `"endpoints":[{"locality":{"zone":"b"},"loadBalancingWeight":1,"lbEndpoints":[{"endpoint":{"address":{"socketAddress":{"address":"a","portValue":1}}}}]}]}`

func TestContentTypeSelectsFormat(t *testing.T) {
	d := start(t, nil)
	d.must(http.StatusCreated, "PUT", orders, inJSON)
	proto := d.must(200, "GET", orders, "", "Accept: application/x-protobuf").Body.String()
	for _, c := range []struct{ body, contentType string }{
		{inJSON, "application/json"},
		{inJSON, "application/json; charset=UTF-8"},
		{inJSON, "-"},
		{" \n" + inJSON, "application/x-www-form-urlencoded"},
		{inJSON, "application/yaml"}, // YAML holds JSON
		{assignment("", "a:1"), "application/yaml"},
		{assignment("", "a:1"), "text/yaml"},
		{assignment("", "a:1"), "-"},
		{assignment("", "a:1"), "application/x-www-form-urlencoded"},
		{proto, "application/x-protobuf"},
		{"# one\na:1 2\n", "text/plain; charset=utf-8"},
		{"a:1\n", "-"},
		{`["a:1"]`, "application/json"},
		{"- a:1\n", "-"},
	} {
		d.must(200, "DELETE", orders, "")
		headers := []string{"Content-Type: " + c.contentType}
		if c.contentType == "-" {
			headers = nil
		}
		d.must(http.StatusCreated, "PUT", orders, c.body, headers...)
	}
	for _, header := range []string{
		"Content-Type: text/csv", "Content-Type: application/json; charset=latin1", "Content-Type: ;", "Content-Encoding: gzip",
	} {
		d.refused(fault.UnsupportedMedia, "PUT", orders, inJSON, header)
	}
	d.refused(fault.InvalidArgument, "PUT", orders, assignment("", "a:1"), "Content-Type: application/json")
	d.refused(fault.InvalidArgument, "PUT", orders, "", "Content-Type: application/json")
}

func TestRepresentations(t *testing.T) {
	d := start(t, nil)
	etag := decode[api.PushAnswer](t, d.must(http.StatusCreated, "PUT", orders, inJSON).Body.Bytes()).ETag
	if etag == "" || strings.ContainsAny(etag, `"-`) {
		t.Fatalf("etag is %q", etag)
	}
	for accept, want := range map[string][2]string{
		"":                       {"application/json", "-json"},
		"*/*":                    {"application/json", "-json"},
		"text/html, */*;q=0.8":   {"application/json", "-json"},
		"application/yaml":       {"application/yaml", "-yaml"},
		"text/yaml":              {"application/yaml", "-yaml"},
		"application/yaml, */*":  {"application/json", "-json"},
		"application/x-protobuf": {"application/x-protobuf", "-pb"},
		"application/json;q=0.5, application/yaml;q=0.9": {"application/yaml", "-yaml"},
		"image/png": {"application/json", "-json"},
	} {
		w := d.must(200, "GET", orders, "", "Accept: "+accept)
		if got := w.Header().Get("Content-Type"); got != want[0] {
			t.Errorf("%q: Content-Type %q", accept, got)
		}
		if got := w.Header().Get("ETag"); got != `"`+etag+want[1]+`"` {
			t.Errorf("%q: ETag %s of %s", accept, got, etag)
		}
		if w.Header().Get("Vary") != "Accept" {
			t.Errorf("%q: Vary is %q", accept, w.Header().Get("Vary"))
		}
		// What was read can be pushed back, and changes nothing.
		back := d.must(200, "PUT", orders, w.Body.String(), "Content-Type: "+want[0], "If-Match: "+w.Header().Get("ETag"))
		if a := decode[api.PushAnswer](t, back.Body.Bytes()); len(a.Changes) > 0 || a.ETag != etag {
			t.Errorf("%q: pushed back: %s", accept, back.Body)
		}
		if again := d.do("GET", orders, "", "Accept: "+accept, "If-None-Match: "+w.Header().Get("ETag")); again.Code != 304 || again.Body.Len() > 0 || again.Header().Get("ETag") != w.Header().Get("ETag") {
			t.Errorf("%q: not 304 but %d %s", accept, again.Code, again.Body)
		}
	}
	for tags, status := range map[string]int{
		`"x", W/"` + etag + `-json"`: 304, etag: 304, "*": 304, `"` + etag + `-yaml"`: 200, `"x"`: 200, `"x`: 400,
	} {
		if w := d.do("GET", orders, "", "If-None-Match: "+tags); w.Code != status {
			t.Errorf("If-None-Match: %s: %d, want %d", tags, w.Code, status)
		}
	}
	head := d.must(200, "HEAD", orders, "")
	if head.Header().Get("ETag") != `"`+etag+`-json"` {
		t.Errorf("HEAD: ETag %q", head.Header().Get("ETag"))
	}
}

func TestPreconditionsGuardChanges(t *testing.T) {
	d := start(t, nil)
	body := func(n string) string { return assignment("", "a:"+n) }
	d.refused(fault.PreconditionFailed, "PUT", orders, body("1"), "If-Match: *")
	one := decode[api.PushAnswer](t, d.must(http.StatusCreated, "PUT", orders, body("1"), "If-None-Match: *").Body.Bytes()).ETag
	d.refused(fault.PreconditionFailed, "PUT", orders, body("2"), "If-None-Match: *")
	two := decode[api.PushAnswer](t, d.must(200, "PUT", orders, body("2"), `If-Match: "`+one+`-yaml"`).Body.Bytes()).ETag
	if one == two {
		t.Fatal("other content has the same etag")
	}
	d.refused(fault.PreconditionFailed, "PUT", orders, body("3"), "If-Match: "+one)
	d.refused(fault.PreconditionFailed, "PUT", orders, body("3"), `If-Match: W/"`+two+`"`)
	d.refused(fault.PreconditionFailed, "DELETE", orders, "", "If-Match: "+one)
	d.refused(fault.PreconditionFailed, "DELETE", orders, "", "If-None-Match: *")
	for _, h := range []string{`If-Match: "x`, "If-Match: ", `If-Match: *, "x"`, "If-Match: a b", `If-None-Match: "x"`} {
		d.refused(fault.InvalidArgument, "PUT", orders, body("3"), h)
	}
	d.must(200, "PUT", orders, body("3"), "If-Match: x, "+two)
	three := decode[api.PushAnswer](t, d.must(200, "PUT", orders, body("3")).Body.Bytes()).ETag
	d.must(200, "PUT", orders, body("4"), `If-Match: "x"`, `If-Match: "`+three+`"`)
	d.must(200, "DELETE", orders, "", "If-Match: *")
	d.refused(fault.UnknownCluster, "DELETE", orders, "")
	d.refused(fault.UnknownCluster, "GET", orders, "")
}

var etags = regexp.MustCompile(`"etag":"[0-9a-f]+"`)

// namedJSON is inJSON with the name of its cluster.
const namedJSON = `{"clusterName":"orders",` + fieldsInJSON

func TestPushAnswers(t *testing.T) {
	d := start(t, nil)
	golden := func(want string, w *httptest.ResponseRecorder) {
		t.Helper()
		got := etags.ReplaceAllString(still(w.Body.String()), `"etag":"E"`)
		if got != want+"\n" {
			t.Errorf("got  %swant %s", got, want)
		}
	}
	const config = "/v1/clusters/orders/config"
	golden(`{"generation":0,"index":0,"etag":"E","changes":[{"resource":"ClusterLoadAssignment/orders","change":"added","difference":"added with 1 usable endpoint"}],"warnings":[],"notes":[],`+
		`"effect":{"targets":[],"more_targets":0,"clusters":[{"cluster":"orders","change":"added","before":{"priority_in_use":-1,"dropped":0,"error":"the cluster does not exist"},"after":{"priority_in_use":0,"dropped":0,"max_requests":1024},"shift":0,`+
		`"endpoints":[{"address":"a:1","locality":{"region":"","zone":"b","sub_zone":""},"priority":0,"change":"added","share_before":0,"share_after":1}],"more_endpoints":0,"connections_opened":0,"connections_closed":0,"assumed_reachable":0,"limits":[],"unpredicted":[]}],"more_clusters":0,"unpredicted":[]}}`,
		d.must(200, "PUT", orders+"?dry_run=true", namedJSON))
	d.refused(fault.UnknownCluster, "GET", orders, "")
	golden(`{"generation":G,"index":1,"etag":"E","changes":[{"resource":"ClusterLoadAssignment/orders","change":"added","difference":"added with 1 usable endpoint"}],"warnings":[],"notes":[]}`,
		d.must(201, "PUT", orders, namedJSON))
	golden(`{"generation":G,"index":1,"etag":"E","changes":[],"warnings":[],"notes":[]}`, d.must(200, "PUT", orders, namedJSON))
	golden(`{"generation":G,"index":2,"etag":"E","changes":[{"resource":"Cluster/orders","change":"added","difference":"added as EDS"}],"warnings":[],"notes":[{"resource":"Cluster/orders","field":"name","reason":"is absent: taken as \"orders\""}]}`,
		d.must(201, "PUT", config, `{"type":"EDS"}`))
	golden(`{"generation":G,"index":3,"etag":"E","changes":[{"resource":"Cluster/orders","change":"modified","difference":"max_requests 1024 → 5"}],"warnings":[],"notes":[{"resource":"Cluster/orders","field":"name","reason":"is absent: taken as \"orders\""}]}`,
		d.must(200, "PUT", config, maxRequests(5)))
	golden(`{"generation":G,"index":3,"etag":"","changes":[{"resource":"Cluster/orders","change":"removed","difference":"removed as EDS"}],"warnings":[],"notes":[],`+
		`"effect":{"targets":[],"more_targets":0,"clusters":[{"cluster":"orders","change":"modified","before":{"priority_in_use":0,"dropped":0,"max_requests":5},"after":{"priority_in_use":0,"dropped":0,"max_requests":1024},"shift":0,`+
		`"endpoints":[{"address":"a:1","locality":{"region":"","zone":"b","sub_zone":""},"priority":0,"share_before":1,"share_after":1}],"more_endpoints":0,"connections_opened":0,"connections_closed":0,"assumed_reachable":0,"limits":[],"unpredicted":[]}],"more_clusters":0,"unpredicted":[]}}`,
		d.must(200, "DELETE", config+"?dry_run", ""))
	golden(`{"generation":G,"index":4,"etag":"","changes":[{"resource":"Cluster/orders","change":"removed","difference":"removed as EDS"}],"warnings":[],"notes":[]}`,
		d.must(200, "DELETE", config, ""))
	d.refused(fault.UnknownCluster, "GET", config, "")
}

func TestPushRefusals(t *testing.T) {
	d := start(t, nil)
	p, w := d.refused(fault.InvalidResource, "PUT", orders, assignment("", "a:0", "b:0"))
	if w.Code != 422 || len(p.Errors) != 2 || !strings.Contains(p.Errors[1].Field, "lb_endpoints[1]") || p.Cluster != "orders" {
		t.Errorf("two broken rules: %s", w.Body)
	}
	d.refused(fault.Blocked, "PUT", orders, `{"endpoints":[]}`)
	d.must(http.StatusCreated, "PUT", orders+"?allow_empty=1", `{"endpoints":[]}`)
	d.must(200, "PUT", orders+"?strict=false", `{"color":"red",`+inJSON[1:])
	d.refused(fault.InvalidResource, "PUT", orders, `{"color":"red",`+inJSON[1:])
	d.refused(fault.InvalidResource, "PUT", orders+"?strict", `{"color":"red",`+inJSON[1:])
	d.refused(fault.InvalidArgument, "PUT", orders, "{")
	d.refused(fault.InvalidArgument, "PUT", orders+"?dry_run=maybe", inJSON)
	d.refused(fault.InvalidArgument, "PUT", "/v1/clusters//endpoints", inJSON)
	d.refused(fault.InvalidArgument, "PUT", "/v1/clusters/a%00b/endpoints", inJSON)
	d.refused(fault.InvalidArgument, "DELETE", orders+"?strict", "")
	d.refused(fault.InvalidArgument, "GET", orders+"?strict", "")
	d.refused(fault.TooLarge, "PUT", orders, strings.Repeat(" ", api.MaxResourceBytes+1))
	for _, h := range []string{"Origin: https://evil.example", "Sec-Fetch-Site: cross-site"} {
		d.refused("permission_denied", "PUT", orders, inJSON, h)
	}
	d.must(200, "GET", "/v1/clusters", "", "Sec-Fetch-Site: cross-site")
	d.must(200, "PUT", orders, inJSON, "Origin: http://example.com") // the page is lbd's own
}

// A push that a misspelled field leaves without endpoints is refused for that field,
// and not with the advice to push it all the same.
func TestMisspelledFieldsAreNotPushedAllTheSame(t *testing.T) {
	d := start(t, nil)
	d.must(http.StatusCreated, "PUT", orders, inJSON)
	misspelled := strings.Replace(inJSON, "lbEndpoints", "lbEndpionts", 1)
	const reason = "unknown field (did you mean lbEndpoints?)"
	p, _ := d.refused(fault.InvalidResource, "PUT", orders, misspelled)
	if len(p.Errors) != 1 || p.Errors[0].Reason != reason || p.Errors[0].Line != 1 || p.Errors[0].Column < 2 {
		t.Errorf("strict: %+v", p)
	}
	snapshot := `{"resources":[{"@type":"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment","cluster_name":"orders",` + misspelled[1:] + "]}"
	for path, body := range map[string]string{orders: misspelled, "/v1/snapshot": snapshot} {
		p, _ = d.refused(fault.Blocked, "PUT", path+"?strict=false", body)
		if strings.Contains(p.Detail, "allow_empty") || !strings.Contains(p.Detail, reason) || len(p.Errors) != 1 || p.Errors[0].Line != 1 {
			t.Errorf("%s: %+v", path, p)
		}
	}
	p, _ = d.refused(fault.Blocked, "PUT", orders, `{"endpoints":[]}`)
	if !strings.Contains(p.Detail, "allow_empty=true") || len(p.Errors) != 0 {
		t.Errorf("an empty assignment without unknown fields: %+v", p)
	}
}
