//go:build !linux

package probe

import (
	"errors"
	"net/netip"
	"time"
)

// Poller is only available on Linux.
type Poller struct{}

// NewPoller returns [errors.ErrUnsupported].
func NewPoller(func(netip.AddrPort) error) (*Poller, error) { return nil, errors.ErrUnsupported }

// Probe does nothing.
func (*Poller) Probe(netip.AddrPort, time.Duration, Target) {}

// Close does nothing.
func (*Poller) Close() {}
