//go:build !linux

package eventloop

import (
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/lbd-dev/lbd/api/connections"
	"github.com/lbd-dev/lbd/api/listen"
)

// Supported says that loops are supported on this system.
const Supported = false

// Options configure a Server.
type Options struct {
	Routes

	Loops                                  int
	Limiter                                *connections.Limiter
	HandOver                               func(net.Listener) error
	ReadTimeout, IdleTimeout, WriteTimeout time.Duration
	Logger                                 *slog.Logger
}

// Server serves nothing on this system.
type Server struct{}

// New is not supported on this system.
func New(Options) (*Server, error) { return nil, errors.ErrUnsupported }

// Take is not supported on this system.
func Take(net.Listener, bool) (net.Listener, error) { return nil, errors.ErrUnsupported }

// Serve is not supported on this system.
func (*Server) Serve(*listen.Listener) error { return errors.ErrUnsupported }

// Close does nothing.
func (*Server) Close() error { return nil }
