package client

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	// watchExpiry is how long a server may take to send a requested resource, as in gRPC.
	watchExpiry = 15 * time.Second
	// slowWatchExpiry replaces it for a server with resource_timer_is_transient_error.
	slowWatchExpiry = 30 * time.Second
)

// Update is a change of one resource that a target wants: always with Target, and Key with
// the name as it was wanted. Equal values are the same pointer, also for different targets.
// Err is a *NotFoundError, *ResourceError, *RejectedError, *SilentError, *TimeoutError
// or *UnreachableError.
type Update = resource.Update

// NotFoundError reports a resource that the server does not have.
type NotFoundError struct {
	Key resource.Key
	// Server is the URI; empty if no server can be asked for the name: it is empty,
	// not UTF-8, or "*", which would request all resources.
	Server string
	// Expired is true if the server did not send the resource in time, Reported if it
	// reported that the resource does not exist, with Message (xRFC TP3). If both are
	// false, a response came without a resource that the server had sent.
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

// isTimeout reports whether an error means that the server did not send a resource in
// time. It does not affect a value from another server.
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

// TimeoutError is a resource that a server with the feature
// resource_timer_is_transient_error did not send in time. Such a server reports
// resources that do not exist (gRFC A88).
type TimeoutError struct {
	Key    resource.Key
	Server string // its URI
}

// Error names the resource and the server.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("%s: management server %q did not send it within %v", e.Key, e.Server, slowWatchExpiry)
}

// SilentError is a resource that a server did not send in time, when it had sent nothing
// at all on the stream. gRPC treats the resource as one that does not exist, but a server
// that hangs is silent, too. The first response restarts the timeout; then a value or a
// NotFoundError follows.
type SilentError struct {
	Key    resource.Key
	Server string // its URI
}

// Error names the resource and the server.
func (e *SilentError) Error() string {
	return fmt.Sprintf("%s is not known to exist: management server %q, which is connected, has sent nothing within %v", e.Key, e.Server, watchExpiry)
}

// RejectedError is an invalid resource, which was rejected (NACK).
type RejectedError struct {
	Key     resource.Key
	Server  string // its URI
	Version string // of the response
	Err     error  // a *decode.InvalidError or *decode.SyntaxError
}

// Error names the server; Err names the resource.
func (e *RejectedError) Error() string {
	return fmt.Sprintf("rejected the resource from management server %q: %v", e.Server, e.Err)
}

// Unwrap returns Err.
func (e *RejectedError) Unwrap() error { return e.Err }

// UnreachableError reports that no server of the authority of a resource can be reached,
// or that it has none. A cached value may be outdated.
type UnreachableError struct {
	Server string // the last one that was tried; empty if there is none
	Err    error
}

// Error names the server and the cause.
func (e *UnreachableError) Error() string {
	if e.Server == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("management server %q cannot be reached: %v", e.Server, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }
