package client

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/xds/bootstrap"
)

// channelPool has one channel for each server in use.
type channelPool struct {
	channelEnv

	// fixed
	ctx         context.Context
	connections map[string]*connection // of all servers of the bootstrap, by key
	start       func(*xdsChannel)      // starts the transport

	// owner only
	channels map[string]*xdsChannel // by key
}

// get returns the channel of a server. It starts one if the server is not in use.
func (p *channelPool) get(server *bootstrap.Server) *xdsChannel {
	key := server.Key()
	ch := p.channels[key]
	if ch == nil {
		ch = newXDSChannel(p.ctx, &p.channelEnv, server, p.connections[key])
		p.channels[key] = ch
		p.start(ch)
	}
	return ch
}

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
