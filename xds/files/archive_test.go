package files

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// versionOf is a version with one resource of that content.
func versionOf(content string) *Version {
	return &Version{
		Sum: "sum", Modified: time.Unix(1000, 5).UTC(),
		Items: []resource.Item{{Key: resource.Key{Type: resource.TypeCluster, Name: "a"}, Field: "resources[0]", Raw: []byte(content)}},
	}
}

func openKept(t *testing.T, data, dir string) *Archive {
	t.Helper()
	a := OpenArchive(data, dir, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func TestAnArchiveKeepsVersionsOfOneDirectory(t *testing.T) {
	data := t.TempDir()
	a := openKept(t, data, "/resources")
	id := Identity{7, 8}
	do(t, a.Save(map[string]*Version{"f": versionOf("1"), "g": versionOf("2")}, id))
	do(t, a.Save(map[string]*Version{"f": versionOf("3"), "g": nil}, id))
	do(t, a.Close())
	do(t, a.Close())

	a = openKept(t, data, "/resources")
	kept, got := a.Load()
	want := versionOf("3")
	want.Restored = true
	if len(kept) != 1 || fmt.Sprint(*kept["f"]) != fmt.Sprint(*want) || got != id {
		t.Errorf("kept: %+v of %v, want %+v of %v", kept["f"], got, want, id)
	}
	do(t, a.Close())

	// Another directory has no last good versions yet.
	a = openKept(t, data, "/others")
	if kept, got := a.Load(); len(kept) != 0 || got != (Identity{}) {
		t.Errorf("of another directory: %v of %v", kept, got)
	}
}

func TestAnArchiveWithoutDataKeepsNothing(t *testing.T) {
	a := openKept(t, "", "/resources")
	do(t, a.Save(map[string]*Version{"f": versionOf("1")}, Identity{}))
	if kept, _ := a.Load(); len(kept) != 0 {
		t.Errorf("kept: %v", kept)
	}
	do(t, a.Close())
}

func TestAnArchiveIsBounded(t *testing.T) {
	var log bytes.Buffer
	data := t.TempDir()
	a := OpenArchive(data, "/resources", slog.New(slog.NewTextHandler(&log, nil)))
	defer func() { do(t, a.Close()) }()
	large := func(n int) *Version { return versionOf(strings.Repeat("x", n)) }
	a.cache.Limit = 1000
	do(t, a.Save(map[string]*Version{"f": large(400)}, Identity{}))
	do(t, a.Save(map[string]*Version{"g": large(400)}, Identity{}))
	do(t, a.Save(map[string]*Version{"h": large(400)}, Identity{}))
	sizes := func() string {
		kept, _ := a.Load()
		return fmt.Sprint(slices.Sorted(maps.Keys(kept)))
	}
	if got := sizes(); got != "[f g]" || strings.Count(log.String(), "level=ERROR") != 1 {
		t.Errorf("kept: %s, log:\n%s", got, log.String())
	}
	do(t, a.Close())
	a = OpenArchive(data, "/resources", nil)
	a.cache.Limit = 1000
	do(t, a.Save(map[string]*Version{"h": large(400)}, Identity{}))
	if got := sizes(); got != "[f g]" {
		t.Errorf("after a restart: %s", got)
	}
	do(t, a.Save(map[string]*Version{"f": nil, "h": large(400)}, Identity{}))
	if got := sizes(); got != "[g h]" {
		t.Errorf("once there is room: %s", got)
	}
}

const archiveCrashEnv = "LBD_ARCHIVE_TEST_CRASH"

// A process that is killed while it saves leaves each version as it was before or
// after, and loses none that Save returned for.
func TestKilledWhileSaving(t *testing.T) {
	if dir := os.Getenv(archiveCrashEnv); dir != "" {
		a := OpenArchive(dir, "/resources", nil)
		for n := 1; ; n++ {
			content := strings.Repeat(fmt.Sprintf("%08d", n), 2000)
			do(t, a.Save(map[string]*Version{"f": versionOf(content), "g": versionOf(content)}, Identity{}))
			fmt.Println("saved", n)
		}
	}
	data := t.TempDir()
	last := 0
	for range 10 {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledWhileSaving$")
		child.Env = append(os.Environ(), archiveCrashEnv+"="+data)
		out, err := child.StdoutPipe()
		do(t, err)
		do(t, child.Start())
		for last = 0; last < 5; {
			if _, err := fmt.Fscanf(out, "saved %d\n", &last); err != nil {
				t.Fatal(err)
			}
		}
		do(t, child.Process.Kill())
		_ = child.Wait() // it was killed
		a := openKept(t, data, "/resources")
		kept, _ := a.Load()
		f, g := string(kept["f"].Items[0].Raw), string(kept["g"].Items[0].Raw)
		if f != g || len(f) != 16000 || f < fmt.Sprintf("%08d", last) {
			t.Errorf("after %d: f is %.8s…, g is %.8s…", last, f, g)
		}
		do(t, a.Close())
	}
}

func FuzzDecodeVersion(f *testing.F) {
	f.Add(versionOf("1").encode())
	f.Add((&Version{Partial: true}).encode())
	f.Add([]byte{versionFormat})
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := decodeVersion(b)
		if err != nil {
			return
		}
		again, err := decodeVersion(v.encode())
		if err != nil || fmt.Sprint(*again) != fmt.Sprint(*v) {
			t.Errorf("%+v became %+v, %v", v, again, err)
		}
	})
}
