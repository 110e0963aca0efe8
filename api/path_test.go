package api

import (
	"net/http"
	"net/http/httptest"
	"net/url"
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
	} {
		for _, contentType := range []string{"", curlForm, curlForm + "; charset=utf-8"} {
			if got, err := formatOf(http.Header{"Content-Type": {contentType}}, []byte(body)); err != nil || got != want {
				t.Errorf("%q as %q: %v, %v", body, contentType, got, err)
			}
		}
	}
}
