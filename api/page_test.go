package api_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service/fault"
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
		noError(t, err)
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
