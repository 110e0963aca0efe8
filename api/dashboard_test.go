package api_test

import (
	"compress/gzip"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/lbd-dev/lbd"
	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/service"
)

// built is a dashboard as make web leaves it.
var built = fstest.MapFS{
	".gitkeep":           {},
	"index.html":         {Data: []byte(`<script type="module" src="assets/main-AB.js"></script>`)},
	"assets/main-AB.js":  {Data: []byte(strings.Repeat("main();", 1000))},
	"assets/main-CD.css": {Data: []byte("body{}")},
}

func withDashboard(t *testing.T, files fstest.MapFS) *daemon {
	t.Helper()
	d := start(t, nil)
	unlike := service.New(service.Options{Logger: slog.New(slog.DiscardHandler)}) // its registry takes another handler
	t.Cleanup(unlike.Close)
	d.handler = api.New(api.Options{
		Service: unlike, Logger: slog.New(slog.DiscardHandler), OpenAPI: lbd.OpenAPI, Dashboard: files,
	})
	return d
}

// The page is asked for again each time; what it loads has a name of its own for
// each content, and is kept.
func TestDashboardIsServedAsBrowsersWantIt(t *testing.T) {
	d := withDashboard(t, built)
	for path, want := range map[string]struct{ contentType, caching, file string }{
		"/":                   {"text/html; charset=utf-8", "no-cache", "index.html"},
		"/assets/main-AB.js":  {"text/javascript; charset=utf-8", "public, max-age=31536000, immutable", "assets/main-AB.js"},
		"/assets/main-CD.css": {"text/css; charset=utf-8", "public, max-age=31536000, immutable", "assets/main-CD.css"},
	} {
		plain := d.must(200, "GET", path, "")
		h := plain.Header()
		if h.Get("Content-Type") != want.contentType || h.Get("Cache-Control") != want.caching || h.Get("Content-Security-Policy") != policyOfPages {
			t.Errorf("%s: %v", path, h)
		}
		content := string(built[want.file].Data)
		if plain.Body.String() != content {
			t.Errorf("%s is not %s", path, want.file)
		}
		packed := d.must(200, "GET", path, "", "Accept-Encoding: gzip")
		z, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if body, err := io.ReadAll(z); err != nil || string(body) != content {
			t.Errorf("%s: unpacked it is another, %v", path, err)
		}
		if w := d.do("GET", path, "", "If-None-Match: "+h.Get("ETag")); w.Code != 304 {
			t.Errorf("%s: known: %d", path, w.Code)
		}
	}
	for _, path := range []string{"/assets/main-XX.js", "/assets/", "/assets/..%2Findex.html", "/index.html"} {
		d.refused("not_found", "GET", path, "")
	}
}

func TestDashboardThatWasNotBuiltSaysSo(t *testing.T) {
	for name, d := range map[string]*daemon{
		"none":      start(t, nil),
		"not built": withDashboard(t, fstest.MapFS{".gitkeep": {}}),
	} {
		if page := d.must(200, "GET", "/", "").Body.String(); !strings.Contains(page, "make web") || !strings.Contains(page, "v1/clusters") {
			t.Errorf("%s: %s", name, page)
		}
		d.refused("not_found", "GET", "/assets/main-AB.js", "")
	}
}
