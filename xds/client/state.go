package client

import (
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// State is the state of a resource that a target wants.
type State string

// The states of resources, as in gRFC A88.
const (
	// Requested is neither received nor known to be missing.
	Requested State = "requested"
	// Acked is received and valid.
	Acked State = "acked"
	// Nacked was rejected, and there is no earlier good version.
	Nacked State = "nacked"
	// NackedButCached was rejected, and the last good version is in use.
	NackedButCached State = "nacked_but_cached"
	// DoesNotExist was not sent in time, or was deleted.
	DoesNotExist State = "does_not_exist"
	// DoesNotExistButCached was deleted, and the last good version is in use.
	DoesNotExistButCached State = "does_not_exist_but_cached"
	// Timeout was not sent in time by a server that has sent nothing at all, or that
	// has the feature resource_timer_is_transient_error.
	Timeout State = "timeout"
	// ReceivedError is a resource for which the server reported an error.
	ReceivedError State = "received_error"
	// ReceivedErrorButCached is such a resource whose last good version is in use.
	ReceivedErrorButCached State = "received_error_but_cached"
)

// unknown reports whether a resource is neither cached nor known not to exist: its
// target then falls back (gRFC A71).
func (s State) unknown() bool { return s == Requested || s == Timeout }

// Rejection is a NACK of a resource.
type Rejection struct {
	Version string
	Err     error
	At      time.Time
}

// UpdateCount is the key of a counter of received resources.
type UpdateCount struct {
	Server string // its URI
	Type   resource.Type
	Result UpdateResult
}

// UpdateResult is what the client did with a resource that a server sent.
type UpdateResult string

// The results of updates.
const (
	// UpdateValid changed the resource.
	UpdateValid UpdateResult = "valid"
	// UpdateInvalid was rejected.
	UpdateInvalid UpdateResult = "invalid"
	// UpdateUnchanged equals the version in use.
	UpdateUnchanged UpdateResult = "unchanged"
)
