package client

import (
	"sync/atomic"
	"time"
)

// connection is the state of the connection to a server. It outlives the channel.
type connection struct {
	connected atomic.Bool // written by the owner

	// owner only
	since   time.Time // of the last change of connected; zero before the end of the first attempt
	err     error     // of the last stream, or of the last attempt to open one
	errTime time.Time
}

func (c *connection) set(connected bool) {
	if c.connected.Swap(connected) != connected {
		c.since = time.Now()
	}
}

func (c *connection) fail(err error, at time.Time) {
	c.err, c.errTime = err, at
	if c.since.IsZero() {
		c.since = at
	}
}
