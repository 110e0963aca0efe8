package client

import (
	"fmt"
	"testing"
	"time"
)

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
