package policy

import (
	"time"

	"google.golang.org/grpc/connectivity"
)

// Event is one of the event structs of this package.
type Event interface{ event() }

// SwitchReason is why the priority in use changed.
type SwitchReason string

const (
	// SwitchInitTimeout means that the init timer of a higher priority ended.
	SwitchInitTimeout SwitchReason = "init_timeout"
	// SwitchFailure means that the priority in use failed.
	SwitchFailure SwitchReason = "failure"
	// SwitchRecovered means that a higher priority is READY again.
	SwitchRecovered SwitchReason = "recovered"
	// SwitchUpdate means that the config changed.
	SwitchUpdate SwitchReason = "update"
)

// SwitchReasons are all reasons.
var SwitchReasons = []SwitchReason{SwitchInitTimeout, SwitchFailure, SwitchRecovered, SwitchUpdate}

// PrioritySwitched is a change of the priority in use.
type PrioritySwitched struct {
	// Root is [Conn.Root].
	Root    string
	Cluster string
	// From and To are -1 for none.
	From, To int
	Reason   SwitchReason
	// Detail explains it.
	Detail string
}

// LeafChanged means that an aggregate begins to skip a leaf because of its resources,
// or, without Err, that it ceases to.
type LeafChanged struct {
	Cluster string // the aggregate
	Leaf    string
	Err     error
}

// ConnectionChanged is a change of a SubConn's state.
type ConnectionChanged struct {
	// Root is [Conn.Root]; Cluster is the endpoint's, a leaf of Root if that is an
	// aggregate.
	Root     string
	Cluster  string
	Address  string
	From, To connectivity.State
	// Err is why it failed or was lost.
	Err error
}

// StateChanged is a change of a cluster's state.
type StateChanged struct {
	Cluster  string
	From, To connectivity.State
}

// Ejected means that outlier_detection ejected an endpoint, or extended its ejection.
type Ejected struct {
	// Root is [Conn.Root]; Cluster may be a leaf of it.
	Root    string
	Cluster string
	// Address is the endpoint's first.
	Address string
	// Reason explains it with numbers.
	Reason string
	// Until is that of [EjectedError].
	Until time.Time
}

// EjectionSpared means that an ejection was not enforced, because of max_ejection_percent or the
// enforcement percentage. There may be one for each endpoint and interval.
type EjectionSpared struct {
	Root, Cluster string
}

// Unejected ends an ejection, unless the endpoint was removed.
type Unejected struct {
	Cluster string
	Address string
}

// EjectedError is the connection error of an ejected endpoint.
type EjectedError struct {
	Reason string
	// Until is when the ejection is over. It ends with the first interval then.
	Until time.Time
}

func (e *EjectedError) Error() string { return "ejected by outlier detection: " + e.Reason }

func (EjectionSpared) event()    {}
func (PrioritySwitched) event()  {}
func (LeafChanged) event()       {}
func (ConnectionChanged) event() {}
func (StateChanged) event()      {}
func (Ejected) event()           {}
func (Unejected) event()         {}
