package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lbd-dev/lbd/xds/decode"
)

// Code names a kind of failure. It is stable, and part of the HTTP contract.
type Code string

// The codes.
const (
	InvalidArgument      Code = "invalid_argument"
	UnknownCluster       Code = "unknown_cluster"
	UnknownTarget        Code = "unknown_target"
	UnknownEndpoint      Code = "unknown_endpoint"
	UnknownLease         Code = "unknown_lease"
	UnknownChange        Code = "unknown_change"
	UnknownOverlay       Code = "unknown_overlay"
	NoRoute              Code = "no_route"
	PreconditionFailed   Code = "precondition_failed"
	PreconditionRequired Code = "precondition_required"
	TooLarge             Code = "too_large"
	UnsupportedMedia     Code = "unsupported_media_type"
	InvalidResource      Code = "invalid_resource"
	Blocked              Code = "blocked"
	RateLimited          Code = "rate_limited"
	Dropped              Code = "dropped"
	CircuitBroken        Code = "circuit_broken"
	NoReadyEndpoint      Code = "no_ready_endpoint"
	AllExcluded          Code = "all_excluded"
	PickTimeout          Code = "pick_timeout"
	// IndexNotReached: picks do not use the index of the store yet that the caller requires.
	IndexNotReached Code = "index_not_reached"
	ShuttingDown    Code = "shutting_down"
	// CallerGone: the caller closed the connection before the answer.
	CallerGone Code = "cancelled"
	// StorageFailed: a push could not be made durable, and has no effect.
	StorageFailed Code = "storage_failed"
	// StoreUnavailable: the store that daemons share cannot be reached, so that nothing can be
	// pushed.
	StoreUnavailable Code = "store_unavailable"
	// ReplicaUnavailable: the replica that has granted a lease cannot be reached.
	ReplicaUnavailable Code = "replica_unavailable"
	Internal           Code = "internal"
)

// GRPC returns the gRPC status code of the same meaning.
func (c Code) GRPC() codes.Code {
	switch c {
	case InvalidArgument, InvalidResource, UnsupportedMedia:
		return codes.InvalidArgument
	case UnknownCluster, UnknownTarget, UnknownEndpoint, UnknownLease, UnknownChange, UnknownOverlay, NoRoute:
		return codes.NotFound
	case PreconditionFailed, PreconditionRequired, Blocked:
		return codes.FailedPrecondition
	case TooLarge, RateLimited:
		return codes.ResourceExhausted
	case PickTimeout, IndexNotReached:
		return codes.DeadlineExceeded
	case CallerGone:
		return codes.Canceled
	case Internal:
		return codes.Internal
	default:
		return codes.Unavailable
	}
}

// Problem is one error of a resource, or one warning about it.
type Problem = decode.Problem

// Error is why a request failed.
type Error struct {
	Code Code
	// Detail describes the failure to people.
	Detail string
	// Cluster is the cluster it is about, if it is about one.
	Cluster string
	// Target is the xds target it is about, if it is about one.
	Target string
	// Category is the drop category of Dropped.
	Category string
	// Role is the role that the caller lacks, if that is the failure.
	Role string
	// RetryAfter is the delay before a retry; zero if it is unknown.
	RetryAfter time.Duration
	// Problems are the errors of InvalidResource; of a body that cannot be read, the
	// position.
	Problems []Problem
	// Err is the cause, if callers need it.
	Err error
}

func (e *Error) Error() string { return e.Detail }

func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error with a code and a detail.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// Clip shortens text of a caller for use in a detail.
func Clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:most], ""), len(s))
}

// Text returns the text of an error; empty for nil.
func Text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Of sets what the error is about: a cluster and a target, or an empty name for none.
func (e *Error) Of(cluster, target string) *Error {
	e.Cluster, e.Target = cluster, target
	return e
}

// Retry sets the delay before a retry.
func (e *Error) Retry(after time.Duration) *Error {
	e.RetryAfter = after
	return e
}

// FromContext returns err as CallerGone if it is the end of the caller's context.
func FromContext(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return Errorf(CallerGone, "the request was canceled: %v", err)
	}
	return err
}
