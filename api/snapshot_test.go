package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// bundle is JSON with an assignment for each name, of one endpoint.
func bundle(names ...string) string {
	resources := make([]string, len(names))
	for i, name := range names {
		resources[i] = `{"@type":"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment","clusterName":"` + name + `",` + fieldsInJSON
	}
	return `{"resources":[` + strings.Join(resources, ",") + `]}`
}

// effects is the effect at the end of the answer to a dry run: TestPushAnswers has two.
var effects = regexp.MustCompile(`,"effect":{.*}}\n$`)

func TestSnapshotAnswers(t *testing.T) {
	d := start(t, nil)
	golden := func(want string, w *httptest.ResponseRecorder) {
		t.Helper()
		if got := effects.ReplaceAllString(etags.ReplaceAllString(w.Body.String(), `"etag":"E"`), "}\n"); got != want+"\n" {
			t.Errorf("got  %swant %s", got, want)
		}
	}
	const snapshot = "/v1/snapshot"
	golden("{\n  \"version_info\": \"e3b0c44298fc1c149afbf4c8996fb924\"\n}", d.must(200, "GET", snapshot, ""))
	golden(`{"generation":0,"index":0,"etag":"E","changes":[{"resource":"ClusterLoadAssignment/a","change":"added","difference":"added with 1 usable endpoint"},{"resource":"ClusterLoadAssignment/b","change":"added","difference":"added with 1 usable endpoint"}],"warnings":[],"notes":[]}`,
		d.must(200, "PUT", snapshot+"?dry_run=true", bundle("a", "b")))
	golden(`{"clusters":[]}`, d.must(200, "GET", "/v1/clusters", ""))
	golden(`{"generation":0,"index":1,"etag":"E","changes":[{"resource":"ClusterLoadAssignment/a","change":"added","difference":"added with 1 usable endpoint"},{"resource":"ClusterLoadAssignment/b","change":"added","difference":"added with 1 usable endpoint"}],"warnings":[],"notes":[]}`,
		d.must(200, "PUT", snapshot, bundle("a", "b")))
	golden(`{"generation":0,"index":1,"etag":"E","changes":[],"warnings":[],"notes":[]}`, d.must(200, "PUT", snapshot, bundle("b", "a")))
	golden(`{"generation":0,"index":2,"etag":"E","changes":[{"resource":"ClusterLoadAssignment/c","change":"added","difference":"added with 1 usable endpoint"}],"warnings":[],"notes":[]}`,
		d.must(200, "POST", snapshot, bundle("c", "a")))
	golden(`{"generation":0,"index":3,"etag":"E","changes":[{"resource":"ClusterLoadAssignment/a","change":"removed","difference":"removed with 1 usable endpoint"},{"resource":"ClusterLoadAssignment/b","change":"removed","difference":"removed with 1 usable endpoint"}],"warnings":[],"notes":[]}`,
		d.must(200, "PUT", snapshot+"?max_removed=2", bundle("c")))
	d.must(200, "GET", "/pick?cluster=c", "")
	d.refused(fault.UnknownCluster, "GET", "/pick?cluster=a", "")
	etag := decode[api.PushAnswer](t, d.must(200, "PUT", snapshot, bundle("c")).Body.Bytes()).ETag
	golden(`{
  "version_info": "`+etag+`",
  "resources": [
    {
      "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
      "cluster_name": "c",
      "endpoints": [
        {
          "locality": {
            "zone": "b"
          },
          "lb_endpoints": [
            {
              "endpoint": {
                "address": {
                  "socket_address": {
                    "address": "a",
                    "port_value": 1
                  }
                }
              }
            }
          ],
          "load_balancing_weight": 1
        }
      ]
    }
  ]
}`, d.must(200, "GET", snapshot, ""))
}

// What one daemon gives out, in any representation, another takes.
func TestSnapshotMoves(t *testing.T) {
	from := start(t, nil)
	etag := decode[api.PushAnswer](t, from.must(200, "POST", "/v1/snapshot", bundle("a", "b")).Body.Bytes()).ETag
	for contentType, suffix := range map[string]string{"application/json": "-json", "application/yaml": "-yaml", "application/x-protobuf": "-pb"} {
		w := from.must(200, "GET", "/v1/snapshot", "", "Accept: "+contentType)
		tag := w.Header().Get("ETag")
		if w.Header().Get("Content-Type") != contentType || tag != `"`+etag+suffix+`"` || w.Header().Get("Vary") != "Accept" {
			t.Errorf("%s: %v, etag %s", contentType, w.Header(), etag)
		}
		for known, status := range map[string]int{tag: 304, etag: 304, `"x"`: 200} {
			if again := from.do("GET", "/v1/snapshot", "", "Accept: "+contentType, "If-None-Match: "+known); again.Code != status {
				t.Errorf("%s: If-None-Match: %s: %d, want %d", contentType, known, again.Code, status)
			}
		}
		to := start(t, nil)
		answer := decode[api.PushAnswer](t, to.must(200, "PUT", "/v1/snapshot", w.Body.String(), "Content-Type: "+contentType).Body.Bytes())
		if len(answer.Changes) != 2 || answer.ETag != etag {
			t.Errorf("%s: pushed elsewhere: %+v, etag %s", contentType, answer, etag)
		}
	}
}

func TestSnapshotRefusals(t *testing.T) {
	d := start(t, nil)
	const snapshot = "/v1/snapshot"
	etag := decode[api.PushAnswer](t, d.must(200, "PUT", snapshot, bundle("a", "b")).Body.Bytes()).ETag
	p, w := d.refused(fault.InvalidResource, "PUT", snapshot, strings.ReplaceAll(bundle("a", "c"), `"portValue":1`, `"portValue":0`))
	if w.Code != 422 || len(p.Errors) != 2 || p.Errors[1].Resource != "ClusterLoadAssignment/c" || !strings.HasPrefix(p.Errors[1].Field, "resources[1].endpoints[0]") {
		t.Errorf("two broken resources: %s", w.Body)
	}
	if p, w = d.refused(fault.Blocked, "PUT", snapshot+"?max_removed=0", bundle("a")); w.Code != 409 || !strings.Contains(p.Detail, "ClusterLoadAssignment/b") {
		t.Errorf("max_removed: %s", w.Body)
	}
	empty := strings.Replace(bundle("a", "b"), `"lbEndpoints":[`, `"lbEndpoints":[],"x":[`, 1)
	d.refused(fault.Blocked, "POST", snapshot+"?strict=0", empty)
	d.must(200, "POST", snapshot+"?allow_empty&dry_run&strict=false", empty)
	d.refused(fault.InvalidResource, "POST", snapshot+"?allow_empty&dry_run&strict", empty)
	d.refused(fault.InvalidResource, "PUT", snapshot, `{"resources":[{"@type":"type.googleapis.com/envoy.config.listener.v3.Listener","name":"l"}]}`)
	for _, body := range []string{"", "{", "[]", "null", "a: ["} {
		d.refused(fault.InvalidArgument, "PUT", snapshot, body)
	}
	for _, query := range []string{"?max_removed=-1", "?max_removed=1000001", "?max_removed", "?max_removed=many", "?dry_run=2", "?x", "?strict&strict"} {
		d.refused(fault.InvalidArgument, "PUT", snapshot+query, bundle("a"))
	}
	d.refused(fault.InvalidArgument, "POST", snapshot+"?max_removed=1", bundle("a"))
	d.refused(fault.InvalidArgument, "GET", snapshot+"?strict", "")
	d.refused(fault.InvalidArgument, "GET", snapshot, "", `If-None-Match: "x`)
	d.refused(fault.InvalidArgument, "PUT", snapshot, bundle("a"), `If-None-Match: "x"`)
	d.refused(fault.PreconditionFailed, "PUT", snapshot, bundle("a"), "If-Match: x")
	d.refused(fault.PreconditionFailed, "POST", snapshot, bundle("a"), "If-None-Match: *")
	d.refused(fault.UnsupportedMedia, "PUT", snapshot, bundle("a"), "Content-Type: text/html")
	d.refused(fault.UnsupportedMedia, "POST", snapshot, bundle("a"), "Content-Encoding: gzip")
	d.refused(fault.TooLarge, "PUT", snapshot, strings.Repeat(" ", api.MaxSnapshotBytes+1))
	d.refused("permission_denied", "PUT", snapshot, bundle("a"), "Sec-Fetch-Site: cross-site")
	d.refused("method_not_allowed", "DELETE", snapshot, "")
	if got := d.must(200, "GET", snapshot, "").Header().Get("ETag"); got != `"`+etag+`-json"` {
		t.Errorf("a refused snapshot changed %s to %s", etag, got)
	}
	d.must(200, "PUT", snapshot, bundle("a", "b"), `If-Match: "`+etag+`-pb"`)
}

// With --require-if-match, changes need a precondition.
func TestPreconditionRequired(t *testing.T) {
	d := start(t, func(o *service.Options) { o.Sources.RequireIfMatch = true })
	for _, target := range []string{"PUT " + orders, "DELETE " + orders, "PUT /v1/snapshot", "POST /v1/snapshot"} {
		method, path, _ := strings.Cut(target, " ")
		body := inJSON
		switch {
		case method == "DELETE":
			body = ""
		case path == "/v1/snapshot":
			body = bundle("a")
		}
		if p, w := d.refused(fault.PreconditionRequired, method, path, body); w.Code != 428 || p.GRPCCode != "FAILED_PRECONDITION" {
			t.Errorf("%s: %d %s", target, w.Code, p.GRPCCode)
		}
	}
	d.must(http.StatusCreated, "PUT", orders, inJSON, "If-None-Match: *")
	tag := d.must(200, "GET", "/v1/snapshot", "").Header().Get("ETag")
	d.must(200, "POST", "/v1/snapshot", bundle("a"), "If-Match: "+tag)
}

// Readers share the text of a snapshot until it is written.
func TestSlowReadersShareTheSnapshot(t *testing.T) {
	d := start(t, nil)
	names := make([]string, 2000)
	for i := range names {
		names[i] = fmt.Sprintf("cluster-%d", i)
	}
	d.must(200, "PUT", "/v1/snapshot", bundle(names...))
	w := &slowReader{ResponseRecorder: httptest.NewRecorder()}
	w.first = func(p []byte) {
		runtime.GC()
		again, err := d.service.Sources.Snapshot(t.Context(), "", nil, sources.JSON)
		servicetest.Must(t, err)
		if &p[0] != &again.Body[0][0] {
			t.Error("a second reader has another copy")
		}
	}
	d.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/snapshot", http.NoBody))
	if w.first != nil {
		t.Error("nothing was written")
	}
}

// slowReader calls first before it accepts anything.
type slowReader struct {
	*httptest.ResponseRecorder

	first func([]byte)
}

func (r *slowReader) Write(p []byte) (int, error) {
	if f := r.first; f != nil {
		r.first = nil
		f(p)
	}
	return r.ResponseRecorder.Write(p)
}
