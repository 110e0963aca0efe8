package client

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

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
	// Err is a *NotFoundError, a *ResourceError, a *RejectedError, a *SilentError, a
	// *TimeoutError or an *UnreachableError; nil with a value.
	Err error
	// Ambient says that Err leaves the last good value in use. Otherwise there is
	// none, or no more.
	Ambient bool
	// Final says that no earlier value may be used, such as one that is kept on disk:
	// Err is a data error of a server with fail_on_data_errors (gRFC A88).
	Final bool
}

// NotFoundError is a resource that the server does not have. It can be trusted: the
// server spoke.
type NotFoundError struct {
	Key resource.Key
	// Server is its URI. It is empty where no server can be asked for such a name:
	// one that is empty, not UTF-8, or "*", which would ask for everything.
	Server string
	// Expired is true if the server did not send the resource in time, Reported if
	// it reported that the resource does not exist, with Message (xRFC TP3). If
	// neither is, a response came without a resource that was there before.
	Expired, Reported bool
	Message           string
}

// Error names the resource and the server.
func (e *NotFoundError) Error() string {
	if e.Server == "" {
		return fmt.Sprintf("%s of name %q does not exist: no management server can be asked for that name", e.Key.Type, e.Key.Name)
	}
	switch {
	case e.Expired:
		return fmt.Sprintf("%s does not exist: management server %q did not send it within %v", e.Key, e.Server, watchExpiry)
	case e.Reported:
		return fmt.Sprintf("%s does not exist: management server %q reports: %s", e.Key, e.Server, e.Message)
	default:
		return fmt.Sprintf("%s does not exist: management server %q no longer sends it", e.Key, e.Server)
	}
}

// isDataError reports whether an error is a data error of gRFC A88: the resource is
// invalid, or the client may not have it.
func isDataError(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it is never wrapped
	case *NotFoundError, *RejectedError:
		return true
	case *ResourceError:
		return e.Code == codes.PermissionDenied
	default:
		return false
	}
}

// isTimeout reports whether an error is that the server did not send a resource in
// time. It says nothing of a value that another server provided.
func isTimeout(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it is never wrapped
	case *SilentError, *TimeoutError:
		return true
	case *NotFoundError:
		return e.Expired
	default:
		return false
	}
}

// ResourceError is an error other than NOT_FOUND that a server reports for a resource
// (xRFC TP3).
type ResourceError struct {
	Key     resource.Key
	Server  string // its URI
	Code    codes.Code
	Message string
}

// Error names the resource and the server, and has the server's message.
func (e *ResourceError) Error() string {
	return fmt.Sprintf("%s: management server %q reports %v: %s", e.Key, e.Server, e.Code, e.Message)
}

// TimeoutError is a resource that a server did not send in time although it has the
// server feature resource_timer_is_transient_error: it would have reported that the
// resource does not exist (gRFC A88).
type TimeoutError struct {
	Key    resource.Key
	Server string // its URI
}

// Error names the resource and the server.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("%s: management server %q did not send it within %v", e.Key, e.Server, slowWatchExpiry)
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
	Err     error  // a *decode.InvalidError or *decode.SyntaxError
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
