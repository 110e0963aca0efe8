package api

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"

	"github.com/go-chi/chi/v5"
)

// assetTypes are the media types of what the dashboard loads, by extension.
var assetTypes = map[string]string{
	".js":  "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8",
}

// dashboard is the page for people, and what it loads.
type dashboard struct {
	page *asset
	// files are those in assets, by name. Their names change with their content.
	files map[string]*asset
}

// newDashboard reads what make web built; where it did not, the page says so.
func newDashboard(built fs.FS) *dashboard {
	const html = "text/html; charset=utf-8"
	d := &dashboard{files: map[string]*asset{}}
	if built != nil {
		if _, err := fs.Stat(built, "index.html"); err == nil {
			d.page = packedAsset(built, "index.html", html)
		} else if !errors.Is(err, fs.ErrNotExist) {
			panic(fmt.Errorf("look for the dashboard: %w", err)) // it was built wrongly
		}
	}
	if d.page == nil {
		d.page = newAsset(ownPages, "pages/unbuilt.html", html)
		return d
	}
	names, err := fs.Glob(built, "assets/*")
	if err != nil {
		panic(fmt.Errorf("list the dashboard's files: %w", err)) // the pattern is a good one
	}
	for _, name := range names {
		contentType, ok := assetTypes[path.Ext(name)]
		if !ok {
			panic(fmt.Errorf("the dashboard's %s is of no known type", name)) // it was built wrongly
		}
		a := packedAsset(built, name, contentType)
		a.caching = "public, max-age=31536000, immutable"
		d.files[path.Base(name)] = a
	}
	return d
}

// packedAsset is newAsset for a file that is not packed yet and is worth it.
func packedAsset(from fs.FS, name, contentType string) *asset {
	a := newAsset(from, name, contentType)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(a.body)
	if err = errors.Join(err, z.Close()); err != nil {
		panic(fmt.Errorf("pack %s: %w", name, err)) // a buffer takes all
	}
	a.packed = packed.Bytes()
	return a
}

// getHome answers with the dashboard.
//
//	@Summary		The dashboard
//	@Description	A page for people, which asks this API and no other host. Where lbd was built without it, a page that says so and leads on.
//	@ID				getHome
//	@Tags			daemon
//	@Produce		html
//	@Param			If-None-Match	header		string	false	"ETags that are known already"
//	@Success		200				{string}	string	"a page"
//	@Success		304				"it is what If-None-Match knows"
//	@Failure		400,414,500		{object}	Problem
//	@Router			/ [get]
func (d *dashboard) getHome(w http.ResponseWriter, r *http.Request) error { return d.page.write(w, r) }

// getAsset answers with a part of the dashboard.
//
//	@Summary		A part of the dashboard
//	@Description	Its name changes with its content: it may be kept for good.
//	@ID				getAsset
//	@Tags			daemon
//	@Produce		text/javascript,text/css
//	@Param			file			path		string	true	"its name"
//	@Param			If-None-Match	header		string	false	"ETags that are known already"
//	@Success		200				{string}	binary	"the file"
//	@Success		304				"it is what If-None-Match knows"
//	@Failure		400,404,414,500	{object}	Problem
//	@Router			/assets/{file} [get]
func (d *dashboard) getAsset(w http.ResponseWriter, r *http.Request) error {
	file, ok := d.files[chi.URLParam(r, "file")]
	if !ok {
		return refusal(notFound, "nothing is at %s: it may be of another version of the dashboard, which is at /", clip(r.URL.Path))
	}
	return file.write(w, r)
}
