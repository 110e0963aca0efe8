package overload

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// What is reserved and the data never exceed the budget together. What has been released may be data by now, until the
// next collection says what of it is.
func TestMemoryBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var live, collections, waits uint64
		collected := uint64(300) // what a collection finds
		m := NewMemoryBudget(1000, func() (uint64, uint64) { return live, collections }, func() {
			live, collections, waits = collected, collections+1, waits+1
			time.Sleep(time.Second)
		})
		gc := func(bytes uint64) { live, collections = bytes, collections+1 }
		reserve := func(n int64, ok bool, waited uint64) {
			t.Helper()
			if err := m.Reserve(n, 0); (err == nil) != ok || waits != waited {
				t.Errorf("reserve %d: %v after %d collections", n, err, waits)
			}
		}
		gc(300)
		reserve(600, true, 0)
		reserve(1, false, 1) // nothing is freed
		gc(900)
		reserve(1, false, 1) // the last collection was just now
		m.Release(600)
		reserve(601, false, 1) // not even if all of it is garbage
		collected = 400
		reserve(400, false, 1) // it may be, but the pause holds
		time.Sleep(collectPause * time.Second)
		reserve(400, true, 2)
		m.Release(100)
		time.Sleep(collectPause * time.Second)
		reserve(400, false, 3)
		reserve(100, true, 3)
		gc(550) // at least 150 of it are data
		reserve(100, true, 3)
		gc(950) // at least 450
		reserve(1, false, 3)
		m.Release(500)
		gc(150)
		reserve(750, true, 3)
		if bytes, refused, _ := m.Reserved(); bytes != 750 || refused != 6 {
			t.Errorf("%d reserved, %d refused", bytes, refused)
		}
		if err := NewMemoryBudget(math.MaxInt64, nil, nil).Reserve(math.MaxInt64, 0); err != nil {
			t.Error(err)
		}
	})
}

// While one request collects, others reserve what fits; those for which nothing is left wait, and do not collect again.
func TestMemoryBudgetCollectsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var collections atomic.Uint64
		end := make(chan struct{})
		m := NewMemoryBudget(1000, func() (uint64, uint64) { return 800, collections.Load() + 1 }, func() {
			<-end
			collections.Add(1)
		})
		var all sync.WaitGroup
		refuse := func() {
			if m.Reserve(200, 0) == nil {
				t.Error("more is reserved than is left")
			}
		}
		all.Go(refuse)
		synctest.Wait()
		if err := m.Reserve(50, 0); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		all.Go(refuse)
		close(end)
		all.Wait()
		if n := collections.Load(); n != 1 {
			t.Errorf("%d collections", n)
		}
	})
}

// A refusal tells what the request takes from what others take, and whether a retry can help.
func TestMemoryError(t *testing.T) {
	const gib = 1 << 30
	m := NewMemoryBudget(10*gib, func() (uint64, uint64) { return 2 * gib, 1 }, func() {})
	if err := m.Reserve(6*gib, 0); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		n, own int64
		never  bool
		says   string
	}{
		{2 * gib, 5 * gib, false, "takes about 7168 MiB, and of the 9216 MiB that lbd may use (GOMEMLIMIT) data takes 2048, and other requests, with those that have just ended, 1024"},
		{2 * gib, 6 * gib, true, "takes about 8192 MiB, and of the 9216 MiB that lbd may use (GOMEMLIMIT) data takes 2048: a retry does not help"},
	} {
		err, refused := errors.AsType[*MemoryError](m.Reserve(tt.n, tt.own))
		if !refused || err.Never() != tt.never || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%d besides %d: %v", tt.n, tt.own, err)
		}
	}
}

// Sources that lack memory get it in order, and requests leave it to them, as long as they try again and the data leaves
// enough. A try collects garbage only if that can help.
func TestSourcesReserveMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var live, collections uint64
		m := NewMemoryBudget(1000, func() (uint64, uint64) { return live, collections }, func() { collections++ }) // of 900
		try := func(source string, n int64, ok bool, collects uint64) {
			t.Helper()
			before, reserve := collections, func() error { return m.ReserveSource(source, n) }
			if source == "" {
				reserve = func() error { return m.Reserve(n, 0) }
			}
			err := reserve()
			if (err == nil) != ok || collections-before != collects {
				t.Errorf("%s reserves %d after %d collections: %v", source, n, collections-before, err)
			}
			time.Sleep(RetryPause)
		}
		counted := func(want uint64) {
			t.Helper()
			if _, _, n := m.Reserved(); n != want {
				t.Errorf("%d sources waited, not %d", n, want)
			}
		}
		try("", 800, true, 0)
		try("a", 300, false, 1)
		try("b", 400, false, 1)
		try("a", 300, false, 0)
		m.Release(500)
		try("b", 400, false, 1) // leaves 300 to a
		try("", 300, false, 1)  // leaves 700 to both
		try("a", 300, true, 0)
		try("b", 400, false, 0)
		try("", 100, false, 1)
		m.Release(300)
		try("b", 400, true, 1)
		try("", 200, true, 0)
		m.Release(900)
		counted(2)

		live, collections = 700, collections+1
		try("c", 300, false, 1)
		try("", 100, true, 0)
		m.Release(100)
		for range 10 {
			try("c", 300, false, 0) // the data leaves too little
		}
		try("", 100, true, 0) // nothing is left to c
		m.Release(100)
		live, collections = 500, collections+1
		try("", 200, false, 1)
		time.Sleep(Calm) // c has not tried again
		try("", 200, true, 0)
		counted(3)
		m.Release(200)

		turns := NewTurns(1)
		turns.Memory, turns.Monitor = m, NewMonitor(nil)
		defer turns.Monitor.Close()
		if release, err := turns.ReserveSource("d", SmallWork, 1); err != nil {
			t.Error(err)
		} else {
			release()
		}
		if _, err := turns.ReserveSource("d", SmallWork+1, 3); !errors.As(err, new(*MemoryError)) {
			t.Errorf("more than there is: %v", err)
		}
		if s := turns.Monitor.Current(); len(s) != 1 || s[0].Resource != SourceMemory || !strings.HasPrefix(s[0].Err.Error(), "d: takes about") {
			t.Errorf("the shortages are %v", s)
		}
	})
}

// Reserve asks the request of its context, for what is not small.
func TestReserve(t *testing.T) {
	var reserved int64
	ctx := WithReserve(t.Context(), func(n int64) error {
		reserved += n
		return context.Canceled
	})
	for _, tt := range []struct {
		ctx   context.Context
		bytes int
		err   error
		total int64
	}{
		{t.Context(), 1 << 30, nil, 0},
		{ctx, SmallWork, nil, 0},
		{ctx, SmallWork + 1, context.Canceled, SmallWork + 1},
	} {
		if err := Reserve(tt.ctx, tt.bytes); err != tt.err || reserved != tt.total { //nolint:errorlint // it is returned as it is
			t.Errorf("%d bytes: %v, %d", tt.bytes, err, reserved)
		}
	}
}
