package policy

import (
	"fmt"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// Kind is why a picker rejected a pick.
type Kind uint8

const (
	// KindDropped is the effect of a drop category.
	KindDropped Kind = iota + 1
	// KindCircuitBroken means that the circuit breaker is full.
	KindCircuitBroken
	// KindUnknownCluster means that the tree does not have the cluster.
	KindUnknownCluster
	// KindAllExcluded means that the pick excludes every READY endpoint.
	KindAllExcluded
)

// Refusal ends a pick, wait-for-ready or not, as a gRPC status error of code
// UNAVAILABLE. Pickers make it in advance, unless it names something of the pick.
type Refusal struct {
	Kind Kind
	// Category is set for KindDropped.
	Category string

	message string
}

// NewRefusal returns a Refusal with the message of gRPC's status.
func NewRefusal(kind Kind, category, message string) *Refusal {
	return &Refusal{Kind: kind, Category: category, message: message}
}

func (r *Refusal) Error() string { return r.message }

// GRPCStatus returns UNAVAILABLE.
func (r *Refusal) GRPCStatus() *status.Status { return status.New(codes.Unavailable, r.message) }

// ConnectError is why an endpoint's last connection attempt failed, or why its
// connection was lost.
type ConnectError struct {
	Address string
	// RetryAt is when the back-off ends, if there is one.
	RetryAt time.Time
	Err     error
}

func (e *ConnectError) Error() string { return fmt.Sprintf("connect to %s: %v", e.Address, e.Err) }

func (e *ConnectError) Unwrap() error { return e.Err }

// ErrPicker fails every pick. An error that is not a status error ends a pick unless
// it waits for ready.
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

// Failed is a part of a picker that has the error of a policy in TRANSIENT_FAILURE; nil in other states.
type Failed struct{ Err error }

// Failure returns the error.
func (f *Failed) Failure() error { return f.Err }

// FailureOf returns the error of s's picks, if s is TRANSIENT_FAILURE and its picker
// has a method Failure; else nil.
func FailureOf(s balancer.State) error {
	if p, ok := s.Picker.(interface{ Failure() error }); ok && s.ConnectivityState == connectivity.TransientFailure {
		return p.Failure()
	}
	return nil
}

// Failure is the state TRANSIENT_FAILURE in which every pick fails with err.
func Failure(err error) balancer.State {
	return balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: &ErrPicker{Err: err}}
}

// QueuePicker queues every pick until the next picker.
var QueuePicker balancer.Picker = &ErrPicker{Err: balancer.ErrNoSubConnAvailable}
