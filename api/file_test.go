package api_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/files"
)

func TestFiles(t *testing.T) {
	start(t, nil).expect("/v1/files", `{"files":[],"held":[]}`)
	dir := t.TempDir()
	for name, body := range map[string]string{
		"good.json": bundle("b", "a"),
		"bad.json":  `{"clusterName":"c","endpoints":[{"priority":1}]}`,
	} {
		servicetest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(body), 0o600))
	}
	d := startServing(t, nil, watched(t, dir), func(*api.Options) {})
	const want = `{"files":[{"file":"bad.json","state":"bad","resources":[],"error":E,"errors":[{"resource":"ClusterLoadAssignment/c",` +
		`"field":"endpoints[0].priority","reason":"R","line":1,"column":34}],"since":"T"},` +
		`{"file":"good.json","state":"good","resources":["ClusterLoadAssignment/a","ClusterLoadAssignment/b"],"sha256":"S"}],"held":[]}`
	got := still(d.must(200, "GET", "/v1/files", "").Body.String())
	got = sums.ReplaceAllString(got, `"sha256":"S"`)
	got = rules.ReplaceAllString(reasons.ReplaceAllString(got, `"error":E`), `"reason":"R"`)
	if got != want+"\n" {
		t.Errorf("got  %swant %s", got, want)
	}
	d.must(200, "GET", "/pick?cluster=a", "")
	if got := d.must(200, "GET", "/v1/snapshot", "").Body.String(); strings.Contains(got, "resources") {
		t.Errorf("files are in the snapshot of what was pushed: %s", got)
	}
	d.refused(fault.InvalidArgument, "GET", "/v1/files?x", "")
}

var sums = regexp.MustCompile(`"sha256":"[0-9a-f]{64}"`)

// watched connects a service to the resource files of a directory.
func watched(t *testing.T, dir string) sources.Connections {
	return sources.Connections{Files: files.OpenArchive("", dir, nil), WatchFiles: func(scanned func(*files.Scan)) error {
		w, err := files.Open(dir, files.Options{OnScan: scanned})
		if err == nil {
			t.Cleanup(func() { _ = w.Close() }) // which has no error
		}
		return err
	}}
}

func TestPermitAHeldChange(t *testing.T) {
	dir := t.TempDir()
	write := func(body string) {
		t.Helper()
		beside := filepath.Join(dir, ".a.json")
		servicetest.Must(t, errors.Join(os.WriteFile(beside, []byte(body), 0o600), os.Rename(beside, filepath.Join(dir, "a.json"))))
	}
	write(bundle("a"))
	d := startServing(t, nil, watched(t, dir), func(*api.Options) {})
	write(`{"clusterName":"a"}`)
	var state sources.FilesState
	for len(state.Held) == 0 && t.Context().Err() == nil {
		state = decode[sources.FilesState](t, d.must(200, "GET", "/v1/files", "").Body.Bytes())
	}
	d.must(200, "GET", "/pick?cluster=a&wait=5s", "")
	path := sources.PermitPath(state.Held[0].Hash)
	d.refused(fault.UnknownChange, "POST", sources.PermitPath("nothing"), "")
	d.refused(fault.InvalidArgument, "POST", path+"?x", "")
	first := d.must(200, "POST", path, "").Body.String()
	d.refused(fault.NoReadyEndpoint, "GET", "/pick?cluster=a", "")
	if again := d.must(200, "POST", path, "").Body.String(); again != first {
		t.Errorf("permitted again: %s, and at first: %s", again, first)
	}
	permission := decode[sources.Permission](t, []byte(first))
	if permission.Hash != state.Held[0].Hash || permission.By == "" || permission.At.IsZero() || !permission.Kept {
		t.Errorf("got %+v", permission)
	}
}
