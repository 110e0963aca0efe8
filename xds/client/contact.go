package client

import (
	"sync/atomic"
	"time"
)

// contact is what is known of the connection to a server, also while no target uses
// it.
type contact struct {
	connected atomic.Bool // the owner writes it

	// owner only
	since   time.Time // when connected became what it is; zero before the first attempt ended
	err     error     // how the last stream, or the last attempt to open one, ended
	errTime time.Time
}

func (c *contact) set(connected bool) {
	if c.connected.Swap(connected) != connected {
		c.since = time.Now()
	}
}

func (c *contact) fail(err error, at time.Time) {
	c.err, c.errTime = err, at
	if c.since.IsZero() {
		c.since = at
	}
}
