package files

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/decode"
)

// TestLargeFilesTakeTurns: a large file waits for its turn, and a watcher that waits can be closed.
func TestLargeFilesTakeTurns(t *testing.T) {
	dir := t.TempDir()
	turns := overload.NewTurns(1)
	scans := make(chan *Scan, 10)
	w, err := open(dir, Options{OnScan: func(s *Scan) { scans <- s }, Turns: turns}, quick)
	do(t, err)
	defer func() { do(t, w.Close()) }()
	next := func() string { return summary(<-scans) }
	next()
	await := func(waiting int) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); turns.Stats(overload.SourceWork).Waiting != waiting; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not %d wait", waiting)
			}
		}
	}
	large := strings.Repeat("#", overload.SmallWork) + "\n"

	other, err := turns.Begin(t.Context(), overload.PushWork, "")
	do(t, err)
	write(t, filepath.Join(dir, "a.yaml"), assignment("a", "h"))
	if got := next(); got != "ClusterLoadAssignment/a@a.yaml=h:80" {
		t.Errorf("a small file: %s", got)
	}
	write(t, filepath.Join(dir, "b.yaml"), large+assignment("b", "h"))
	await(1)
	other.End()
	if got := next(); got != "ClusterLoadAssignment/a@a.yaml=h:80\nClusterLoadAssignment/b@b.yaml=h:80" {
		t.Errorf("a large file: %s", got)
	}

	other, err = turns.Begin(t.Context(), overload.PushWork, "")
	do(t, err)
	defer other.End()
	write(t, filepath.Join(dir, "b.yaml"), large+assignment("b", "other"))
	await(1)
	do(t, w.Close())
	await(0)
	if len(scans) != 0 {
		t.Errorf("a scan after Close: %s", next())
	}
}

// TestLargeFilesAwaitMemory: a large file waits for memory. If the data has it, the file stays as it was, and is read later.
func TestLargeFilesAwaitMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "a.yaml")
		var data, collections atomic.Uint64
		turns := overload.NewTurns(1)
		turns.Memory = overload.NewMemoryBudget(2*memoryFactor*overload.SmallWork, func() (uint64, uint64) { return data.Load(), collections.Load() }, func() { collections.Add(1) })
		d := &directory{budget: &budget{t.Context(), turns}, path: dir, files: map[string]*file{}, decoding: decode.Options{Origin: decode.ByHand, Bare: true}}
		now := time.Now()
		read := func() *file {
			d.read(readListing(dir, nil), &look{now: now.Add(time.Hour)}, nil)
			return d.files["a.yaml"]
		}
		write(t, path, assignment("a", "h"))
		before := *read()
		write(t, path, strings.Repeat("#", overload.SmallWork)+"\n"+assignment("a", "other"))
		data.Store(memoryFactor * overload.SmallWork)
		collections.Add(1)
		if a := read(); a.state != before.state || !d.fresh() {
			t.Errorf("a file without memory: %+v", a)
		}
		go func() {
			time.Sleep(9500 * time.Millisecond)
			data.Store(0)
			collections.Add(1)
		}()
		began := time.Now()
		if a := read(); a.state.Err != nil || a.state == before.state || time.Since(began) != 10*time.Second {
			t.Errorf("after %v: %+v", time.Since(began), a)
		}
	})
}
