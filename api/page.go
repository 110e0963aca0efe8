package api

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/swaggest/swgui/v5/static"

	"github.com/lbd-dev/lbd/service/fault"
)

//go:embed pages
var ownPages embed.FS

// pagePolicy allows a page to load only files that lbd serves. The data URLs are images in
// the style sheet of the viewer.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// site is a page with the files that it loads, by name. They are unpacked when a browser asks for them, not at the
// start of a daemon.
type site struct {
	page  *asset
	files map[string]func() *asset
}

func (s *site) writeFile(w *recorder, r *http.Request, hint string) error {
	file, ok := s.files[chi.URLParam(r, "file")]
	if !ok {
		return fault.Errorf(notFound, "%s not found%s", fault.Clip(r.URL.Path), hint)
	}
	return file().write(w, r)
}

// pages serves Swagger UI, the viewer of the contract.
type pages struct{ site }

func newPages() *pages {
	file := func(from fs.FS, name, contentType string) func() *asset {
		return sync.OnceValue(func() *asset { return newAsset(from, name, contentType) })
	}
	const html, js = "text/html; charset=utf-8", "text/javascript; charset=utf-8"
	return &pages{site{
		page: newAsset(ownPages, "pages/docs.html", html),
		files: map[string]func() *asset{
			"docs.js":              file(ownPages, "pages/docs.js", js),
			"swagger-ui-bundle.js": file(static.FS, "swagger-ui-bundle.js.gz", js),
			"swagger-ui.css":       file(static.FS, "swagger-ui.css.gz", "text/css; charset=utf-8"),
			"favicon-32x32.png":    file(static.FS, "favicon-32x32.png", "image/png"),
		},
	}}
}

// @Summary     Read and try this contract
// @Description The page loads nothing from other hosts.
// @Produce     html
// @Success     200 {string} string "a page"
// @Success     304 "unchanged: If-None-Match has the ETag"
// @Router      /docs [get]
func (p *pages) getDocs(w *recorder, r *http.Request) error { return p.page.write(w, r) }

// @Summary Get a file of the viewer of this contract
// @Produce text/javascript,text/css,png
// @Success 200 {string} binary "the file"
// @Success 304 "unchanged: If-None-Match has the ETag"
// @Router  /docs/{file} [get]
func (p *pages) getDocsFile(w *recorder, r *http.Request) error {
	return p.writeFile(w, r, "; the viewer is at /docs")
}

// asset is a file for browsers.
type asset struct {
	contentType string
	hash        string
	body        []byte
	packed      []byte // gzip; may be nil
	caching     string // Cache-Control
}

// newAsset reads an embedded file. A file that ends in .gz is also served uncompressed.
func newAsset(from fs.FS, name, contentType string) *asset {
	body, err := fs.ReadFile(from, name)
	a := &asset{contentType: contentType, body: body, caching: "no-cache"} // cached, but revalidated
	if err == nil && strings.HasSuffix(name, ".gz") {
		a.packed = body
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			a.body, err = io.ReadAll(z)
		}
	}
	if err != nil {
		panic(fmt.Errorf("read the embedded %s: %w", name, err)) // a build error
	}
	sum := sha256.Sum256(a.body)
	a.hash = fmt.Sprintf("%x", sum[:16])
	return a
}

// write writes the file, or status 304.
func (a *asset) write(w *recorder, r *http.Request) error {
	body, suffix := a.body, ""
	if a.packed != nil && acceptsGzip(r.Header) {
		body, suffix = a.packed, "-gzip"
	}
	same, err := unchanged(r.Header, a.hash, suffix)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Cache-Control", a.caching)
	h.Set("ETag", strongTag(a.hash, suffix))
	if a.packed != nil {
		h.Set("Vary", "Accept-Encoding")
	}
	if same {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if suffix != "" {
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Type", a.contentType)
	writeBody(w, http.StatusOK, body)
	return nil
}

// contract is openapi.yaml.
type contract []byte

// @Summary This contract
// @Produce application/yaml
// @Success 200 {object} object "OpenAPI 3.0"
// @Router  /openapi.yaml [get]
func (c contract) getContract(w *recorder, r *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(c))
	return nil
}
