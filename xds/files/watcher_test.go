package files

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestOpenReadsTheResourceFilesOfADirectory(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	d, err := decode.One(resource.TypeAssignment, []byte(assignment("binary", "h")), decode.Options{Format: decode.FormatYAML})
	do(t, err)
	write(t, filepath.Join(dir, "a.json"), clusters("one", "two"))
	write(t, filepath.Join(dir, "b.yaml"), assignment("one", "h"))
	write(t, filepath.Join(dir, "c.YML"), "resources: []")
	write(t, filepath.Join(dir, "d.pb"), string(d.Raw))
	write(t, filepath.Join(dir, "e.yaml"), "name: bad\ntype: STATIC\n")
	write(t, filepath.Join(dir, "f.json"), `{"name":`)
	write(t, filepath.Join(dir, "g.json"), `{"name":"warned","type":"EDS","connect_timeout":"1s"}`)
	write(t, filepath.Join(dir, ".hidden.yaml"), assignment("hidden", "h"))
	write(t, filepath.Join(dir, "notes.md"), assignment("text", "h"))
	write(t, filepath.Join(dir, "k.txt"), "# a list\nh:80\n")
	write(t, filepath.Join(elsewhere, "linked"), assignment("linked", "h"))
	do(t, os.Symlink(filepath.Join(elsewhere, "linked"), filepath.Join(dir, "h.yaml")))
	do(t, os.Symlink("nowhere", filepath.Join(dir, "i.yaml")))
	do(t, os.Mkdir(filepath.Join(dir, "within.yaml"), 0o700))
	write(t, filepath.Join(dir, "within.yaml", "j.yaml"), assignment("within", "h"))
	do(t, syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600))

	var log bytes.Buffer
	var scans []*Scan
	w, err := Open(dir, Options{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		OnScan: func(s *Scan) { scans = append(scans, s) },
	})
	do(t, err)
	do(t, w.Close())
	do(t, w.Close())

	want := strings.Join([]string{
		"Cluster/one@a.json", "Cluster/two@a.json", "Cluster/warned@g.json", "ClusterLoadAssignment/binary@d.pb=h:80",
		"ClusterLoadAssignment/k@k.txt=h:80", "ClusterLoadAssignment/linked@h.yaml=h:80", "ClusterLoadAssignment/one@b.yaml=h:80",
		"!e.yaml: Cluster/bad: type: STATIC is not supported: write type: EDS, and give the endpoints as a ClusterLoadAssignment: " +
			"pushed under the cluster's endpoints, or from a management server",
		"!f.json: read JSON: line 1, column 9: name: the body is cut short",
		"!i.yaml: stat " + filepath.Join(dir, "i.yaml") + ": no such file or directory",
		"?g.json: 1",
	}, "\n")
	if len(scans) != 1 || summary(scans[0]) != want {
		t.Errorf("%d scans:\n%s\nwant:\n%s", len(scans), summary(scans[0]), want)
	}
	if got := log.String(); strings.Count(got, "level=") != 1 || !strings.Contains(got, `count=2 files="[notes.md pipe.yaml]"`) {
		t.Errorf("log:\n%s", got)
	}
}

func TestOpenFailsWithoutADirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	for _, path := range []string{filepath.Join(dir, "absent"), filepath.Join(dir, "file")} {
		if w, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %+v, %v", path, w, err)
		}
	}
}

func TestChangesOfFilesAreReported(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	write(t, a, assignment("a", "h"))
	w := start(t, dir, quick)
	w.expect("ClusterLoadAssignment/a@a.yaml=h:80")

	replace(t, a, assignment("a", "i"))
	w.expect("ClusterLoadAssignment/a@a.yaml=i:80")

	write(t, a, assignment("a", "longer"))
	if before := w.until("ClusterLoadAssignment/a@a.yaml=longer:80"); len(before) > 1 {
		t.Errorf("sets before: %q", before)
	}

	replace(t, b, assignment("b", "h"))
	w.expect("ClusterLoadAssignment/a@a.yaml=longer:80\nClusterLoadAssignment/b@b.yaml=h:80")

	do(t, os.Rename(a, filepath.Join(dir, "c.yaml")))
	w.until("ClusterLoadAssignment/a@c.yaml=longer:80\nClusterLoadAssignment/b@b.yaml=h:80")

	do(t, os.Remove(filepath.Join(dir, "c.yaml")))
	w.expect("ClusterLoadAssignment/b@b.yaml=h:80")
}

func TestIrrelevantChangesAreNotReported(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	write(t, a, assignment("a", "h"))
	write(t, filepath.Join(dir, "bad.yaml"), "x: [")
	w := start(t, dir, quick)
	before := (<-w.scans).Files["a.yaml"]
	modified := before.Modified

	do(t, os.Chtimes(a, time.Time{}, modified.Add(time.Hour)))
	replace(t, a, assignment("a", "h"))
	write(t, filepath.Join(dir, "notes.md"), "x")
	replace(t, filepath.Join(dir, "bad.yaml"), "x: [")
	do(t, os.Mkdir(filepath.Join(dir, "d"), 0o700))
	// Time for it all to be read: what is read after it comes in a set of its own.
	replace(t, filepath.Join(dir, "b.yaml"), assignment("b", "h"))
	after := <-w.scans
	const want = "ClusterLoadAssignment/a@a.yaml=h:80\nClusterLoadAssignment/b@b.yaml=h:80\n!bad.yaml: read YAML: line 1: did not find expected node content"
	if got := summary(after); got != want || after.Files["a.yaml"] != before {
		t.Errorf("got:\n%s\nwant:\n%s\nof another file: %t", got, want, after.Files["a.yaml"] != before)
	}
}

func TestABadFileIsReportedSinceItIs(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	write(t, a, assignment("a", "h"))
	w := start(t, dir, quick)
	const good = "ClusterLoadAssignment/a@a.yaml=h:80"
	w.expect(good)
	next := func(want string) *File {
		t.Helper()
		s := <-w.scans
		if got := summary(s); got != want {
			t.Fatalf("scan:\n%s\nwant:\n%s", got, want)
		}
		return s.Files["a.yaml"]
	}

	replace(t, a, "cluster_name: [")
	since := next("!a.yaml: read YAML: line 1: did not find expected node content").Since
	replace(t, a, "cluster_name: a\nendpoints: [{load_balancing_weight: 1, priority: 7}]\n")
	f := next("!a.yaml: ClusterLoadAssignment/a: endpoints[0].priority: is 7, and no locality with a weight has priorities 0 to 6: " +
		"priorities must begin at 0 and leave none out")
	if !f.Since.Equal(since) {
		t.Errorf("bad since %v, want %v", f.Since, since)
	}
	replace(t, a, assignment("a", "h"))
	w.expect(good)

	do(t, os.Symlink("nowhere", filepath.Join(dir, "a.tmp")))
	do(t, os.Rename(filepath.Join(dir, "a.tmp"), a))
	w.expect("!a.yaml: stat " + a + ": no such file or directory")
	replace(t, a, assignment("a", "h"))
	w.expect(good)
	replace(t, a, "")
	w.expect("!a.yaml: read YAML: the body is empty")
	do(t, os.Remove(a))
	w.expect("")
}

func TestUnknownFieldsMakeAFileBadUnlessItIsLenient(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), strings.Replace(assignment("a", "h"), "lb_endpoints", "lb_endpoint", 1))
	for _, c := range []struct {
		lenient bool
		want    string
	}{
		{false, "!a.yaml: ClusterLoadAssignment/a: endpoints[0].lb_endpoint: unknown field (did you mean lb_endpoints?)\nvalid ClusterLoadAssignment/a@a.yaml"},
		{true, "ClusterLoadAssignment/a@a.yaml\n?a.yaml: 1"},
	} {
		var got string
		w, err := Open(dir, Options{Lenient: c.lenient, OnScan: func(s *Scan) { got = summary(s) }})
		do(t, err)
		do(t, w.Close())
		if got != c.want {
			t.Errorf("lenient %t:\n%s\nwant:\n%s", c.lenient, got, c.want)
		}
	}
}

// Of a bad file, each resource that is valid by itself is distinguished from the others.
func TestWhatIsValidOfABadFile(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.json"), `{"resources":[`+
		`{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"good","type":"EDS","foo":1},`+
		`{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"bad","type":"STATIC"},`+
		`{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"good","type":"EDS"}]}`)
	w := start(t, dir, quick)
	if got := w.next(); !strings.HasPrefix(got, "!a.json: ") || strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, "\nvalid Cluster/good@a.json") {
		t.Errorf("got:\n%s", got)
	}
}

func TestOpenWaitsForADirectoryThatMayBeAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "resources")
	scans := make(chan *Scan, 100)
	w, err := open(dir, Options{MayBeAway: true, OnScan: func(s *Scan) { scans <- s }}, quick)
	do(t, err)
	defer func() { do(t, w.Close()) }()
	if got, want := summary(<-scans), "!.: open "+dir+": no such file or directory"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	do(t, os.Mkdir(dir+".tmp", 0o700))
	write(t, filepath.Join(dir+".tmp", "a.yaml"), assignment("a", "h"))
	do(t, os.Rename(dir+".tmp", dir))
	if got := summary(<-scans); got != "ClusterLoadAssignment/a@a.yaml=h:80" {
		t.Errorf("got %s", got)
	}
}

// The kubelet's way to change a mounted ConfigMap: what a file's symlink leads
// to is swapped with one rename, then symlinks are made and removed.
func TestConfigMapSwap(t *testing.T) {
	dir := t.TempDir()
	publish := func(version string, files map[string]string) {
		t.Helper()
		do(t, os.Mkdir(filepath.Join(dir, version), 0o755))
		for name, content := range files {
			write(t, filepath.Join(dir, version, name), content)
		}
		old, _ := os.Readlink(filepath.Join(dir, "..data"))
		do(t, os.Symlink(version, filepath.Join(dir, "..data_tmp")))
		do(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		for name := range files {
			if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
		}
		links, err := filepath.Glob(filepath.Join(dir, "[a-z]*"))
		do(t, err)
		for _, link := range links {
			if _, ok := files[filepath.Base(link)]; !ok {
				do(t, os.Remove(link))
			}
		}
		if old != "" {
			do(t, os.RemoveAll(filepath.Join(dir, old)))
		}
	}
	publish("..2026_11_20", map[string]string{"a.yaml": assignment("a", "h"), "b.yaml": assignment("b", "h")})
	w := start(t, dir, defaultTiming)
	w.expect("ClusterLoadAssignment/a@a.yaml=h:80\nClusterLoadAssignment/b@b.yaml=h:80")
	// However slow the swap is, no file looks as if it was removed on the way, before
	// what it held is in another.
	until := func(want string) {
		t.Helper()
		for _, before := range w.until(want) {
			if !strings.Contains(before, "ClusterLoadAssignment/a@") || !strings.Contains(before, "ClusterLoadAssignment/b@") && !strings.Contains(before, "!b.yaml: ") {
				t.Errorf("on the way:\n%s", before)
			}
		}
	}

	publish("..2026_11_21", map[string]string{"a.yaml": assignment("a", "i"), "b.yaml": assignment("b", "i")})
	w.expect("ClusterLoadAssignment/a@a.yaml=i:80\nClusterLoadAssignment/b@b.yaml=i:80")

	publish("..2026_11_22", map[string]string{"a.yaml": assignment("a", "j"), "c.yaml": assignment("b", "j")})
	until("ClusterLoadAssignment/a@a.yaml=j:80\nClusterLoadAssignment/b@c.yaml=j:80")

	publish("..2026_11_23", map[string]string{"a.yaml": "x: [", "c.yaml": assignment("b", "k")})
	w.until("ClusterLoadAssignment/b@c.yaml=k:80\n!a.yaml: read YAML: line 1: did not find expected node content")
}

func TestTheDirectoryGoesAndComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "resources")
	do(t, os.Mkdir(dir, 0o700))
	write(t, filepath.Join(dir, "a.yaml"), assignment("a", "h"))
	w := start(t, dir, quick)
	w.expect("ClusterLoadAssignment/a@a.yaml=h:80")
	const away = "!.: open "

	// As one step, so that no time is quiet between the file's end and the
	// directory's.
	aside := dir + ".aside"
	do(t, os.Rename(dir, aside))
	w.expect(away + dir + ": no such file or directory")

	write(t, dir, "a file")
	w.expect(away + dir + ": not a directory")
	do(t, os.Remove(dir))
	w.expect(away + dir + ": no such file or directory")

	do(t, os.Rename(aside, dir))
	w.expect("ClusterLoadAssignment/a@a.yaml=h:80")
	replace(t, filepath.Join(dir, "a.yaml"), assignment("a", "i"))
	w.expect("ClusterLoadAssignment/a@a.yaml=i:80")

	// Another directory, often of the same inode.
	for _, address := range []string{"j", "k", "l"} {
		fresh := dir + "." + address
		do(t, os.Mkdir(fresh, 0o700))
		write(t, filepath.Join(fresh, "a.yaml"), assignment("a", address))
		do(t, os.Rename(dir, aside))
		do(t, os.RemoveAll(aside))
		do(t, os.Rename(fresh, dir))
		w.until("ClusterLoadAssignment/a@a.yaml=" + address + ":80")
		replace(t, filepath.Join(dir, "a.yaml"), assignment("a", address+"2"))
		w.until("ClusterLoadAssignment/a@a.yaml=" + address + "2:80")
	}
}

// The system stops watching a directory that is removed, and another in its
// place can have its inode.
func TestWhatTheSystemStoppedWatchingIsWatchedAgain(t *testing.T) {
	dir := t.TempDir()
	n := newNotifier(dir, slog.New(slog.DiscardHandler))
	defer n.close()
	n.arm()
	do(t, n.system.Remove(dir))
	do(t, n.system.Remove(filepath.Dir(dir)))
	if e := (fsnotify.Event{Name: dir + ".beside", Op: fsnotify.Rename}); !n.concerns(e) {
		t.Errorf("%s does not matter", e)
	}
	n.arm()
	if got := n.system.WatchList(); len(got) != 2 {
		t.Errorf("watched: %q", got)
	}
	if e := (fsnotify.Event{Name: dir + ".beside", Op: fsnotify.Rename}); n.concerns(e) {
		t.Errorf("%s matters", e)
	}
}

func TestTheDirectoryIsASymlinkThatIsSwapped(t *testing.T) {
	for _, c := range []struct{ name, dir, to, swapped string }{
		{"itself", "current", "1", "current"},
		{"what it leads through", "current", "..data/.", "..data"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, c.dir)
			for _, release := range []string{"1", "2"} {
				do(t, os.Mkdir(filepath.Join(root, release), 0o700))
				write(t, filepath.Join(root, release, "a.yaml"), assignment("a", "h"+release))
			}
			do(t, os.Symlink("1", filepath.Join(root, "..data")))
			do(t, os.Symlink(c.to, dir))
			w := start(t, dir, quick)
			w.expect("ClusterLoadAssignment/a@a.yaml=h1:80")
			do(t, os.Symlink("2", dir+".tmp"))
			do(t, os.Rename(dir+".tmp", filepath.Join(root, c.swapped)))
			w.expect("ClusterLoadAssignment/a@a.yaml=h2:80")
			replace(t, filepath.Join(root, "1", "a.yaml"), assignment("a", "unseen"))
			replace(t, filepath.Join(root, "2", "a.yaml"), assignment("a", "h3"))
			w.expect("ClusterLoadAssignment/a@a.yaml=h3:80")
		})
	}
}

// The target of a symlink sends no notifications: the rescan sees its changes.
func TestRescanDetectsUnnotifiedChanges(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "a")
	write(t, elsewhere, assignment("a", "h"))
	do(t, os.Symlink(elsewhere, filepath.Join(dir, "a.yaml")))
	w := start(t, dir, timing{quiet: time.Millisecond, most: time.Second, rescan: 5 * time.Millisecond})
	w.expect("ClusterLoadAssignment/a@a.yaml=h:80")
	replace(t, elsewhere, assignment("a", "i"))
	w.expect("ClusterLoadAssignment/a@a.yaml=i:80")
}

// Half of a file can be a good one. The quiet is long enough for a slow machine
// to write the other half in it.
func TestAHalfWrittenFileIsNotRead(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	whole := assignment("a", "h")
	write(t, a, assignment("a", "g"))
	w := start(t, dir, timing{quiet: time.Second, most: time.Minute, rescan: time.Hour})
	w.expect("ClusterLoadAssignment/a@a.yaml=g:80")
	file, err := os.Create(a)
	do(t, err)
	half := strings.Index(whole, "endpoints")
	for _, part := range []string{whole[:half], whole[half:]} {
		_, err := file.WriteString(part)
		do(t, err)
		do(t, file.Sync())
	}
	do(t, file.Close())
	w.expect("ClusterLoadAssignment/a@a.yaml=h:80")
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	dir := t.TempDir()
	w := start(t, dir, timing{quiet: time.Hour, most: time.Hour, rescan: time.Hour})
	w.expect("")
	write(t, filepath.Join(dir, "a.yaml"), assignment("a", "h"))
	do(t, w.Close())
	select {
	case <-w.quiet:
	default:
		t.Error("the goroutine has not ended")
	}
	if len(w.scans) != 0 {
		t.Errorf("a scan after Close: %v", summary(<-w.scans))
	}
}
