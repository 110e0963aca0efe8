// Package web holds the dashboard, which make web builds. It uses the HTTP API
// only.
package web

import (
	"embed"
	"fmt"
	"io/fs"
)

//go:embed all:dist
var dist embed.FS

// Files are those of the dashboard, compressed: index.html.gz, and in assets what it
// loads, under names that change with their content. There is no index.html.gz where
// make web has not run before the build.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(fmt.Errorf("find the embedded dashboard: %w", err)) // the name is a valid one
	}
	return files
}
