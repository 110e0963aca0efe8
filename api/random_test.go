package api_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"pgregory.net/rapid"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// operation is one of the contract.
type operation struct {
	method, path string
	*openapi3.Operation
}

func operations(tb testing.TB) []operation {
	tb.Helper()
	doc, err := spec()
	servicetest.Must(tb, err)
	var all []operation
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			all = append(all, operation{method, path, op})
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return all
}

// text draws what a parameter may be given: something that fits its schema, or
// that fits a neighbor's, or anything.
func text(name string, s *openapi3.Schema) *rapid.Generator[string] {
	near := []string{"orders", "shed", "a/b%c", "1", "0", "true", "false", "2ms", "0s", "*", `"x-json"`, "10.0.0.7:8080", "", "-1"}
	fits := near
	switch {
	case name == "name" || name == "cluster" || name == "id":
		fits = []string{"orders", "shed", "full", "a/b%c", "unknown", "new"}
	case name == "target":
		fits = []string{"shop", "xds:///shop", "unknown"}
	case name == "path":
		fits = []string{"/", "/a.Service/Get"}
	case name == "header.NAME":
		fits = []string{"", "beta"}
	case name == "file":
		fits = []string{"docs.js", "swagger-ui.css", "nothing"}
	case name == "code":
		fits = []string{"blocked", "no_ready_endpoint", "nothing"}
	case name == "type":
		fits = []string{"pushed", "push_refused", "connection_changed"}
	case name == "wait" || name == "ttl":
		fits = []string{"0", "1ms", "3ms"}
	case name == "exclude":
		fits = []string{"10.0.0.7:8080", "[::1]:1"}
	case s.Type.Is("integer"):
		return rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(-1, 1001).Draw(t, "integer")) })
	case s.Type.Is("boolean"):
		fits = []string{"true", "false", "1", "0"}
	}
	return rapid.OneOf(rapid.SampledFrom(fits), rapid.SampledFrom(fits), rapid.SampledFrom(fits), rapid.SampledFrom(near), rapid.String())
}

// draw draws a request for op.
func (op operation) draw(t *rapid.T) *http.Request {
	path := op.path
	query := url.Values{}
	from := ""
	if strings.HasSuffix(op.path, "/pick") { // neither is required, and one is
		from = rapid.SampledFrom([]string{"cluster", "cluster", "target", "target", "cluster target", "nothing"}).Draw(t, "pick from")
	}
	headers := http.Header{}
	for _, ref := range op.Parameters {
		p := ref.Value
		value := text(p.Name, p.Schema.Value)
		switch {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(value.Draw(t, p.Name)))
		case p.Required || strings.Contains(from, p.Name) || rapid.IntRange(0, 3).Draw(t, "give "+p.Name) == 0:
			if p.In == "query" {
				query.Add(p.Name, value.Draw(t, p.Name))
			} else {
				headers.Add(p.Name, value.Draw(t, p.Name))
			}
		}
	}
	if rapid.IntRange(0, 19).Draw(t, "unknown parameter") == 0 {
		query.Add(rapid.String().Draw(t, "its name"), "x")
	}
	body := ""
	if op.RequestBody != nil {
		bodies := []string{
			assignment("", "10.0.0.7:8080"), assignment("throttle, drop_percentage: {numerator: 50}", "10.0.0.7:8080"),
			inJSON, `{"type":"EDS"}`, maxRequests(3), `{"endpoints":[]}`, "{}", "", `{"outcome":"error","load":{"eps":1}}`,
			`{"leases":[{"id":"x"},{"id":"","outcome":"y"}]}`, `{"leases":null}`, "[]", "null", "\x00", bundle("orders", "new"), bundle(), "{", "a: [",
		}
		body = rapid.OneOf(rapid.SampledFrom(bodies), rapid.SampledFrom(bodies), rapid.String()).Draw(t, "body")
		types := append([]string{"", "application/x-www-form-urlencoded", "text/plain"}, slices.Sorted(maps.Keys(op.RequestBody.Value.Content))...)
		headers.Set("Content-Type", rapid.SampledFrom(types).Draw(t, "Content-Type"))
	}
	headers.Set("Accept", rapid.SampledFrom([]string{"", "*/*", "text/plain", "application/yaml", "application/x-protobuf", ";q,"}).Draw(t, "Accept"))
	r := httptest.NewRequest(op.method, path, strings.NewReader(body))
	r.URL.RawQuery = query.Encode()
	r.Header = headers
	return r
}

// streams tells that a good answer does not end by itself.
func (op operation) streams() bool { return strings.HasSuffix(op.path, "/watch") }

// Whatever is asked, nothing is lbd's own fault, and every answer is as the
// contract says.
func TestRandomRequestsAreAnsweredAsTheContractSays(t *testing.T) {
	d := startLimited(t, nil, api.Limits{Wait: time.Millisecond}, nil)
	d.must(http.StatusCreated, "PUT", orders, assignment("", "10.0.0.7:8080"))
	d.must(http.StatusCreated, "PUT", "/v1/clusters/a%2Fb%25c/endpoints", assignment("", "10.0.0.7:8080"))
	d.must(http.StatusCreated, "PUT", "/v1/clusters/shed/endpoints", assignment("all, drop_percentage: {numerator: 100}", "10.0.0.7:8080"))
	d.must(http.StatusCreated, "PUT", "/v1/clusters/full/endpoints", assignment("", "10.0.0.7:8080"))
	d.must(http.StatusCreated, "PUT", "/v1/clusters/full/config", maxRequests(0))
	d.must(http.StatusOK, "POST", "/v1/snapshot", shop)
	all := operations(t)
	answered := map[int]int{}
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			op := rapid.SampledFrom(all).Draw(t, "operation")
			r := op.draw(t)
			w := httptest.NewRecorder()
			ctx, cancel := context.WithCancel(t.Context())
			if op.streams() {
				ctx, cancel = context.WithTimeout(t.Context(), 5*time.Millisecond)
			}
			d.handler.ServeHTTP(w, r.WithContext(ctx))
			cancel()
			answered[w.Code]++
			if w.Code == http.StatusInternalServerError {
				t.Fatalf("%s %s: %s\n%s", r.Method, r.URL, w.Body, d.log.String())
			}
			if w.Code == 499 { // the caller of a stream has gone, which waited for an index
				continue
			}
			if err := agrees(r, w); err != nil {
				t.Fatalf("%s %s: %v\n%s", r.Method, r.URL, err, w.Body)
			}
		}
	})
	if answered[200] < 100 || answered[400] < 100 {
		t.Errorf("the requests say too little: by status, %v", answered)
	}
}
