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
// Err is a *ResourceError.
type Update = resource.Update

// ResourceError is why a server does not provide a resource, or no longer confirms it.
type ResourceError struct {
	Kind   ErrorKind
	Key    resource.Key
	Server string     // the URI; empty if no server can be asked
	Code   codes.Code // of ErrorReported
	// Err is the message of the server (ErrorReported), a *decode.InvalidError or
	// *decode.SyntaxError (ErrorRejected), or the error of the connection (ErrorUnreachable).
	Err error
}

// ErrorKind is the kind of a ResourceError.
type ErrorKind uint8

// The kinds of errors.
const (
	// ErrorUnreachable: no server of the authority of the resource can be reached, or it
	// has none. A cached value may be outdated.
	ErrorUnreachable ErrorKind = iota
	// ErrorRejected: the resource is invalid (NACK).
	ErrorRejected
	// ErrorReported: the server reports an error for the resource (xRFC TP3).
	ErrorReported
	// ErrorDeleted: a response came without a resource that the server had sent.
	ErrorDeleted
	// ErrorExpired: the server did not send the resource in time.
	ErrorExpired
	// ErrorTimeout is ErrorExpired for a server with resource_timer_is_transient_error. It
	// reports resources that do not exist (gRFC A88).
	ErrorTimeout
	// ErrorSilent is ErrorExpired for a server that had sent nothing at all on the stream.
	// gRPC treats the resource as one that does not exist, but a server that hangs is
	// silent, too. The first response restarts the timeout; then a value or another error
	// follows.
	ErrorSilent
	// ErrorUnrequestable: no server can be asked for the name. It is empty, not UTF-8, or
	// "*", which would request all resources.
	ErrorUnrequestable
)

// Error names the resource, the server and the cause.
func (e *ResourceError) Error() string {
	switch e.Kind {
	case ErrorRejected:
		return fmt.Sprintf("rejected the resource from management server %q: %v", e.Server, e.Err) // Err names the resource
	case ErrorReported:
		if e.Code == codes.NotFound {
			return fmt.Sprintf("%s does not exist: management server %q reports: %v", e.Key, e.Server, e.Err)
		}
		return fmt.Sprintf("%s: management server %q reports %v: %v", e.Key, e.Server, e.Code, e.Err)
	case ErrorDeleted:
		return fmt.Sprintf("%s does not exist: management server %q no longer sends it", e.Key, e.Server)
	case ErrorExpired:
		return fmt.Sprintf("%s does not exist: management server %q did not send it within %v", e.Key, e.Server, watchExpiry)
	case ErrorTimeout:
		return fmt.Sprintf("%s: management server %q did not send it within %v", e.Key, e.Server, slowWatchExpiry)
	case ErrorSilent:
		return fmt.Sprintf("%s is not known to exist: management server %q, which is connected, has sent nothing within %v", e.Key, e.Server, watchExpiry)
	case ErrorUnrequestable:
		return fmt.Sprintf("%s of name %q does not exist: no management server can be asked for that name", e.Key.Type, e.Key.Name)
	}
	if e.Server == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("management server %q cannot be reached: %v", e.Server, e.Err)
}

// Unwrap returns Err.
func (e *ResourceError) Unwrap() error { return e.Err }

// NotFound reports whether the resource does not exist for gRPC.
func (e *ResourceError) NotFound() bool {
	switch e.Kind {
	case ErrorDeleted, ErrorExpired, ErrorSilent, ErrorUnrequestable:
		return true
	default:
		return e.Kind == ErrorReported && e.Code == codes.NotFound
	}
}

// isDataError reports whether it is a data error of gRFC A88: the resource is invalid, or the
// client may not have it.
func (e *ResourceError) isDataError() bool {
	return e.Kind == ErrorRejected || e.Kind == ErrorReported && e.Code == codes.PermissionDenied ||
		e.NotFound() && e.Kind != ErrorSilent
}

// isTimeout reports whether the server did not send the resource in time. It does not affect a
// value from another server.
func (e *ResourceError) isTimeout() bool {
	return e.Kind == ErrorExpired || e.Kind == ErrorTimeout || e.Kind == ErrorSilent
}

func (e *ResourceError) state(cached bool) State {
	state, withCache := Timeout, Timeout
	switch e.Kind {
	case ErrorRejected:
		state, withCache = Nacked, NackedButCached
	case ErrorReported:
		state, withCache = ReceivedError, ReceivedErrorButCached
	case ErrorDeleted, ErrorExpired, ErrorUnrequestable:
		state, withCache = DoesNotExist, DoesNotExistButCached
	}
	if cached {
		return withCache
	}
	return state
}
