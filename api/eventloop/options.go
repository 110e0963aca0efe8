package eventloop

import (
	"log/slog"
	"net"
	"time"

	"github.com/lbd-dev/lbd/api/connections"
)

// Options configure a Server.
type Options struct {
	Routes

	// Loops is the number of event loops.
	Loops int
	// Limiter admits connections.
	Limiter *connections.Limiter
	// HandOver serves a listener of connections that loops hand over, until it is closed. It is the
	// method Serve of an http.Server, which the caller closes after the Server.
	HandOver func(net.Listener) error
	// The timeouts of a connection: until a request is complete, between requests, and until a
	// response is read.
	ReadTimeout, IdleTimeout, WriteTimeout time.Duration
	Logger                                 *slog.Logger
}
