package client

import "github.com/lbd-dev/lbd/xds/resource"

// Event is something that happened between the client and its servers. Servers are
// named by their URIs.
type Event interface{ event() }

// Connected is a server's first answer on a new stream. A server that has nothing
// to say, because what was asked for is what it sent before, counts as one that
// answered when it has kept the stream for 15 s.
type Connected struct {
	Server string
}

// Disconnected is the end of a stream, or of an attempt to open one.
type Disconnected struct {
	Server string
	// Answered says that the server had answered on it: it may well have been in
	// good order.
	Answered bool
	Err      error
}

// Rejected is a resource that was NACKed, for a reason that is not the last one.
type Rejected struct {
	Server  string
	Key     resource.Key // without a name where that cannot be read
	Version string
	Err     error
}

// FellBack reports that targets go on to the next server of an authority (gRFC A71).
// Targets that do so for the same reason at the same time share the event.
type FellBack struct {
	Targets   []string
	Authority string // "" for names without one
	From, To  string
	Err       error // why From cannot be reached
}

// Returned reports that a more preferred server of an authority has resources of
// targets again, and that they stop using those after it.
type Returned struct {
	Targets   []string
	Authority string
	From, To  string
}

// DataError is a resource that a server deleted, or for which it reported an error
// that is not the last one. It follows gRFC A88. That a resource which the server never
// sent does not exist is not reported.
type DataError struct {
	Server string
	Key    resource.Key
	Err    error // a *NotFoundError or a *ResourceError
	Cached bool  // the last good value stays in use
}

func (Connected) event()    {}
func (Disconnected) event() {}
func (Rejected) event()     {}
func (FellBack) event()     {}
func (Returned) event()     {}
func (DataError) event()    {}

// move is targets that go from one server of an authority to another in one step.
type move struct {
	authority *authorityConfig
	from, to  *server
	targets   []string
}

// moved records that a target goes to another server. It is for the owner.
func (c *Client) moved(a *authority, from, to *server) {
	for _, m := range c.moves {
		if m.authority == a.key.config && m.from == from && m.to == to {
			m.targets = append(m.targets, a.key.target)
			return
		}
	}
	c.moves = append(c.moves, &move{authority: a.key.config, from: from, to: to, targets: []string{a.key.target}})
}

// publishMoves publishes what moved recorded since the last call. It is for the
// owner.
func (c *Client) publishMoves() {
	for _, m := range c.moves {
		from, to := m.from.config.URI, m.to.config.URI
		if m.authority.place(m.to) < m.authority.place(m.from) {
			c.tell(Returned{Targets: m.targets, Authority: m.authority.name, From: from, To: to})
		} else {
			c.tell(FellBack{Targets: m.targets, Authority: m.authority.name, From: from, To: to, Err: m.from.failed})
		}
	}
	c.moves = nil
}
