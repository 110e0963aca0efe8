package files

import (
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/overload"
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

// TestFilesWithoutMemory: a file for which there is no memory stays as it was, is no reason to wait for the others, and is
// read soon after there is memory. Meanwhile the shortage lasts.
func TestFilesWithoutMemory(t *testing.T) {
	dir := t.TempDir()
	var data, collections atomic.Uint64
	use := func(bytes uint64) { data.Store(bytes); collections.Add(1) }
	turns := overload.NewTurns(1)
	turns.Memory = overload.NewMemoryBudget(4*memoryFactor*overload.SmallWork, func() (uint64, uint64) { return data.Load(), collections.Load() }, func() { collections.Add(1) })
	turns.Monitor = overload.NewMonitor(func() error { return nil })
	defer turns.Monitor.Close()
	large := strings.Repeat("#", 2*overload.SmallWork) + "\n"
	for _, name := range []string{"a", "b"} {
		write(t, filepath.Join(dir, name+".yaml"), large+assignment(name, "h"))
	}
	write(t, filepath.Join(dir, "z.yaml"), assignment("z", "h"))
	use(2 * memoryFactor * overload.SmallWork)
	scans := make(chan *Scan, 100)
	w, err := open(dir, Options{OnScan: func(s *Scan) { scans <- s }, Turns: turns}, timing{quiet: time.Millisecond, most: 10 * time.Millisecond, rescan: time.Hour})
	do(t, err)
	defer func() { do(t, w.Close()) }()
	first := <-scans
	if a, b := first.Files["a.yaml"].Err, first.Files["b.yaml"].Err; !errors.As(a, new(*overload.MemoryError)) || !errors.As(b, new(*overload.MemoryError)) || first.Files["z.yaml"].Err != nil {
		t.Errorf("the first scan: %s", summary(first))
	}
	since := turns.Monitor.Current()[0].Since
	time.Sleep(overload.Calm + 2*overload.CheckInterval) // real time: the shortage would have ended
	if lacks := turns.Monitor.Current(); len(lacks) != 1 || lacks[0].Since != since || len(scans) != 0 {
		t.Errorf("%v, and %d scans", lacks, len(scans))
	}
	use(0)
	until := func(want string) {
		t.Helper()
		for deadline := time.After(10 * time.Second); ; {
			select {
			case s := <-scans:
				if summary(s) == want {
					return
				}
			case <-deadline:
				t.Fatalf("no scan %s", want)
			}
		}
	}
	const rest = "\nClusterLoadAssignment/b@b.yaml=h:80\nClusterLoadAssignment/z@z.yaml="
	until("ClusterLoadAssignment/a@a.yaml=h:80" + rest + "h:80")
	use(2 * memoryFactor * overload.SmallWork)
	replace(t, filepath.Join(dir, "a.yaml"), large+assignment("a", "other"))
	replace(t, filepath.Join(dir, "z.yaml"), assignment("z", "i"))
	until("ClusterLoadAssignment/a@a.yaml=h:80" + rest + "i:80")
	use(0)
	until("ClusterLoadAssignment/a@a.yaml=other:80" + rest + "i:80")
}
