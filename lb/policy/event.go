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
	Cluster string
	// From and To are priorities; -1 is none.
	From, To int
	Reason   SwitchReason
	// Detail says what brought it about, for people.
	Detail string
}

// ConnectionChanged is a SubConn's change of state.
type ConnectionChanged struct {
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

func (PrioritySwitched) event()  {}
func (ConnectionChanged) event() {}
func (StateChanged) event()      {}
