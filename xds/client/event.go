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

// FellBack is that an authority goes on to its next server (gRFC A71).
type FellBack struct {
	Authority string // "" is that of names without one
	From, To  string
	Err       error // why From cannot be reached
}

// Returned is that a server of an authority answers again, and those after it are
// let go.
type Returned struct {
	Authority string
	From, To  string
}

// DeletionIgnored is that a server which is told to be ignored in this
// (ignore_resource_deletion, gRFC A53) no longer sends a resource.
type DeletionIgnored struct {
	Server string
	Key    resource.Key
}

func (Connected) event()       {}
func (Disconnected) event()    {}
func (Rejected) event()        {}
func (FellBack) event()        {}
func (Returned) event()        {}
func (DeletionIgnored) event() {}
