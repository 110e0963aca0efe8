package client

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// State is how far the client is with a resource.
type State string

// The states of resources.
const (
	// Requested is neither received nor known to be missing.
	Requested State = "requested"
	// Acked is received and good.
	Acked State = "acked"
	// Nacked was refused, and there is no good one from before.
	Nacked State = "nacked"
	// NackedButCached was refused, and the last good one is in use.
	NackedButCached State = "nacked_but_cached"
	// DoesNotExist was sent before, and no longer is.
	DoesNotExist State = "does_not_exist"
	// Timeout was not sent within the time that a server is given.
	Timeout State = "timeout"
)

// Status is all that the client knows but the resources' contents.
type Status struct {
	// Servers are those of all authorities, in order of authority and fallback; a
	// server that two authorities have is there twice.
	Servers []ServerStatus
	// Resources are those that are wanted, by type and name.
	Resources []ResourceStatus
	// Updates counts resources received since the start, those only that are
	// wanted, and refused ones without a name.
	Updates map[UpdateCount]uint64
}

// ServerStatus is one server of an authority.
type ServerStatus struct {
	URI       string
	Authority string // "" is that of names without one
	// Connected says that it answered on the stream that there is.
	Connected bool
	// Active says that it is the one that the authority uses.
	Active bool
	// Since is when Connected became what it is; zero where the server was never
	// tried.
	Since time.Time
	// LastError is how the last stream, or the last attempt to open one, ended,
	// and LastErrorAt when; nil if none has.
	LastError   error
	LastErrorAt time.Time
}

// ResourceStatus is one resource that is wanted.
type ResourceStatus struct {
	Key       resource.Key
	Authority string
	State     State
	// Version and Updated are the last good value's; Version is empty while there
	// is none.
	Version string
	Updated time.Time
	// Rejection is the last response's if that was refused.
	Rejection *Rejection
	// Err is what OnUpdate was told last; nil after a value.
	Err error
}

// Rejection is a NACK of a resource.
type Rejection struct {
	Version string
	Err     error
	At      time.Time
}

// UpdateCount is what is counted.
type UpdateCount struct {
	Server string // its URI
	Type   resource.Type
	Result UpdateResult
}

// UpdateResult is what became of a resource that a server sent.
type UpdateResult string

// The results of updates.
const (
	// UpdateValid changed something downstream.
	UpdateValid UpdateResult = "valid"
	// UpdateInvalid was refused.
	UpdateInvalid UpdateResult = "invalid"
	// UpdateUnchanged was what was there already.
	UpdateUnchanged UpdateResult = "unchanged"
)

// Status returns the state of everything at one moment. It does not wait for
// OnUpdate. After Close it is empty. It must not be called by Events.
func (c *Client) Status() Status {
	answer := make(chan Status, 1)
	c.post(func() { answer <- c.status() })
	select {
	case s := <-answer:
		slices.SortStableFunc(s.Servers, func(x, y ServerStatus) int { return cmp.Compare(x.Authority, y.Authority) })
		slices.SortFunc(s.Resources, func(x, y ResourceStatus) int {
			return cmp.Or(cmp.Compare(x.Key.Type, y.Key.Type), cmp.Compare(x.Key.Name, y.Key.Name))
		})
		return s
	case <-c.done:
		return Status{}
	}
}

// status is for the owner. What it returns is in no order.
func (c *Client) status() Status {
	s := Status{Updates: maps.Clone(c.counts)}
	n := 0
	for _, a := range c.authorities {
		n += a.wanted()
	}
	s.Resources = make([]ResourceStatus, 0, n)
	for _, a := range c.authorities {
		s.Servers = a.appendServers(s.Servers)
		s.Resources = a.appendResources(s.Resources)
	}
	s.Resources = c.unknown.appendResources(s.Resources)
	return s
}
