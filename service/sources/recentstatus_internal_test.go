package sources

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/xds/client"
)

// While the xDS client is busy, a health probe has its last answer, and soon.
func TestRecentStatusDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recentStatus
		var asked atomic.Int32
		answer := func(uri string, after time.Duration) func() client.Status {
			return func() client.Status {
				asked.Add(1)
				time.Sleep(after)
				return client.Status{Servers: []client.ServerStatus{{URI: uri}}}
			}
		}
		check := func(ask func() client.Status, want string, within time.Duration) {
			t.Helper()
			began := time.Now()
			var got strings.Builder
			for _, s := range r.get(ask, probePatience).Servers {
				got.WriteString(s.URI)
			}
			if got.String() != want || time.Since(began) != within {
				t.Errorf("got %q after %v, want %q after %v", got.String(), time.Since(began), want, within)
			}
		}
		check(answer("busy", time.Minute), "", probePatience)
		check(answer("second question", 0), "", probePatience)
		time.Sleep(time.Minute)
		synctest.Wait()
		check(answer("a", 0), "a", 0)
		check(answer("b", probePatience/2), "b", probePatience/2)
		check(answer("c", time.Hour), "b", probePatience)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := asked.Load(); n != 4 {
			t.Errorf("the client was asked %d times, want 4", n)
		}
	})
}
