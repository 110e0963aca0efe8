package store

import "errors"

var (
	// ErrClosed is returned by Update after Close.
	ErrClosed = errors.New("store is closed")

	// ErrCannotWrite is returned by Update if its writes are not durable: no space, a quota,
	// an I/O error. Nothing of it is in the snapshot. A later Update may succeed.
	ErrCannotWrite = errors.New("cannot write to the store")

	// ErrUnavailable is returned by Update if the store cannot be reached. A later Update may
	// succeed.
	ErrUnavailable = errors.New("the store is unavailable")

	// ErrNewer is returned by Update if it would replace or delete what a newer lbd wrote, in a format that this one
	// cannot read. The commit has no effect, and a later one can succeed only after an update of lbd.
	ErrNewer = errors.New("written by a newer lbd")

	// ErrInvalidKey is returned by Put if the key has no type, a type with a NUL byte,
	// or more than [MaxKeySize] bytes.
	ErrInvalidKey = errors.New("invalid key")

	// ErrTooLarge is returned by Put for more than [MaxValueSize] bytes.
	ErrTooLarge = errors.New("value too large")
)

// UnknownOutcomeError is an [ErrUnavailable] of an Update whose commit may have happened, or
// may still happen: the connection was lost before the response. The commit is all or
// nothing, and OnCommit reports it.
type UnknownOutcomeError struct {
	Reason error
}

func (e *UnknownOutcomeError) Error() string {
	return "it is not known whether the change was committed: " + e.Reason.Error()
}

// Unwrap returns ErrUnavailable and the reason.
func (e *UnknownOutcomeError) Unwrap() []error { return []error{ErrUnavailable, e.Reason} }
