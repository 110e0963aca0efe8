package observe

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Callers that come at once have turns one after the other; few callers do not wait.
func TestPacerSpreadsTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pacer{begin: time.Now()}
		const callers = 1000
		turns := make(map[time.Duration]int)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				if err := p.wait(t.Context(), 1); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				turns[time.Since(p.begin)]++
			})
		}
		wg.Wait()
		if last := time.Since(p.begin); turns[0] != paceBurst+1 || len(turns) != callers-paceBurst || last != (callers-paceBurst-1)*paceInterval {
			t.Errorf("%d turns at once, %d later, the last after %v", turns[0], len(turns)-1, last)
		}
		time.Sleep(time.Second)
		before := time.Now()
		for range paceBurst {
			if err := p.wait(t.Context(), 1); err != nil || time.Since(before) > 0 {
				t.Errorf("few callers wait: %v, %v", time.Since(before), err)
			}
		}
	})
}

func TestPacerEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pacer{begin: time.Now()}
		ended := errors.New("ended")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(ended)
		var err error
		for range paceBurst + 2 {
			err = p.wait(ctx, 1)
		}
		if !errors.Is(err, ended) {
			t.Errorf("%v", err)
		}
	})
}

// Subscribers are notified in groups, and each of them though it is slow.
func TestSubscribersAreNotifiedInGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &subscribers{pace: &pacer{begin: time.Now()}}
		const watchers = 100
		notified := make(map[time.Duration]int)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range watchers {
			w := s.add()
			wg.Add(1)
			w.notifyWith(func() {
				go func() {
					defer wg.Done()
					w.close()
					mu.Lock()
					defer mu.Unlock()
					notified[time.Since(s.pace.begin)]++
				}()
			})
		}
		last := s.add() // is not notified yet
		s.notify(t.Context())
		wg.Wait()
		for at, n := range notified {
			if n > 2*paceBurst {
				t.Errorf("%d watchers are notified at %v", n, at)
			}
		}
		if len(notified) < watchers/(2*paceBurst) {
			t.Errorf("all watchers are notified at %d moments", len(notified))
		}
		n := 0
		last.notifyWith(func() { n++ })
		s.notify(t.Context())
		if n != 1 {
			t.Errorf("a watcher is notified %d times", n)
		}
		if last.close(); len(s.all) > 0 {
			t.Errorf("%d watchers are left", len(s.all))
		}
	})
}
