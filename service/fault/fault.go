package fault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lbd-dev/lbd/xds/decode"
)

// Code names a way in which a request fails. It is stable, and part of the HTTP
// contract.
type Code string

// The codes.
const (
	InvalidArgument      Code = "invalid_argument"
	UnknownCluster       Code = "unknown_cluster"
	UnknownTarget        Code = "unknown_target"
	UnknownLease         Code = "unknown_lease"
	UnknownChange        Code = "unknown_change"
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
	ShuttingDown         Code = "shutting_down"
	// CallerGone: the caller is gone; nobody reads the answer.
	CallerGone Code = "cancelled"
	// StorageFailed: a push could not be made durable; nothing of it holds.
	StorageFailed Code = "storage_failed"
	Internal      Code = "internal"
)

// GRPC returns the gRPC status code of the same meaning.
func (c Code) GRPC() codes.Code {
	switch c {
	case InvalidArgument, InvalidResource, UnsupportedMedia:
		return codes.InvalidArgument
	case UnknownCluster, UnknownTarget, UnknownLease, UnknownChange, NoRoute:
		return codes.NotFound
	case PreconditionFailed, PreconditionRequired, Blocked:
		return codes.FailedPrecondition
	case TooLarge, RateLimited:
		return codes.ResourceExhausted
	case PickTimeout:
		return codes.DeadlineExceeded
	case CallerGone:
		return codes.Canceled
	case Internal:
		return codes.Internal
	default:
		return codes.Unavailable
	}
}

// Problem is one broken rule of a resource, or one warning about it.
type Problem = decode.Problem

// Error is why a request failed.
type Error struct {
	Code Code
	// Detail says which and why, for people.
	Detail string
	// Cluster is the cluster it is about, if it is about one.
	Cluster string
	// Target is the xds target it is about, if it is about one.
	Target string
	// Category is the drop category of Dropped.
	Category string
	// RetryAfter is when it is worth trying again; zero where that is not
	// known.
	RetryAfter time.Duration
	// Problems are the broken rules of InvalidResource; of a body that cannot be
	// read, where it breaks.
	Problems []Problem
	// Err is the cause, where a caller looks for it.
	Err error
}

func (e *Error) Error() string { return e.Detail }

func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error with a code and a detail.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// FromContext returns err as CallerGone if it is the end of the caller's context.
func FromContext(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return Errorf(CallerGone, "the request was given up: %v", err)
	}
	return err
}
