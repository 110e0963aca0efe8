package overlays_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service/overlays"
)

// TestExpiry: the clock is looked at every minute, because it may be set. Close waits for a call, and none
// comes after it.
func TestExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var e overlays.Expiry
		var calls, running atomic.Int64
		e.Expire = func() {
			running.Add(1)
			calls.Add(1)
			time.Sleep(10 * time.Second)
			running.Add(-1)
		}
		e.Set(time.Now().Add(time.Hour))
		time.Sleep(61 * time.Second)
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls after a minute", n)
		}
		e.Set(time.Now().Add(time.Minute))
		e.Set(time.Time{})
		time.Sleep(time.Hour)
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls after none was set", n)
		}
		e.Set(time.Now().Add(-time.Hour))
		synctest.Wait()
		e.Close()
		if n := running.Load(); n != 0 {
			t.Errorf("%d calls run after Close", n)
		}
		e.Set(time.Now())
		time.Sleep(time.Minute)
		if n := calls.Load(); n != 2 {
			t.Errorf("%d calls at the end", n)
		}
	})
}
