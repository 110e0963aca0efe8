//go:build !linux

package eventloop

import (
	"errors"
	"net"

	"github.com/lbd-dev/lbd/api/listen"
)

// Supported says that loops are supported on this system.
const Supported = false

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
