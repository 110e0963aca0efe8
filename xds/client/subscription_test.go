package client

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// TestSearchSubscriptions runs every interleaving of events between one client and one
// server, for each kind of server. From each state that is reached, the messages in flight
// arrive. Then each subscribed resource that exists must have been delivered since it was
// subscribed last, the timeout must run for the others, and the server must have the
// client's list.
func TestSearchSubscriptions(t *testing.T) {
	deeper := 0
	if os.Getenv("LBD_TEST_LONG") != "" {
		deeper = 2
	}
	for _, scenario := range []struct {
		exist     string // one digit a name: 1 if it exists
		behaviors []behavior
		limits    limits
		depth     int
	}{
		{exist: "11", behaviors: behaviors, limits: limits{updates: 1, disconnects: 1}, depth: 11},
		{exist: "10", behaviors: behaviors, limits: limits{updates: 2}, depth: 10},
		{exist: "111", behaviors: behaviors[:3], limits: limits{updates: 1, disconnects: 1}, depth: 9},
	} {
		for i := range scenario.behaviors {
			b := &scenario.behaviors[i]
			t.Run(scenario.exist+" "+b.name, func(t *testing.T) {
				t.Parallel()
				depth := scenario.depth + deeper
				search(t, newSubscriptionModel(scenario.exist, b, scenario.limits), depth)
			})
		}
	}
}

// Removed names must not accumulate on a stream that lasts for months.
func TestRemovedNamesExpire(t *testing.T) {
	subs, now := newSubscriptions(eds), time.Now()
	for i := range 100 {
		name := fmt.Sprint(i)
		subs.subscribe(name)
		subs.nextRequest(nil, now)
		subs.unsubscribe(name)
		subs.nextRequest(nil, now)
		now = now.Add(removalMemory / 10)
	}
	if n := len(subs.removed); n < 9 || n > 12 {
		t.Errorf("%d of 100 names are stored", n)
	}
}
