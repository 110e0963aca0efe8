package observe

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Subscribers are notified in groups, and each of them though it is slow.
func TestSubscribersAreNotifiedInGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := &subscribers{pace: newPace()}
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
					notified[time.Since(begin)]++
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
