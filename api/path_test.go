package api

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/lbd-dev/lbd/service/sources"
)

// What chi hands on is decoded once, whether the URL has a RawPath or not.
func TestPathName(t *testing.T) {
	for _, c := range []struct{ path, want, wrong string }{
		{"orders", "orders", ""},
		{"a%2Fb", "a/b", ""},
		{"a%25b", "a%b", ""},
		{"a%252Fb", "a%2Fb", ""},
		{"a%2Fb%25c", "a/b%c", ""},
		{"a+b", "a+b", ""},
		{"a%20b", "a b", ""},
		{"xds:%2F%2F%2Fx", "xds:///x", ""},
		{"gr%C3%BCn", "grün", ""},
		{"grün", "grün", ""},
		{"%FF", "", "is not valid UTF-8"},
		{"a%00", "", "U+0000"},
		{"a%0A", "", "U+000A"},
		{strings.Repeat("x", MaxNameBytes), strings.Repeat("x", MaxNameBytes), ""},
		{strings.Repeat("x", MaxNameBytes+1), "", "513 bytes; at most 512 are allowed"},
	} {
		var got string
		var err error
		mux := chi.NewRouter()
		mux.Get("/{name}", func(_ http.ResponseWriter, r *http.Request) { got, err = pathName(r, "name") })
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/"+c.path, nil))
		if c.wrong == "" && (err != nil || got != c.want) {
			t.Errorf("%s: %q, %v; want %q", c.path, got, err, c.want)
		}
		if c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %q, %v; want an error that says %q", c.path, got, err, c.wrong)
		}
	}
	// No parser lets this through, but a proxy in front of the handler may
	// build a URL of its own.
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/a%zz", RawPath: "/a%zz"}}
	mux := chi.NewRouter()
	mux.Get("/{name}", func(_ http.ResponseWriter, r *http.Request) {
		if _, err := pathName(r, "name"); err == nil || !strings.Contains(err.Error(), "not valid percent-encoding") {
			t.Errorf("a%%zz: %v", err)
		}
	})
	mux.ServeHTTP(httptest.NewRecorder(), r)
}

func TestAcceptsText(t *testing.T) {
	for accept, want := range map[string]bool{
		"":                                  false,
		"*/*":                               false,
		"application/json":                  false,
		"text/plain":                        true,
		"Text/Plain; charset=utf-8":         true,
		"text/*":                            true,
		"application/json, text/plain, */*": false,
		"text/plain, application/json":      true,
		"text/plain, */*":                   true,
		"text/plain;q=0.1, */*":             false,
		"text/plain;q=0":                    false,
		"text/html, */*;q=0.8":              false,
		"application/json;q=0.5,text/plain": true,
	} {
		if got := acceptsText(http.Header{"Accept": {accept}}); got != want {
			t.Errorf("%q: %v", accept, got)
		}
	}
}

func TestFormatOfWhatDoesNotSay(t *testing.T) {
	for body, want := range map[string]sources.Format{
		"{}": sources.JSON, " \n\t\r{": sources.JSON, "": sources.YAML, "a: {}": sources.YAML, "[]": sources.YAML,
		`["10.0.0.7:80"]`: sources.YAML, "- 10.0.0.7:80\n": sources.YAML, "endpoints:\n": sources.YAML, "# 10.0.0.7:80\nendpoints: []": sources.YAML,
		"{10.0.0.7:80": sources.JSON, "policy: 1\n10.0.0.7:80": sources.YAML,
		"10.0.0.7:80": sources.Text, "\n\n# eu\n  # us\n10.0.0.7:80 2 eu/a\n": sources.Text, "[::1]:80\n": sources.Text,
		"10.0.0.7:80\r\n10.0.0.8:80\r\n": sources.Text, "orders.internal:80": sources.Text, "10.0.0.7:800000": sources.YAML,
	} {
		for _, contentType := range []string{"", curlForm, curlForm + "; charset=utf-8"} {
			if got, err := formatOf(http.Header{"Content-Type": {contentType}}, []byte(body)); err != nil || got != want {
				t.Errorf("%q as %q: %v, %v", body, contentType, got, err)
			}
		}
	}
}

// Everything that a request says reaches the service.
func TestChangesAreAskedForAsTheRequestSays(t *testing.T) {
	request := func(method, target, body string, read func(*recorder, *http.Request) (any, error)) (got any) {
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
	options := sources.ChangeOptions{DryRun: true, Precondition: sources.Precondition{IfMatch: []string{"one", "two"}}, From: "192.0.2.1:7", Address: "192.0.2.1:7", Caller: " 192.0.2.1"}
	emptying := options
	emptying.AllowEmpty = true
	got := request("PUT", "/a%2Fb?dry_run&allow_empty&strict=false", "type: EDS", func(w *recorder, r *http.Request) (any, error) {
		return pushRequest(w, r, sources.Config)
	})
	if want := (&sources.PushRequest{
		Kind: sources.Config, Cluster: "a/b", Body: []byte("type: EDS"), Format: sources.YAML,
		Lenient: true, Options: emptying,
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("put: got %+v, want %+v", got, want)
	}
	got = request("DELETE", "/xds:%2F%2F%2Fa?dry_run=1", "", func(w *recorder, r *http.Request) (any, error) {
		var got sources.ChangeOptions
		name, err := changeRequest(w, r, &got)
		if name != "xds:///a" {
			t.Errorf("changes %q", name)
		}
		return got, err
	})
	if !reflect.DeepEqual(got, options) {
		t.Errorf("delete: got %+v, want %+v", got, options)
	}
	for query, want := range map[string]*sources.SnapshotRequest{
		"PUT":                                 {Replace: true, MaxRemoved: -1},
		"PUT dry_run&max_removed=7":           {Replace: true, MaxRemoved: 7},
		"PUT strict&max_removed=0":            {Replace: true},
		"POST":                                {},
		"POST allow_empty&strict=0&dry_run":   {Lenient: true},
		"PUT allow_empty&max_removed=1000000": {Replace: true, MaxRemoved: MaxRemoved},
	} {
		method, query, _ := strings.Cut(query, " ")
		want.Body, want.Format, want.Options = []byte("resources: []"), sources.YAML, options
		want.Options.DryRun, want.Options.AllowEmpty = strings.Contains(query, "dry_run"), strings.Contains(query, "allow_empty")
		got := request(method, "/snapshot?"+query, "resources: []", func(w *recorder, r *http.Request) (any, error) {
			return snapshotRequest(w, r, method == "PUT")
		})
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s %s: got %+v, want %+v", method, query, got, want)
		}
	}
}
