package files

import (
	"path/filepath"
	"strings"
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
