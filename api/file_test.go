package api_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/xds/files"
)

func TestFiles(t *testing.T) {
	d := start(t, nil)
	if got := d.must(200, "GET", "/v1/files", "").Body.String(); got != `{"files":[]}`+"\n" {
		t.Errorf("without a directory: %s", got)
	}
	dir := t.TempDir()
	for name, body := range map[string]string{
		"good.json": bundle("b", "a"),
		"bad.json":  `{"clusterName":"c","endpoints":[{"priority":1}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w, err := files.Open(dir, files.Options{OnChange: d.service.FilesChanged})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}()
	const want = `{"files":[{"file":"bad.json","resources":[],"error":E,"errors":[{"resource":"ClusterLoadAssignment/c",` +
		`"field":"endpoints[0].priority","reason":"R","line":1,"column":34}],"since":"T"},` +
		`{"file":"good.json","resources":["ClusterLoadAssignment/a","ClusterLoadAssignment/b"]}]}`
	got := still(d.must(200, "GET", "/v1/files", "").Body.String())
	got = rules.ReplaceAllString(reasons.ReplaceAllString(got, `"error":E`), `"reason":"R"`)
	if got != want+"\n" {
		t.Errorf("got  %swant %s", got, want)
	}
	d.must(200, "GET", "/pick?cluster=a", "")
	if got := d.must(200, "GET", "/v1/snapshot", "").Body.String(); strings.Contains(got, "resources") {
		t.Errorf("files are in the snapshot of what was pushed: %s", got)
	}
	d.refused(service.InvalidArgument, "GET", "/v1/files?x", "")
}
