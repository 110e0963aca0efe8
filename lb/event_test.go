package lb_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
)

// TestConnectionEvents: every change of a connection is an event of its cluster,
// and of real connections only: what outlier detection tells a policy is none.
func TestConnectionEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		board := newSwitchboard()
		o := options(board)
		o.Events = func(e policy.Event) {
			if e, ok := e.(policy.ConnectionChanged); ok {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, fmt.Sprintf("%s %s %v→%v %v", e.Cluster, e.Address, e.From, e.To, e.Err))
			}
		}
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			got = nil
		}
		c := lb.NewChannel(o)
		board.set(true, "a-0:80")
		offer(t, c, config(nil, 10, locality("a", 0, 1, 1)))
		expect("orders a-0:80 IDLE→CONNECTING <nil>", "orders a-0:80 CONNECTING→READY <nil>")
		time.Sleep(2 * time.Second) // it lives long enough to be no failed attempt
		board.set(false, "a-0:80")
		expect("orders a-0:80 READY→IDLE connect to a-0:80: connection refused",
			"orders a-0:80 IDLE→CONNECTING <nil>",
			"orders a-0:80 CONNECTING→TRANSIENT_FAILURE connect to a-0:80: connection refused")
		c.Close()
		expect() // no word of connections that are shut down
	})
}
