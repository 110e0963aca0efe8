package client

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Status is the state of the client, without the contents of resources.
type Status struct {
	// Servers are those of all authorities, by authority and order of fallback. A server
	// of two authorities is listed twice.
	Servers []ServerStatus
	// Targets are those that want a resource, once for each authority of their
	// resources: first those that use a fallback server, then by name.
	Targets []TargetStatus
	// Resources are those that are wanted, by type, name and target.
	Resources []ResourceStatus
	// Updates counts received resources since the start, each once for all targets that
	// want it, and rejected ones without a name.
	Updates map[UpdateCount]uint64
	// Unapplied are the fields of resources in use that lbd does not apply, by type and
	// field.
	Unapplied []UnappliedField
}

// ServerStatus is one server of an authority.
type ServerStatus struct {
	URI       string
	Authority string // "" for names without one
	// Connected is true while a target uses the server and it has responded on the
	// current stream.
	Connected bool
	// Targets is the number of targets that use it; Waiting the number of those that use
	// a less preferred one until it responds again.
	Targets, Waiting int
	// Since is the time of the last change of Connected; zero if the server was never
	// tried.
	Since time.Time
	// LastError is the error of the last stream, or of the last attempt to open one, at
	// LastErrorAt; nil if there is none.
	LastError   error
	LastErrorAt time.Time
}

// TargetStatus is the server that a target uses for the names of one authority.
type TargetStatus struct {
	Target string `json:"target" example:"xds:///orders"`
	// Authority is absent for names without one.
	Authority string `json:"authority,omitempty"`
	// Server is the URI of the server in use; absent if the bootstrap has none.
	Server string `json:"server,omitempty"`
	// Fallback is true if server is not the first of its authority (gRFC A71).
	Fallback bool `json:"fallback"`
	// Connected: a server that the target uses, or waits for, answered on its
	// current stream.
	Connected bool `json:"connected"`
	// Resources counts its subscriptions; Requested counts those without an answer.
	Resources int `json:"resources"`
	Requested int `json:"requested"`
}

// ResourceStatus is one resource that a target wants.
type ResourceStatus struct {
	Target    string
	Key       resource.Key
	Authority string
	Server    string // the URI of the server that the target uses
	State     State
	// Version and Updated are those of the last good value; Version is empty if there is
	// none.
	Version string
	Updated time.Time
	// Rejection is set if the last response was rejected.
	Rejection *Rejection
	// Err is that of the last update.
	Err error
}

// Status returns a consistent state. It does not wait for OnUpdate. After Close it is
// empty. Options.Events must not call it.
func (c *Client) Status() Status {
	s := fromOwner(c.ctx, c, c.status)
	slices.SortStableFunc(s.Servers, func(x, y ServerStatus) int { return cmp.Compare(x.Authority, y.Authority) })
	slices.SortFunc(s.Targets, compareTargets)
	slices.SortFunc(s.Unapplied, func(x, y UnappliedField) int {
		return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(x.Field, y.Field))
	})
	slices.SortFunc(s.Resources, func(x, y ResourceStatus) int {
		return cmp.Or(cmp.Compare(x.Key.Type, y.Key.Type), cmp.Compare(x.Key.Name, y.Key.Name), cmp.Compare(x.Target, y.Target))
	})
	return s
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

// status returns the state in no order. Owner only.
func (c *Client) status() Status {
	s := Status{Updates: maps.Clone(c.pool.counts), Unapplied: c.cache.unapplied.list()}
	servers := make(map[*authorityConfig][]ServerStatus, len(c.configs))
	for _, config := range c.configs {
		servers[config] = c.serverStatus(config)
	}
	for _, a := range c.authorities {
		for i := range a.channels {
			if server := &servers[a.key.config][i]; i == a.active() {
				server.Targets++
			} else {
				server.Waiting++
			}
		}
		status := a.status()
		s.Targets = append(s.Targets, status)
		for _, w := range a.watchers {
			s.Resources = w.appendStatus(s.Resources, status.Server)
		}
	}
	for _, list := range servers {
		s.Servers = append(s.Servers, list...)
	}
	return s
}

func (c *Client) serverStatus(config *authorityConfig) []ServerStatus {
	list := make([]ServerStatus, 0, len(config.servers))
	for _, s := range config.servers {
		conn := c.pool.connections[s.Key()]
		list = append(list, ServerStatus{
			URI:         s.URI,
			Authority:   config.name,
			Connected:   conn.connected.Load(),
			Since:       conn.since,
			LastError:   conn.err,
			LastErrorAt: conn.errTime,
		})
	}
	return list
}

func (a *authority) status() TargetStatus {
	s := TargetStatus{
		Target: a.key.target, Authority: a.key.config.name, Fallback: a.active() > 0,
		Connected: a.connected.Load(), Resources: len(a.watchers), Requested: a.unknown,
	}
	if ch := a.current(); ch != nil {
		s.Server = ch.server.URI
	}
	return s
}

func (w *watcher) appendStatus(list []ResourceStatus, server string) []ResourceStatus {
	for _, name := range w.names {
		s := ResourceStatus{
			Target:    w.authority.key.target,
			Key:       resource.Key{Type: w.key.Type, Name: name},
			Authority: w.authority.key.config.name,
			Server:    server,
			State:     w.state,
			Version:   w.version,
			Updated:   w.updated,
			Rejection: w.rejection,
		}
		if w.err != nil {
			s.Err = w.err
		}
		list = append(list, s)
	}
	return list
}
