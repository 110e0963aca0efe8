package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

// assetTypes are the media types of the files of the dashboard, by extension.
var assetTypes = map[string]string{
	".js":  "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8",
	".txt": "text/plain; charset=utf-8",
}

// dashboard serves the dashboard, and its files in assets, whose names change with their content.
type dashboard struct{ site }

// newDashboard reads the output of make web. Without it, the page says that it is missing.
func newDashboard(built fs.FS) *dashboard {
	const html = "text/html; charset=utf-8"
	d := &dashboard{site{files: map[string]func() *asset{}}}
	if built != nil {
		if _, err := fs.Stat(built, "index.html.gz"); err == nil {
			d.page = newAsset(built, "index.html.gz", html)
		} else if !errors.Is(err, fs.ErrNotExist) {
			panic(fmt.Errorf("open the dashboard: %w", err)) // a build error
		}
	}
	if d.page == nil {
		d.page = newAsset(ownPages, "pages/unbuilt.html", html)
		return d
	}
	names, err := fs.Glob(built, "assets/*")
	if err != nil {
		panic(fmt.Errorf("list the files of the dashboard: %w", err)) // the pattern is valid
	}
	for _, name := range names {
		served := strings.TrimSuffix(path.Base(name), ".gz")
		contentType, ok := assetTypes[path.Ext(served)]
		if !ok {
			panic(fmt.Errorf("the dashboard's %s has an unknown type", name)) // a build error
		}
		d.files[served] = sync.OnceValue(func() *asset {
			a := newAsset(built, name, contentType)
			a.caching = "public, max-age=31536000, immutable"
			return a
		})
	}
	return d
}

// @Summary     The dashboard
// @Description A page that uses this API and loads nothing from other hosts. If lbd was built without the dashboard, a page that says so, with links.
// @Produce     html
// @Success     200 {string} string "a page"
// @Success     304 "unchanged: If-None-Match has the ETag"
// @Router      / [get]
func (d *dashboard) getHome(w *recorder, r *http.Request) error { return d.page.write(w, r) }

// @Summary     Get a file of the dashboard
// @Description The name changes with the content, so the file can be cached forever.
// @Produce     text/javascript,text/css,plain
// @Success     200 {string} binary "the file"
// @Success     304 "unchanged: If-None-Match has the ETag"
// @Router      /assets/{file} [get]
func (d *dashboard) getAsset(w *recorder, r *http.Request) error {
	return d.writeFile(w, r, ": it may be a file of another version of the dashboard; reload /")
}
