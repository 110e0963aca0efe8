package api

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/lbd-dev/lbd/service/sources"
)

// Everything that a request says reaches the service.
func TestChangesAreAskedForAsTheRequestSays(t *testing.T) {
	request := func(method, target, body string, read func(http.ResponseWriter, *http.Request) (any, error)) (got any) {
		t.Helper()
		mux := chi.NewRouter()
		mux.HandleFunc("/{name}", func(w http.ResponseWriter, r *http.Request) {
			var err error
			if got, err = read(&recorder{ResponseWriter: w}, r); err != nil {
				t.Error(err)
			}
		})
		r := httptest.NewRequest(method, target, strings.NewReader(body))
		r.RemoteAddr = "192.0.2.1:7"
		r.Header.Set("Content-Type", "text/yaml")
		r.Header.Set("If-Match", `"one-pb", two`)
		mux.ServeHTTP(httptest.NewRecorder(), r)
		return got
	}
	match := sources.Precondition{IfMatch: []string{"one", "two"}}
	got := request("PUT", "/a%2Fb?dry_run&allow_empty&strict=false", "type: EDS", func(w http.ResponseWriter, r *http.Request) (any, error) {
		return pushRequest(w, r, sources.Config)
	})
	if want := (&sources.PushRequest{
		Kind: sources.Config, Cluster: "a/b", Body: []byte("type: EDS"), Format: sources.YAML,
		Lenient: true, DryRun: true, AllowEmpty: true, Precondition: match, From: "192.0.2.1:7",
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("put: got %+v, want %+v", got, want)
	}
	got = request("DELETE", "/a%2Fb?dry_run=1", "", func(w http.ResponseWriter, r *http.Request) (any, error) {
		return deleteRequest(w, r, sources.Config)
	})
	if want := (&sources.DeleteRequest{
		Kind: sources.Config, Cluster: "a/b", DryRun: true, Precondition: match, From: "192.0.2.1:7",
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("delete: got %+v, want %+v", got, want)
	}
	got = request("PUT", "/xds:%2F%2F%2Fa?dry_run=1", "", func(w http.ResponseWriter, r *http.Request) (any, error) {
		return hostRequest(w, r)
	})
	if want := (&sources.HostRequest{Target: "xds:///a", DryRun: true, Precondition: match, From: "192.0.2.1:7"}); !reflect.DeepEqual(got, want) {
		t.Errorf("host: got %+v, want %+v", got, want)
	}
	for query, want := range map[string]*sources.SnapshotRequest{
		"PUT":                                 {Replace: true, MaxRemoved: -1},
		"PUT dry_run&max_removed=7":           {Replace: true, MaxRemoved: 7, DryRun: true},
		"PUT strict&max_removed=0":            {Replace: true},
		"POST":                                {},
		"POST allow_empty&strict=0&dry_run":   {AllowEmpty: true, Lenient: true, DryRun: true},
		"PUT allow_empty&max_removed=1000000": {Replace: true, AllowEmpty: true, MaxRemoved: MaxRemoved},
	} {
		method, query, _ := strings.Cut(query, " ")
		want.Body, want.Format, want.Precondition, want.From = []byte("resources: []"), sources.YAML, match, "192.0.2.1:7"
		got := request(method, "/snapshot?"+query, "resources: []", func(w http.ResponseWriter, r *http.Request) (any, error) {
			return snapshotRequest(w, r, method == "PUT")
		})
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s %s: got %+v, want %+v", method, query, got, want)
		}
	}
}
