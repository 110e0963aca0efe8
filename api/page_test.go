package api_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
)

var (
	loads      = regexp.MustCompile(`<(?:script|link|img|iframe|a)\b[^>]*\b(?:src|href)="([^"]*)"`)
	inline     = regexp.MustCompile(`<style|<script>|\bstyle=|\bon\w+=`)
	styleLoads = regexp.MustCompile(`url\(['"]?([^)'"]{0,20})|@import`)
	otherHosts = regexp.MustCompile(`(?:https?:|["'(])//([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)`)
)

const policyOfPages = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// What the pages load and lead to is lbd's own; a path before it, a proxy's,
// does not matter. Nothing in them needs a laxer policy than they have.
func TestPagesLeadToNoOtherHost(t *testing.T) {
	d := start(t, nil)
	for page, least := range map[string]int{"/": 10, "/docs": 5} {
		w := d.must(200, "GET", page, "", "Accept: text/html")
		text := w.Body.String()
		if w.Header().Get("Content-Type") != "text/html; charset=utf-8" || w.Header().Get("Content-Security-Policy") != policyOfPages {
			t.Errorf("%s: %v", page, w.Header())
		}
		if found := inline.FindString(text); found != "" {
			t.Errorf("%s: the policy does not let %q work", page, found)
		}
		targets := loads.FindAllStringSubmatch(text, -1)
		if len(targets) < least {
			t.Errorf("%s: leads to %d places only", page, len(targets))
		}
		for _, target := range targets {
			u, err := url.Parse(target[1])
			if err != nil || u.IsAbs() || u.Host != "" || strings.HasPrefix(u.Path, "/") {
				t.Errorf("%s: %q is not relative", page, target[1])
				continue
			}
			d.must(200, "GET", "/"+target[1], "")
		}
	}
}

// What the viewer loads tells no other host, as far as that can be read: its
// style sheet loads nothing, and its scripts name but these, which are
// namespaces, examples, and pages for people to go to. The validator would be
// asked: it is off.
func TestViewerNamesNoHostThatItAsks(t *testing.T) {
	d := start(t, nil)
	style := d.must(200, "GET", "/docs/swagger-ui.css", "").Body.String()
	found := styleLoads.FindAllStringSubmatch(style, -1)
	if len(found) == 0 {
		t.Error("the style sheet loads no images: the test does not see them")
	}
	for _, f := range found {
		if !strings.HasPrefix(f[1], "data:image/") {
			t.Errorf("the style sheet loads %q", f[0])
		}
	}
	var hosts []string
	for _, f := range otherHosts.FindAllStringSubmatch(d.must(200, "GET", "/docs/swagger-ui-bundle.js", "").Body.String(), -1) {
		hosts = append(hosts, f[1])
	}
	slices.Sort(hosts)
	want := []string{
		"datatracker.ietf.org", "example.com", "fb.me", "github.com", "instagram.com", "json-schema.org",
		"reactjs.org", "redux.js.org", "soundcloud.com", "spdx.org", "spec.openapis.org", "swagger.io", "twitter.com",
		"validator.swagger.io", "vladimirgorej.com", "www.facebook.com", "www.rfc-editor.org", "www.tiktok.com", "www.w3.org",
	}
	if got := slices.Compact(hosts); !slices.Equal(got, want) {
		t.Errorf("the script names the hosts\n%v, and known are\n%v", got, want)
	}
	own := d.must(200, "GET", "/docs/docs.js", "").Body.String()
	if otherHosts.MatchString(own) || !strings.Contains(own, "validatorUrl: null,") || !strings.Contains(own, `url: "openapi.yaml",`) {
		t.Errorf("docs.js: %s", own)
	}
}

func TestPageFilesAreServedAsBrowsersWantThem(t *testing.T) {
	d := start(t, nil)
	for file, contentType := range map[string]string{
		"docs.js":              "text/javascript; charset=utf-8",
		"swagger-ui-bundle.js": "text/javascript; charset=utf-8",
		"swagger-ui.css":       "text/css; charset=utf-8",
		"favicon-32x32.png":    "image/png",
	} {
		path := "/docs/" + file
		plain := d.must(200, "GET", path, "", "Accept-Encoding: gzip;q=0, br")
		h := plain.Header()
		if h.Get("Content-Type") != contentType || h.Get("Content-Encoding") != "" || h.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: %v", file, h)
		}
		for _, known := range []string{h.Get("ETag"), "W/" + h.Get("ETag")} {
			if w := d.do("GET", path, "", "If-None-Match: "+known); w.Code != 304 || w.Body.Len() > 0 || w.Header().Get("ETag") != h.Get("ETag") {
				t.Errorf("%s: If-None-Match: %s: %d", file, known, w.Code)
			}
		}
		packed := d.must(200, "GET", path, "", "Accept-Encoding: gzip, deflate, br")
		if !strings.HasPrefix(file, "swagger-ui") {
			if packed.Header().Get("Content-Encoding") != "" {
				t.Errorf("%s: packed", file)
			}
			continue
		}
		if packed.Header().Get("Content-Encoding") != "gzip" || packed.Header().Get("Vary") != "Accept-Encoding" || packed.Header().Get("ETag") == h.Get("ETag") {
			t.Errorf("%s: packed: %v", file, packed.Header())
		}
		z, err := gzip.NewReader(packed.Body)
		servicetest.Must(t, err)
		if body, err := io.ReadAll(z); err != nil || !bytes.Equal(body, plain.Body.Bytes()) {
			t.Errorf("%s: unpacked it is another, %v", file, err)
		}
	}
	d.refused("not_found", "GET", "/docs/swagger-ui.js", "")
	d.refused("not_found", "GET", "/docs/..%2Fhome.html", "")
	d.refused("not_found", "GET", "/docs/", "")
	d.refused(fault.InvalidArgument, "GET", "/docs", "", `If-None-Match: "x`)
	d.refused("method_not_allowed", "POST", "/", "")
}

// Every code that the contract has leads to a description, for programs and for
// people.
func TestProblemsAreDescribed(t *testing.T) {
	d := start(t, nil)
	doc, err := spec()
	servicetest.Must(t, err)
	codes := doc.Components.Schemas["Problem"].Value.Properties["code"].Value.Enum
	if len(codes) < 20 {
		t.Fatalf("the contract has the codes %v", codes)
	}
	for _, c := range codes {
		code, _ := c.(string)
		w := d.must(200, "GET", "/problems/"+code, "")
		got := decode[api.ProblemType](t, w.Body.Bytes())
		if got.Type != "/problems/"+code || string(got.Code) != code || got.Title == "" || got.GRPCCode == "" || got.Status < 400 ||
			len(got.Means) < 20 || len(got.Fix) < 20 || !strings.HasSuffix(got.Means, ".") || !strings.HasSuffix(got.Fix, ".") {
			t.Errorf("%s: %+v", code, got)
		}
		page := d.must(200, "GET", got.Type, "", "Accept: text/html,application/xhtml+xml,*/*;q=0.8")
		if !strings.HasPrefix(page.Header().Get("Content-Type"), "text/html") || !strings.Contains(page.Body.String(), got.Title) {
			t.Errorf("%s: %s", code, page.Body)
		}
	}
	p, w := d.refused("not_found", "GET", "/problems/nothing", "")
	if w.Code != http.StatusNotFound {
		t.Errorf("an unknown code: %+v", p)
	}
	// The type of a refusal is one of these.
	d.must(200, "GET", p.Type, "")
	if got := d.must(200, "GET", p.Type, "", "Accept: application/json, text/html").Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("what is liked as much as JSON is answered as %s", got)
	}
	d.refused("invalid_argument", "GET", "/problems/blocked?x", "")
}

// pack compresses a file as make web does.
func pack(t *testing.T, content string) *fstest.MapFile {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(content))
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return &fstest.MapFile{Data: packed.Bytes()}
}

func withDashboard(t *testing.T, files fstest.MapFS) *daemon {
	t.Helper()
	return startServing(t, nil, sources.Connections{}, func(o *api.Options) { o.Dashboard = files })
}

// The page is asked for again each time; what it loads has a name of its own for
// each content, and is kept.
func TestDashboardIsServedAsBrowsersWantIt(t *testing.T) {
	files := map[string]struct{ contentType, caching, content string }{
		"/":                       {"text/html; charset=utf-8", "no-cache", `<script type="module" src="assets/main-AB.js"></script>`},
		"/assets/main-AB.js":      {"text/javascript; charset=utf-8", "public, max-age=31536000, immutable", strings.Repeat("main();", 1000)},
		"/assets/main-CD.css":     {"text/css; charset=utf-8", "public, max-age=31536000, immutable", "body{}"},
		"/assets/licenses-EF.txt": {"text/plain; charset=utf-8", "public, max-age=31536000, immutable", "MIT"},
	}
	built := fstest.MapFS{".gitkeep": {}}
	for path, file := range files {
		built[cmp.Or(path[1:], "index.html")+".gz"] = pack(t, file.content)
	}
	d := withDashboard(t, built)
	for path, want := range files {
		plain := d.must(200, "GET", path, "")
		h := plain.Header()
		if h.Get("Content-Type") != want.contentType || h.Get("Cache-Control") != want.caching || h.Get("Content-Security-Policy") != policyOfPages {
			t.Errorf("%s: %v", path, h)
		}
		if plain.Body.String() != want.content {
			t.Errorf("%s: %s", path, plain.Body)
		}
		packed := d.must(200, "GET", path, "", "Accept-Encoding: gzip")
		z, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if body, err := io.ReadAll(z); err != nil || string(body) != want.content {
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
