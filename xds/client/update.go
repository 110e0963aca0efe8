package client

import (
	"fmt"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Update is news of one resource that a target wants.
type Update struct {
	// Target is the one that wants the resource, as it was given to Want.
	Target string
	// Item has the Key always, with the name as it was wanted; the value and Raw
	// only where Err is nil. Equal values are the same pointer, also for several
	// targets.
	resource.Item
	// Server is the URI of the server that provided the value, or that caused Err;
	// empty where no server can be asked. Fallback says that it is not the first of
	// its authority: those before it cannot be reached, and may know better.
	Server   string
	Fallback bool
	// Version is the version_info of the response that the last good value came
	// with; empty while there is none.
	Version string
	// Updated is when the resource became what it is: the last good value's time
	// where there is one.
	Updated time.Time
	// Err is a *NotFoundError, a *SilentError, a *RejectedError or an
	// *UnreachableError; nil with a value.
	Err error
	// Ambient says that Err leaves the last good value in use. Otherwise there is
	// none, or no more.
	Ambient bool
}

// NotFoundError is a resource that the server does not have. It can be trusted: the
// server spoke.
type NotFoundError struct {
	Key resource.Key
	// Server is its URI. It is empty where no server can be asked for such a name:
	// one that is empty, not UTF-8, or "*", which would ask for everything.
	Server string
	// Expired says that the server did not send the resource within the time that
	// it is given; else a response was without it.
	Expired bool
}

// Error names the resource and the server.
func (e *NotFoundError) Error() string {
	if e.Server == "" {
		return fmt.Sprintf("%s of name %q does not exist: no management server can be asked for that name", e.Key.Type, e.Key.Name)
	}
	if e.Expired {
		return fmt.Sprintf("%s does not exist: management server %q did not send it within %v", e.Key, e.Server, watchExpiry)
	}
	return fmt.Sprintf("%s does not exist: management server %q no longer sends it", e.Key, e.Server)
}

// SilentError is a resource that a server did not send within the time that it is
// given, nor anything else since the stream was opened: gRPC takes it for one that
// does not exist, but a server that hangs is silent, too. Once the server says
// anything it has its time anew, and the resource comes, or a NotFoundError does.
type SilentError struct {
	Key    resource.Key
	Server string // its URI
}

// Error names the resource and the server.
func (e *SilentError) Error() string {
	return fmt.Sprintf("%s is not known to exist: management server %q, which is connected, has sent nothing within %v", e.Key, e.Server, watchExpiry)
}

// RejectedError is a resource that breaks rules: it was NACKed.
type RejectedError struct {
	Key     resource.Key
	Server  string // its URI
	Version string // of the response that it came in
	Err     error  // a *resource.InvalidError or *resource.SyntaxError
}

// Error names the server; the reason names the resource.
func (e *RejectedError) Error() string {
	return fmt.Sprintf("refused what management server %q sent: %v", e.Server, e.Err)
}

// Unwrap returns the reason.
func (e *RejectedError) Unwrap() error { return e.Err }

// UnreachableError is that no server of a resource's authority speaks, or that it
// has none. What is known may be out of date.
type UnreachableError struct {
	Server string // the last that was tried; empty where there is none
	Err    error
}

// Error names the server and says how it was tried.
func (e *UnreachableError) Error() string {
	if e.Server == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("management server %q cannot be reached: %v", e.Server, e.Err)
}

// Unwrap returns how it was tried.
func (e *UnreachableError) Unwrap() error { return e.Err }
