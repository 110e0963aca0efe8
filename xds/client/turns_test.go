package client

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

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

// memoryFor returns turns with memory for n times SmallWork, and a function that sets what data takes of it.
func memoryFor(n uint64) (turns *overload.Turns, use func(uint64)) {
	var data, collections atomic.Uint64
	turns = overload.NewTurns(1)
	turns.Memory = overload.NewMemoryBudget(int64(n*memoryFactor*overload.SmallWork*10/9+10), func() (uint64, uint64) { return data.Load(), collections.Load() }, func() { collections.Add(1) })
	turns.Monitor = overload.NewMonitor(func() error { return nil })
	return turns, func(n uint64) { data.Store(n * memoryFactor * overload.SmallWork); collections.Add(1) }
}

// large returns an assignment that takes more than SmallWork.
func large(port uint32) *anypb.Any { return pack(assignmentProto("a", 1000, port)) }

// TestResponsesWithoutMemory: a response for which there is no memory is rejected, and its resources stay and do not time
// out. Other types, and later responses, are handled. There is neither another stream nor fallback, and the response is
// handled when there is memory, without being sent again.
func TestResponsesWithoutMemory(t *testing.T) {
	turns, use := memoryFor(6)
	runTest(t, "one two", func(t *testing.T, w *harness) {
		defer turns.Monitor.Close()
		use(5)
		s := w.subscribe(eds, "a", "b")
		s.send("1", "n1", large(1), assignment("b", 1))
		s.expect(`ClusterLoadAssignment [a b] version="" nonce="n1" NACK`)
		w.want(cds, "c")
		s.expect(`Cluster [c] version="" nonce=""`)
		s.send("1", "c1", cluster("c"))
		w.expectUpdates("c=1")
		s.expect(`Cluster [c] version="1" nonce="c1"`)
		began := time.Now()
		time.Sleep(10 * time.Minute)
		w.expectNoUpdates()
		s.expectNothing()
		if lacks := turns.Monitor.Current(); len(lacks) != 1 || lacks[0].Since != began || !strings.Contains(lacks[0].Err.Error(), "ClusterLoadAssignment of passthrough:///one: takes about") {
			t.Errorf("the shortages are %v", lacks)
		}
		if _, _, waited := turns.Memory.Reserved(); waited != 1 {
			t.Errorf("%d sources waited", waited)
		}
		use(0)
		w.expectUpdates("a=1, b=1")
		s.expect(`ClusterLoadAssignment [a b] version="1" nonce="n1"`)

		use(5)
		s.send("2", "n2", large(2), assignment("b", 2))
		s.expect(`ClusterLoadAssignment [a b] version="1" nonce="n2" NACK`)
		s.send("3", "n3", assignment("a", 3), assignment("b", 3))
		w.expectUpdates("a=3, b=3")
		s.expect(`ClusterLoadAssignment [a b] version="3" nonce="n3"`)
		use(0)
		time.Sleep(time.Minute)
		w.expectNoUpdates() // version 2 is gone
		s.expectNothing()
		expectNone(t, w.servers["one"].streams, "stream")
		expectNone(t, w.servers["two"].streams, "stream")
		if lacks := turns.Monitor.Current(); len(lacks) != 0 {
			t.Errorf("in the end: %v", lacks)
		}
	}, func(_ *harness, o *Options) { o.Turns = turns })
}

// A response of all resources of a server removes none that it may have, if there is no memory to find out.
func TestClustersWithoutMemory(t *testing.T) {
	turns, use := memoryFor(6)
	runTest(t, "one", func(t *testing.T, w *harness) {
		defer turns.Monitor.Close()
		s := w.load("a", "b")
		use(6)
		s.send("2", "n2", cluster("a", strings.Repeat("x", overload.SmallWork)))
		time.Sleep(time.Minute)
		w.expectNoUpdates()
		s.end <- nil // the next stream begins without it
		s = w.servers["one"].accept()
		s.expect(`node=test Cluster [a b] version="1" nonce=""`)
		s.send("3", "n1", cluster("a", "other"))
		w.expectUpdates("a=3, ambient b: not found")
	}, func(_ *harness, o *Options) { o.Turns = turns })
}

// Resources that are cached take no memory again, and those that are being taken have it until they are in use.
func TestMemoryOfResponses(t *testing.T) {
	turns, use := memoryFor(6)
	runTest(t, "one", func(t *testing.T, w *harness) {
		defer turns.Monitor.Close()
		s := w.subscribe(eds, "a", "b")
		s.send("1", "n1", large(1), assignment("b", 1))
		w.expectUpdates("a=1, b=1")
		if bytes, _, _ := turns.Memory.Reserved(); bytes < memoryFactor*overload.SmallWork {
			t.Errorf("%d bytes are reserved before the resources are in use", bytes)
		}
		w.block <- struct{}{}
		close(w.block)
		synctest.Wait()
		if bytes, _, _ := turns.Memory.Reserved(); bytes != 0 {
			t.Errorf("%d bytes are reserved", bytes)
		}
		use(6)
		s.send("2", "n2", large(1), assignment("b", 2))
		w.expectUpdates("b=2")
	}, blocking, func(_ *harness, o *Options) { o.Turns = turns })
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
