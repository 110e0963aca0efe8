package lbdclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// The kinds of [Error], for [errors.Is].
var (
	// ErrDropped means that the drop policy of the cluster rejected the request. Do not retry it: the operator wants
	// less load.
	ErrDropped = errors.New("dropped")
	// ErrCircuitBroken means that the circuit breaker of the cluster is full. Do not retry at once.
	ErrCircuitBroken = errors.New("circuit broken")
	// ErrUnavailable means that lbd has no endpoint, or is unreachable and the last batch is too old.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnknownCluster means that lbd does not know the cluster, or the target.
	ErrUnknownCluster = errors.New("unknown cluster")
	// ErrPermissionDenied means that lbd rejected the token, or that it does not permit picks from this cluster.
	ErrPermissionDenied = errors.New("permission denied")
)

// Error is the error of a request that got no endpoint from lbd. It is immutable.
type Error struct {
	// Kind is one of the errors of this package, such as ErrDropped.
	Kind error
	// Cluster is the cluster of the request.
	Cluster string
	// Code is the code of lbd's answer, such as "no_ready_endpoint"; "" if lbd did not answer.
	Code string
	// Category is the drop category of ErrDropped.
	Category string
	// Detail says what is wrong.
	Detail string
	// RetryAfter is the time that lbd asks to wait, or 0.
	RetryAfter time.Duration
	// Err is why lbd did not answer, such as context.DeadlineExceeded; nil if it did.
	Err error
}

// Error returns the cluster, the detail and the code.
func (e *Error) Error() string {
	text := fmt.Sprintf("lbd: cluster %s: %s", e.Cluster, e.Detail)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Code != "" {
		text += " (" + e.Code + ")"
	}
	return text
}

// Unwrap returns Kind and Err.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// Timeout reports whether the deadline of the request passed before lbd answered.
func (e *Error) Timeout() bool { return errors.Is(e.Err, context.DeadlineExceeded) }

func unavailable(cluster, detail string, err error) *Error {
	return &Error{Kind: ErrUnavailable, Cluster: cluster, Detail: detail, Err: err}
}

// isFinal reports whether lbd rejects the name of the cluster, or the token: the same call would not help soon.
func (e *Error) isFinal() bool {
	return errors.Is(e, ErrUnknownCluster) || errors.Is(e, ErrPermissionDenied) || e.Code == "invalid_argument"
}

// errorOf returns err as an *Error: any other error means that lbd is unreachable.
func errorOf(cluster string, err error) *Error {
	var rejection *Error
	if errors.As(err, &rejection) {
		return rejection
	}
	return unavailable(cluster, "lbd is unreachable", err)
}

// codeOf returns the code of lbd's answer; "" if err is not one.
func codeOf(err error) string {
	var rejection *Error
	if errors.As(err, &rejection) {
		return rejection.Code
	}
	return ""
}

// problem is the body of an answer that rejects (RFC 9457).
type problem struct {
	Code     string `json:"code"`
	Title    string `json:"title"`
	Detail   string `json:"detail"`
	Category string `json:"category"`
}

// error returns the error for an answer of lbd that rejects.
func (p problem) error(cluster string, status int, retryAfter time.Duration) *Error {
	e := &Error{
		Kind: ErrUnavailable, Cluster: cluster, Code: cmp.Or(p.Code, fmt.Sprint(status)), Category: p.Category,
		Detail: cmp.Or(p.Detail, p.Title, fmt.Sprintf("lbd answered with status %d", status)), RetryAfter: retryAfter,
	}
	switch p.Code {
	case "dropped":
		e.Kind = ErrDropped
	case "circuit_broken":
		e.Kind = ErrCircuitBroken
	case "unknown_cluster", "unknown_target":
		e.Kind = ErrUnknownCluster
	default:
		if status == http.StatusUnauthorized || status == http.StatusForbidden {
			e.Kind = ErrPermissionDenied
		}
	}
	if e.Category != "" {
		e.Detail = "drop category " + e.Category + " dropped the request"
	}
	return e
}
