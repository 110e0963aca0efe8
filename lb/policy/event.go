package policy

import (
	"time"

	"google.golang.org/grpc/connectivity"
)

// Event is something that happened in a tree: one of the event structs of this
// package.
type Event interface{ event() }

// SwitchReason tells why the priority in use changed.
type SwitchReason string

// The reasons of a switch.
const (
	// SwitchInitTimeout: a higher priority was not READY when its init timer
	// ended.
	SwitchInitTimeout SwitchReason = "init_timeout"
	// SwitchFailure: the priority in use failed.
	SwitchFailure SwitchReason = "failure"
	// SwitchRecovered: a higher priority is READY again.
	SwitchRecovered SwitchReason = "recovered"
	// SwitchUpdate: a config brought it about.
	SwitchUpdate SwitchReason = "update"
)

// SwitchReasons are all reasons of a switch.
var SwitchReasons = []SwitchReason{SwitchInitTimeout, SwitchFailure, SwitchRecovered, SwitchUpdate}

// PrioritySwitched is priority's change of the child in use.
type PrioritySwitched struct {
	// Root is [Conn.Root].
	Root    string
	Cluster string
	// From and To are priorities; -1 is none.
	From, To int
	Reason   SwitchReason
	// Detail says what brought it about, for people.
	Detail string
}

// LeafSkipped is an aggregate's leaf that cannot serve because of its resources:
// it does not exist or is in error, or its endpoints do or are.
type LeafSkipped struct {
	// Root is [Conn.Root], Cluster the aggregate.
	Root, Cluster string
	Leaf          string
	Err           error
}

// LeafRestored is the end of LeafSkipped. Of a leaf that left the aggregate before
// there is none.
type LeafRestored struct {
	// Root is [Conn.Root], Cluster the aggregate.
	Root, Cluster string
	Leaf          string
}

// ConnectionChanged is a SubConn's change of state.
type ConnectionChanged struct {
	// Root is [Conn.Root] of the policy whose SubConn it is; Cluster is the
	// endpoint's, a leaf of Root where that is an aggregate.
	Root     string
	Cluster  string
	Address  string
	From, To connectivity.State
	// Err is why, for a change to TRANSIENT_FAILURE or a lost connection.
	Err error
	At  time.Time
}

// StateChanged is a cluster's change of state.
type StateChanged struct {
	Cluster  string
	From, To connectivity.State
}

// Ejected is outlier_detection's ejection of an endpoint, or a longer one of an
// endpoint that it has ejected already.
type Ejected struct {
	// Root is the cluster that picks choose; Cluster may be a leaf of it.
	Root    string
	Cluster string
	// Address is the endpoint's first.
	Address string
	// Reason says why, with the numbers, for people.
	Reason string
	// Until is as [EjectedError] has it.
	Until time.Time
}

// EjectionSpared is an ejection that outlier_detection did not enforce, because of
// max_ejection_percent or by the dice of the enforcement percentage. There may be
// one for each endpoint and interval.
type EjectionSpared struct {
	// Root and Cluster are as in [Ejected].
	Root, Cluster string
}

// Unejected is the end of an ejection. Of an endpoint that is removed before
// there is none.
type Unejected struct {
	Cluster string
	Address string
}

// EjectedError is why an endpoint that outlier_detection has ejected fails for
// the policies below.
type EjectedError struct {
	Reason string
	// Until is when the ejection is over. The endpoint is given back at the end
	// of the first interval then.
	Until time.Time
}

func (e *EjectedError) Error() string { return "ejected by outlier detection: " + e.Reason }

func (EjectionSpared) event()    {}
func (PrioritySwitched) event()  {}
func (LeafSkipped) event()       {}
func (LeafRestored) event()      {}
func (ConnectionChanged) event() {}
func (StateChanged) event()      {}
func (Ejected) event()           {}
func (Unejected) event()         {}
