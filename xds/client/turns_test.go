package client

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/overload"
)

// TestLargeResponsesTakeTurns: a large response waits for its turn, and a small one does not.
// While it waits, no resource times out. A stream that ends meanwhile removes nothing.
func TestLargeResponsesTakeTurns(t *testing.T) {
	turns := overload.NewTurns(1)
	runTest(t, "one", func(t *testing.T, w *harness) {
		other, err := turns.Begin(t.Context(), overload.PushWork, "")
		noError(t, err)
		large := strings.Repeat("x", overload.SmallWork)
		s := w.load("a", "b") // small
		s.send("2", "n2", cluster("a", large))
		w.expectNoUpdates()
		if waiting := turns.Stats(overload.SourceWork).Waiting; waiting != 1 {
			t.Errorf("%d wait", waiting)
		}
		time.Sleep(time.Minute)
		s.end <- nil
		synctest.Wait()
		if waiting := turns.Stats(overload.SourceWork).Waiting; waiting != 1 {
			t.Errorf("%d wait after the end of the stream", waiting) // it was received before
		}
		other.End()
		w.expectUpdates("a=2, ambient b: not found")
		if s := turns.Stats(overload.SourceWork); s.Running != 0 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	}, func(_ *harness, o *Options) { o.Turns = turns })
}

// TestLargeResponsesAwaitMemory: a large response waits for memory that requests have, and its last version stays. If the
// data has it, there is another stream after a while, on which the server may send less.
func TestLargeResponsesAwaitMemory(t *testing.T) {
	data, collections := uint64(0), uint64(0)
	turns := overload.NewTurns(1)
	turns.Memory = overload.NewMemoryBudget(2*memoryFactor*overload.SmallWork, func() (uint64, uint64) { return data, collections }, func() { collections++ })
	runTest(t, "one", func(t *testing.T, w *harness) {
		s := w.subscribe(eds, "a", "b")
		s.send("1", "n1", assignment("a", 1), assignment("b", 1))
		w.expectUpdates("a=1, b=1")
		const held = memoryFactor * overload.SmallWork
		noError(t, turns.Memory.Reserve(held, 0))
		s.send("2", "n2", pack(assignmentProto("a", 1000, 2)), assignment("b", 2))
		time.Sleep(time.Minute)
		w.expectNoUpdates()
		turns.Memory.Release(held)
		time.Sleep(time.Second)
		w.expectUpdates("a=2, b=2")

		data, collections = held, collections+1
		s.send("3", "n3", pack(assignmentProto("a", 1000, 3)))
		time.Sleep(time.Minute)
		w.expectNoUpdates()
		s = w.servers["one"].accept()
		s.send("4", "n1", assignment("a", 4), assignment("b", 4))
		w.expectUpdates("a=4, b=4")
	}, func(_ *harness, o *Options) { o.Turns = turns })
}

// TestCloseEndsTheWaitForATurn: a client that waits for a turn can be closed.
func TestCloseEndsTheWaitForATurn(t *testing.T) {
	turns := overload.NewTurns(1)
	runTest(t, "one", func(t *testing.T, w *harness) {
		if _, err := turns.Begin(t.Context(), overload.PushWork, ""); err != nil {
			t.Fatal(err)
		}
		s := w.load("a", "b")
		s.send("2", "n2", cluster("a", strings.Repeat("x", overload.SmallWork)))
		synctest.Wait()
		w.client.Close()
		w.expectNoUpdates()
		if s := turns.Stats(overload.SourceWork); s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	}, func(_ *harness, o *Options) { o.Turns = turns })
}
