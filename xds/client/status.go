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

// The states of resources, as in gRFC A88.
const (
	// Requested is neither received nor known to be missing.
	Requested State = "requested"
	// Acked is received and good.
	Acked State = "acked"
	// Nacked was refused, and there is no good one from before.
	Nacked State = "nacked"
	// NackedButCached was refused, and the last good one is in use.
	NackedButCached State = "nacked_but_cached"
	// DoesNotExist was not sent in time, or no longer is sent.
	DoesNotExist State = "does_not_exist"
	// DoesNotExistButCached is no longer sent, and the last good one is in use.
	DoesNotExistButCached State = "does_not_exist_but_cached"
	// Timeout was not sent in time by a server that has sent nothing at all, or that
	// has the feature resource_timer_is_transient_error.
	Timeout State = "timeout"
	// ReceivedError is a resource for which the server reported an error.
	ReceivedError State = "received_error"
	// ReceivedErrorButCached is one of which the last good one is in use.
	ReceivedErrorButCached State = "received_error_but_cached"
)

// unknown reports whether a resource is neither cached nor known not to exist, so that
// a target falls back for it (gRFC A71). A server that did not send it in time and said
// nothing else, or that would have reported that it does not exist, leaves it unknown.
func (s State) unknown() bool { return s == Requested || s == Timeout }

// stateOf returns the state of a resource with an error.
func stateOf(err error, cached bool) State {
	switch e := err.(type) { //nolint:errorlint // it is never wrapped
	case *RejectedError:
		return either(cached, NackedButCached, Nacked)
	case *NotFoundError:
		if e.Reported {
			return either(cached, ReceivedErrorButCached, ReceivedError)
		}
		return either(cached, DoesNotExistButCached, DoesNotExist)
	case *ResourceError:
		return either(cached, ReceivedErrorButCached, ReceivedError)
	default:
		return Timeout
	}
}

func either(cached bool, kept, lost State) State {
	if cached {
		return kept
	}
	return lost
}

// Status is all that the client knows but the resources' contents.
type Status struct {
	// Servers are those of all authorities, in order of authority and fallback; a
	// server that two authorities have is there twice.
	Servers []ServerStatus
	// Targets are those that want something, once for each authority that they
	// want it of: those that use a fallback server first, then by name.
	Targets []TargetStatus
	// Resources are those that are wanted, by type, name and target.
	Resources []ResourceStatus
	// Updates counts resources received since the start, each once for all targets
	// that want it, and rejected ones without a name.
	Updates map[UpdateCount]uint64
	// Unapplied are the fields that lbd does not apply and that resources in use have,
	// by type and field.
	Unapplied []UnappliedField
}

// ServerStatus is one server of an authority.
type ServerStatus struct {
	URI       string
	Authority string // "" is that of names without one
	// Connected is true while a target uses it, and it has answered on the current
	// stream.
	Connected bool
	// Targets is how many targets use it; Waiting is how many use a less preferred
	// one until it answers again.
	Targets, Waiting int
	// Since is when Connected became what it is; zero where the server was never
	// tried.
	Since time.Time
	// LastError is how the last stream, or the last attempt to open one, ended,
	// and LastErrorAt when; nil if none has.
	LastError   error
	LastErrorAt time.Time
}

// TargetStatus is a target and the server that it uses for the names of one
// authority.
type TargetStatus struct {
	Target    string
	Authority string // "" for names without one
	// Server is the URI of the one in use; empty where the bootstrap has none.
	Server string
	// Fallback is true where Server is not the first of the authority.
	Fallback bool
	// Connected is true while a server that the target uses, or waits for, has
	// answered on its current stream.
	Connected bool
	// Resources is how many are wanted; Requested is how many of them are neither
	// cached nor known to be missing.
	Resources, Requested int
}

// ResourceStatus is one resource that a target wants.
type ResourceStatus struct {
	Target    string
	Key       resource.Key
	Authority string
	Server    string // the URI of the server that the target uses
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
		slices.SortFunc(s.Targets, compareTargets)
		slices.SortFunc(s.Unapplied, compareUnapplied)
		slices.SortFunc(s.Resources, func(x, y ResourceStatus) int {
			return cmp.Or(cmp.Compare(x.Key.Type, y.Key.Type), cmp.Compare(x.Key.Name, y.Key.Name), cmp.Compare(x.Target, y.Target))
		})
		return s
	case <-c.done:
		return Status{}
	}
}

func compareTargets(x, y TargetStatus) int {
	if x.Fallback != y.Fallback {
		if x.Fallback {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(x.Target, y.Target), cmp.Compare(x.Authority, y.Authority))
}

// status is for the owner. What it returns is in no order.
func (c *Client) status() Status {
	s := Status{Updates: maps.Clone(c.counts), Unapplied: c.unappliedFields()}
	n := 0
	for _, a := range c.authorities {
		n += len(a.watches)
	}
	s.Resources = make([]ResourceStatus, 0, n)
	s.Targets = make([]TargetStatus, 0, len(c.authorities))
	usedBy := make(map[*authorityConfig][]int) // targets by the place of the active server
	for _, a := range c.authorities {
		config := a.key.config
		if usedBy[config] == nil {
			usedBy[config] = make([]int, len(config.servers))
		}
		if a.active() != none {
			usedBy[config][a.active()]++
		}
		s.Targets = append(s.Targets, a.status())
		for _, w := range a.watches {
			s.Resources = w.appendStatus(s.Resources)
		}
	}
	for _, config := range c.configs {
		s.Servers = c.appendServers(s.Servers, config, usedBy[config])
	}
	return s
}

func (a *authority) status() TargetStatus {
	s := TargetStatus{
		Target: a.key.target, Authority: a.key.config.name, Fallback: a.active() > 0,
		Connected: a.connected.Load(), Resources: len(a.watches), Requested: a.requested,
	}
	if current := a.current(); current != nil {
		s.Server = current.config.URI
	}
	return s
}

func (c *Client) appendServers(list []ServerStatus, config *authorityConfig, usedBy []int) []ServerStatus {
	for i, s := range config.servers {
		known := c.contacts[s.Key()]
		status := ServerStatus{
			URI:         s.URI,
			Authority:   config.name,
			Connected:   known.connected.Load(),
			Since:       known.since,
			LastError:   known.err,
			LastErrorAt: known.errTime,
		}
		for place, n := range usedBy {
			switch {
			case place == i:
				status.Targets = n
			case place > i:
				status.Waiting += n
			}
		}
		list = append(list, status)
	}
	return list
}
