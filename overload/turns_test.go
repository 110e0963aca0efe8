package overload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

// turnTest begins work in goroutines, and records the order in which it runs.
type turnTest struct {
	*testing.T
	*Turns

	running atomic.Int64
	mu      sync.Mutex
	order   []string
}

func testTurns(t *testing.T, n int, f func(*turnTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(&turnTest{T: t, Turns: NewTurns(n)}) })
}

// begin begins work, which ends when end is closed; a nil end is at once.
func (t *turnTest) begin(work Work, caller string, end <-chan struct{}) {
	go func() {
		turn, err := t.Begin(t.Context(), work, caller)
		if err != nil {
			t.Error(err)
			return
		}
		t.running.Add(1)
		t.mu.Lock()
		t.order = append(t.order, caller)
		t.mu.Unlock()
		if end != nil {
			<-end
		}
		t.running.Add(-1)
		turn.End()
	}()
	synctest.Wait()
}

func (t *turnTest) ran(want ...string) {
	t.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Equal(t.order, want) {
		t.Errorf("ran %q, want %q", t.order, want)
	}
	for _, work := range Works {
		if s := t.Stats(work); s.Running != 0 || s.Waiting != 0 || t.begun[work] != 0 {
			t.Errorf("%v: %+v, %d begun", work, s, t.begun[work])
		}
	}
	if t.free != t.n {
		t.Errorf("%d turns of %d are left", t.free, t.n)
	}
}

// TestTurns: callers of a kind take turns to begin, and so do the kinds.
func TestTurns(t *testing.T) {
	for _, tt := range []struct {
		name  string
		begin func(*turnTest)
		want  []string
	}{
		{"first come, first served", func(t *turnTest) {
			for i := range 3 {
				t.begin(PushWork, fmt.Sprint("p", i), nil)
			}
		}, []string{"p0", "p1", "p2"}},
		{"a caller with much work", func(t *turnTest) {
			for range 4 {
				t.begin(PushWork, "much", nil)
			}
			t.begin(PushWork, "little", nil)
		}, []string{"much", "little", "much", "much", "much"}},
		{"a flood of pushes", func(t *turnTest) {
			for i := range 3 {
				t.begin(PushWork, fmt.Sprint("p", i), nil)
			}
			t.begin(SourceWork, "server", nil)
			t.begin(SourceWork, "server", nil)
			t.begin(ResponseWork, "reader", nil)
		}, []string{"server", "p0", "reader", "server", "p1", "p2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testTurns(t, 1, func(t *turnTest) {
				end := make(chan struct{})
				t.begin(ResponseWork, "first", end)
				tt.begin(t)
				if n := t.running.Load(); n != 1 {
					t.Errorf("%d run", n)
				}
				close(end)
				synctest.Wait()
				t.ran(append([]string{"first"}, tt.want...)...)
			})
		})
	}
}

// TestTurnsLimitWork: only as much runs as there are turns, and fewer pushes.
func TestTurnsLimitWork(t *testing.T) {
	for _, tt := range []struct {
		turns int
		work  Work
		want  int64
	}{
		{1, PushWork, 1},
		{3, SourceWork, 3},
		{3, ResponseWork, 3},
		{3, PushWork, MaxDecoding},
	} {
		testTurns(t, tt.turns, func(t *turnTest) {
			end := make(chan struct{})
			for range 10 {
				t.begin(tt.work, "caller", end)
			}
			if n := t.running.Load(); n != tt.want {
				t.Errorf("%v with %d turns: %d run, want %d", tt.work, tt.turns, n, tt.want)
			}
			if s := t.Stats(tt.work); s.Running != int(tt.want) || s.Waiting != 10-int(tt.want) {
				t.Errorf("%+v", s)
			}
			time.Sleep(time.Second)
			close(end)
			synctest.Wait()
			if s := t.Stats(tt.work); s.Begun != 10 || s.Waited != time.Duration(10-tt.want)*time.Second {
				t.Errorf("%+v", s)
			}
			t.ran(slices.Repeat([]string{"caller"}, 10)...)
		})
	}
}

// TestTurnsOfCanceledWork: work whose context ends leaves the queue.
func TestTurnsOfCanceledWork(t *testing.T) {
	testTurns(t, 1, func(t *turnTest) {
		end := make(chan struct{})
		t.begin(PushWork, "first", end)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		for _, caller := range []string{"a", "a", "b"} {
			go func() {
				_, err := t.Begin(ctx, PushWork, caller)
				ended <- err
			}()
		}
		synctest.Wait()
		t.begin(PushWork, "a", nil)
		cancel()
		for range 3 {
			if err := <-ended; err != context.Canceled { //nolint:errorlint // it is returned bare
				t.Error(err)
			}
		}
		if s := t.Stats(PushWork); s.Waiting != 1 {
			t.Errorf("%+v", s)
		}
		close(end)
		synctest.Wait()
		t.ran("first", "a")
	})
}

// TestPause: work pauses for other kinds after its time, and not for its own.
func TestPause(t *testing.T) {
	testTurns(t, 1, func(t *turnTest) {
		turn, err := t.Begin(t.Context(), PushWork, "long")
		noError(t, err)
		t.begin(PushWork, "same", nil)
		time.Sleep(2 * turnTime)
		_ = turn.Pause()
		time.Sleep(turnTime / 2)
		end := make(chan struct{})
		t.begin(SourceWork, "server", end)
		_ = turn.Pause() // its time has begun again
		if n := t.running.Load(); n != 0 {
			t.Errorf("%d run beside it", n)
		}
		time.Sleep(turnTime)
		go close(end)
		_ = turn.Pause()
		t.mu.Lock()
		if !slices.Equal(t.order, []string{"server"}) {
			t.Errorf("ran %q during a pause", t.order)
		}
		t.mu.Unlock()
		turn.End()
		synctest.Wait()
		t.ran("server", "same")
	})
}

// TestPauseGivesTheTurnToAnother: with more turns than one, too, work that pauses does not get its own
// turn back.
func TestPauseGivesTheTurnToAnother(t *testing.T) {
	testTurns(t, 2, func(t *turnTest) {
		long, err := t.Begin(t.Context(), PushWork, "long")
		noError(t, err)
		end := make(chan struct{})
		t.begin(SourceWork, "server", end)
		t.begin(ResponseWork, "reader", end)
		time.Sleep(turnTime)
		var resumed atomic.Bool
		go func() {
			_ = long.Pause()
			resumed.Store(true)
			long.End()
		}()
		synctest.Wait()
		if n := t.running.Load(); n != 2 || resumed.Load() {
			t.Errorf("%d run while it pauses, and it has paused: %v", n, resumed.Load())
		}
		close(end)
		synctest.Wait()
		t.ran("server", "reader")
	})
}

// TestTurnBeginsAfterTheWait: the time of a turn does not include the wait for it.
func TestTurnBeginsAfterTheWait(t *testing.T) {
	testTurns(t, 1, func(t *turnTest) {
		end := make(chan struct{})
		t.begin(SourceWork, "first", end)
		go func() {
			turn, err := t.Begin(t.Context(), PushWork, "second")
			if err != nil {
				t.Error(err)
				return
			}
			time.Sleep(turnTime / 2)
			_ = turn.Pause()
			t.mu.Lock()
			if !slices.Equal(t.order, []string{"first"}) {
				t.Errorf("ran %q during a pause", t.order)
			}
			t.mu.Unlock()
			turn.End()
		}()
		synctest.Wait()
		t.begin(ResponseWork, "third", nil)
		time.Sleep(10 * turnTime)
		close(end)
		time.Sleep(turnTime)
		synctest.Wait()
		t.ran("first", "third")
	})
}

// TestPauseYields: other goroutines run during a pause, but not of each call.
func TestPauseYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	turn, err := NewTurns(1).Begin(t.Context(), PushWork, "")
	noError(t, err)
	defer turn.End()
	const pauses = 1000
	var end atomic.Bool
	var other sync.WaitGroup
	turns := 0
	other.Go(func() {
		for ; !end.Load(); turns++ {
			runtime.Gosched()
		}
	})
	for range pauses {
		turn.yielded = time.Now().Add(-yieldTime)
		_ = turn.Pause()
	}
	end.Store(true)
	other.Wait()
	if turns < pauses/2 { // preemption, after 10 ms, is far rarer
		t.Errorf("another goroutine had %d turns in %d pauses", turns, pauses)
	}
	before := time.Now().Add(time.Hour)
	turn.yielded = before
	if _ = turn.Pause(); turn.yielded != before {
		t.Error("it paused before its time")
	}
}

// TestNoTurns: without a budget, and for little, nothing waits.
func TestNoTurns(t *testing.T) {
	var none *Turns
	turns := NewTurns(1)
	if _, err := turns.Begin(t.Context(), PushWork, ""); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*Turns{none, turns} {
		turn, err := b.BeginSized(t.Context(), PushWork, "", SmallWork)
		if turn != nil || err != nil {
			t.Errorf("%v, %v", turn, err)
		}
		_ = turn.Pause()
		turn.End()
	}
	if turn, err := none.Begin(t.Context(), PushWork, ""); turn != nil || err != nil || none.Len() != 0 || none.Stats(PushWork) != (TurnStats{}) {
		t.Errorf("%v, %v", turn, err)
	}
	if n := NewTurns(0).Len(); n < 1 {
		t.Errorf("%d turns", n)
	}
}

// TestTurnsUnderStress: all work ends, whatever pauses, is canceled, or comes at once.
func TestTurnsUnderStress(t *testing.T) {
	for n := 1; n <= 4; n++ {
		turns := NewTurns(n)
		var running atomic.Int64
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				for range 200 {
					ctx, cancel := context.WithCancel(t.Context())
					switch rand.N(4) {
					case 0:
						cancel()
					case 1:
						go cancel()
					default:
					}
					turn, err := turns.Begin(ctx, Works[rand.N(len(Works))], fmt.Sprint(rand.N(3)))
					if err == nil {
						for range rand.N(3) {
							if running.Add(1) > int64(n) {
								t.Errorf("more than %d run", n)
							}
							running.Add(-1)
							turn.since = time.Time{} // its time is over
							turn.yielded = time.Time{}
							_ = turn.Pause()
						}
						turn.End()
					}
					cancel()
				}
			})
		}
		all.Wait()
		if turns.free != n {
			t.Errorf("%d turns of %d are left", turns.free, n)
		}
	}
}

// TestWorkEnds: work that has begun ends when its caller leaves, and when it costs more than its size permits.
func TestWorkEnds(t *testing.T) {
	testTurns(t, 1, func(t *turnTest) {
		ctx, leave := context.WithCancel(t.Context())
		turn, err := t.BeginSized(ctx, PushWork, "a", SmallWork+1)
		if err != nil {
			t.Fatal(err)
		}
		for range minSteps + SmallWork {
			if err := turn.Pause(); err != nil {
				t.Fatal(err)
			}
		}
		if err := turn.Pause(); err != nil {
			t.Errorf("at the end of the budget: %v", err)
		}
		if err := turn.Pause(); !errors.As(err, new(*BudgetError)) {
			t.Errorf("after the budget: %v", err)
		}
		turn.End()
		if turn, err = t.Begin(ctx, TreeWork, "b"); err != nil {
			t.Fatal(err)
		}
		leave()
		time.Sleep(yieldTime)
		if err := turn.Pause(); !errors.Is(err, context.Canceled) {
			t.Errorf("after the caller left: %v", err)
		}
		turn.End()
		t.ran()
	})
}
