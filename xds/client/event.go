package client

import "github.com/lbd-dev/lbd/xds/resource"

// Event is something that happened between the client and its servers. Servers are
// named by their URIs.
type Event interface{ event() }

// Connected is a server's first response on a new stream. A server that need not
// respond, because it sent all requested resources on an earlier stream, counts as
// connected after 15 s.
type Connected struct {
	Server string
}

// Disconnected is the end of a stream, or of an attempt to open one.
type Disconnected struct {
	Server string
	// Answered is true if the server had responded on the stream.
	Answered bool
	Err      error
}

// Rejected is a resource that was rejected (NACK). A resource whose last version was
// rejected for the same reason is not reported again.
type Rejected struct {
	Server  string
	Key     resource.Key
	Version string
	Err     error
}

// DataError is a resource that a server deleted, or for which it reported a new error
// (gRFC A88). A resource that the server never sent, and that does not exist, is not
// reported.
type DataError struct {
	Server string
	Key    resource.Key
	Err    error // a *NotFoundError or a *ResourceError
	Cached bool  // the last good value stays in use
}

// FellBack reports that targets use the next server of an authority (gRFC A71).
// Targets that fall back for the same reason at the same time share the event.
type FellBack struct {
	Targets   []string
	Authority string // "" for names without one
	From, To  string
	Err       error // why From is unreachable
}

// Returned reports that targets use a preferred server of an authority again, and no
// longer those after it.
type Returned struct {
	Targets   []string
	Authority string
	From, To  string
}

func (Connected) event()    {}
func (Disconnected) event() {}
func (Rejected) event()     {}
func (FellBack) event()     {}
func (Returned) event()     {}
func (DataError) event()    {}
