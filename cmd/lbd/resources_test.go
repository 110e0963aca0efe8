package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service/sources"
)

// directory is a resource directory.
type directory struct {
	*testing.T

	path string
}

// set replaces a file atomically, or removes it if body is empty.
func (d directory) set(name, body string) {
	d.Helper()
	file := filepath.Join(d.path, name)
	beside := filepath.Join(d.path, "."+name)
	var err error
	if body == "" {
		err = os.Remove(file)
	} else {
		err = errors.Join(os.WriteFile(beside, []byte(body), 0o600), os.Rename(beside, file))
	}
	noError(d, err)
}

// until waits for a state of the files, and returns it.
func (d directory) until(url, what string, is func(sources.FilesState) bool) sources.FilesState {
	d.Helper()
	var state sources.FilesState
	eventually(d.T, "files are "+what, func() bool {
		state = get[sources.FilesState](d.T, url+"/v1/files")
		return is(state)
	})
	return state
}

func isBad(s sources.FilesState) bool {
	return len(s.Files) > 0 && s.Files[0].State == sources.FileBad && s.Files[0].KeptLastGood
}

func isHeld(s sources.FilesState) bool { return len(s.Held) == 1 }

func isGood(s sources.FilesState) bool {
	return len(s.Held) == 0 && len(s.Files) > 0 && s.Files[0].State == sources.FileGood
}

// Invalid and missing files leave the last good versions in use, also after kills and restarts, until
// the change is permitted.
func TestResourceFilesKeepLastGoodVersion(t *testing.T) {
	t.Parallel()
	d := directory{t, t.TempDir()}
	data := t.TempDir()
	good := one(goodEndpoint)
	d.set("a.yaml", good)
	d.set("b.yaml", strings.Replace(good, "cluster_name: a", "cluster_name: b", 1))
	run := func(args ...string) *process {
		return startProcess(t, append([]string{"--connect=none", "--data=" + data, "--resources=" + d.path}, args...)...)
	}
	picks := func(p *process, what, cluster string, want int) {
		t.Helper()
		wait := "" // a tree follows a moment after the files
		if want == 200 {
			wait = "&wait_for_ready=true&wait=20s"
		}
		if a := do(t, "GET", p.url+"/pick?cluster="+cluster+wait, ""); a.status != want {
			t.Errorf("%s: a pick of %s: %d %s\n%s", what, cluster, a.status, a.body, p.output())
		}
	}
	p := run()
	picks(p, "at first", "a", 200)

	d.set("a.yaml", strings.Replace(good, "lb_endpoints", "lb_endpoint", 1))
	d.until(p.url, "bad", isBad)
	picks(p, "misspelled", "a", 200)
	p.kill(t)
	p = run()
	d.until(p.url, "bad", isBad)
	picks(p, "misspelled, after a kill", "a", 200)

	d.set("a.yaml", "cluster_name: a\n")
	hash := d.until(p.url, "held", isHeld).Held[0].Hash
	picks(p, "emptied", "a", 200)
	p.kill(t)
	p = run()
	if got := d.until(p.url, "held", isHeld).Held[0].Hash; got != hash {
		t.Errorf("after a kill the change is %s, and was %s", got, hash)
	}
	picks(p, "emptied, after a kill", "a", 200)
	expect(t, 200, "POST", p.url+sources.PermitPath(hash), "")
	picks(p, "permitted", "a", 503)
	p.kill(t)
	p = run()
	picks(p, "permitted, after a kill", "a", 503)
	d.set("a.yaml", good)
	d.until(p.url, "good", func(s sources.FilesState) bool { return isGood(s) && len(s.Files[0].Warnings) == 0 })
	picks(p, "corrected", "a", 200)

	// The whole directory goes, in one step.
	noError(t, os.Rename(d.path, d.path+".aside"))
	d.until(p.url, "away", isBad)
	picks(p, "away", "a", 200)
	p.stop(t)
	p = run()
	picks(p, "away, after a restart", "b", 200)
	noError(t, os.Mkdir(d.path, 0o700))
	d.until(p.url, "held", isHeld)
	picks(p, "another directory", "b", 200)
	p.stop(t)

	// More than one change may remove.
	noError(t, errors.Join(os.Remove(d.path), os.Rename(d.path+".aside", d.path)))
	p = run("--max-removed=0")
	d.set("b.yaml", "")
	d.until(p.url, "held", isHeld)
	picks(p, "removed", "b", 200)
	p.stop(t)
	p = run()
	picks(p, "where it may be removed", "b", 404)

	// What is pushed counts from the start.
	d.set("b.yaml", strings.Replace(good, "cluster_name: a", "cluster_name: b", 1))
	d.until(p.url, "back again", func(s sources.FilesState) bool { return len(s.Files) == 2 })
	expect(t, 201, "PUT", p.url+"/v1/clusters/c/config", `{"type":"EDS","eds_cluster_config":{"service_name":"b"}}`)
	p.stop(t)
	d.set("b.yaml", "")
	p = run()
	d.until(p.url, "held", isHeld)
	picks(p, "removed while lbd was away", "c", 200)
}

func TestLenientFilesAcceptUnknownFields(t *testing.T) {
	t.Parallel()
	d := directory{t, t.TempDir()}
	d.set("a.yaml", "foo: 1\n"+one(goodEndpoint))
	p := startProcess(t, "--connect=none", "--data=", "--resources="+d.path, "--lenient-files")
	state := d.until(p.url, "good", isGood)
	if w := state.Files[0].Warnings; len(w) != 1 || w[0].Field != "foo" {
		t.Errorf("warnings: %v", w)
	}
	expectFailure(t, command("check", filepath.Join(d.path, "a.yaml")), "foo: unknown field")
	if out, err := command("check", "--lenient-files", filepath.Join(d.path, "a.yaml")).CombinedOutput(); err != nil {
		t.Errorf("check --lenient-files: %v: %s", err, out)
	}
}

func TestMissingResourceDirectory(t *testing.T) {
	t.Parallel()
	expectFailure(t, command("serve", "--listen=127.0.0.1:0", "--data="+t.TempDir(), "--resources="+filepath.Join(t.TempDir(), "absent")), "absent")
}
