package policy

import (
	"fmt"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// Kind tells why a picker refused.
type Kind uint8

// The kinds of refusal.
const (
	// KindDropped is a drop category's doing.
	KindDropped Kind = iota + 1
	// KindCircuitBroken is a full circuit breaker.
	KindCircuitBroken
	// KindUnknownCluster is a cluster that the tree does not have.
	KindUnknownCluster
	// KindAllExcluded is a pick that excludes every READY endpoint.
	KindAllExcluded
)

// Refusal ends a pick, wait-for-ready or not: it is a gRPC status error of code
// UNAVAILABLE. It is built with its picker, not for each pick, unless it has to
// name what the pick asked for.
type Refusal struct {
	Kind Kind
	// Category is the drop category of KindDropped.
	Category string

	status *status.Status
}

// NewRefusal returns a Refusal with the message of gRPC's status.
func NewRefusal(kind Kind, category, message string) *Refusal {
	return &Refusal{Kind: kind, Category: category, status: status.New(codes.Unavailable, message)}
}

func (r *Refusal) Error() string { return r.status.Message() }

// GRPCStatus makes the refusal a status error to grpc.
func (r *Refusal) GRPCStatus() *status.Status { return r.status }

// ConnectError is why an endpoint's last connection attempt failed, or why its
// connection was lost.
type ConnectError struct {
	Address string
	// RetryAt is when the back-off ends; zero where there is none.
	RetryAt time.Time
	Err     error
}

func (e *ConnectError) Error() string { return fmt.Sprintf("connect to %s: %v", e.Address, e.Err) }

func (e *ConnectError) Unwrap() error { return e.Err }

// ErrPicker answers every pick with one error. One that is no status error ends
// a pick unless it waits for ready.
type ErrPicker struct{ Err error }

// Pick returns the picker's error.
func (p *ErrPicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if c := CallOf(info.Ctx); c.Trace != nil {
		if p.Err == balancer.ErrNoSubConnAvailable { //nolint:errorlint // a picker returns it bare
			c.Trace.Steps = append(c.Trace.Steps, QueueStep{})
		} else {
			c.Trace.Steps = append(c.Trace.Steps, FailureStep{Err: p.Err})
		}
	}
	return balancer.PickResult{}, p.Err
}

// Failure is the error of every pick.
func (p *ErrPicker) Failure() error { return p.Err }

// FailureOf returns what s answers picks with where that is an error, and is
// known without a pick; else nil. A picker makes it known with a method Failure.
func FailureOf(s balancer.State) error {
	if p, ok := s.Picker.(interface{ Failure() error }); ok && s.ConnectivityState == connectivity.TransientFailure {
		return p.Failure()
	}
	return nil
}

// Failure is the state of a policy that cannot work: TRANSIENT_FAILURE, and every
// pick is answered with err.
func Failure(err error) balancer.State {
	return balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: &ErrPicker{Err: err}}
}

// QueuePicker queues every pick until the next picker.
var QueuePicker balancer.Picker = &ErrPicker{Err: balancer.ErrNoSubConnAvailable}
