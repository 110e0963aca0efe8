//go:build !linux

package probe

import (
	"errors"
	"net"
	"net/netip"
	"time"
)

// Poller is only available on Linux.
type Poller struct{}

// NewPoller returns [errors.ErrUnsupported].
func NewPoller(func(netip.AddrPort) error) (*Poller, error) { return nil, errors.ErrUnsupported }

// Probe does nothing.
func (*Poller) Probe(netip.AddrPort, time.Duration, Target) {}

// Hold returns false.
func (*Poller) Hold(*net.TCPConn, Holder) (int32, bool) { return 0, false }

// Release does nothing.
func (*Poller) Release(int32, Holder) {}

// Close does nothing.
func (*Poller) Close() {}
