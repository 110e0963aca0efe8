package policy

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
)

// Wrapper runs one child, and sends the child's state with a picker of the policy's
// own. A policy embeds it, calls [Wrapper.Init] first, and is the ClientConn of its
// child. All of it belongs to the owner.
type Wrapper struct {
	Base
	Child *Switch
	// State is the child's last state; without a Picker before the first.
	State balancer.State

	picker func(child balancer.State) balancer.Picker
}

// Init prepares the Wrapper. picker makes the picker for a state of the child.
func (w *Wrapper) Init(conn *Conn, name string, policy interface {
	balancer.ClientConn
	Reporter
}, picker func(child balancer.State) balancer.Picker,
) {
	w.Base.Init(conn, name, policy)
	w.Reported = connectivity.Connecting
	w.State.ConnectivityState = connectivity.Connecting
	w.Child = NewSwitch(conn.Child(policy))
	w.picker = picker
}

// UpdateState takes the child's state.
func (w *Wrapper) UpdateState(s balancer.State) {
	w.State = s
	w.MarkStale()
}

// Report sends the child's state, once there is one.
func (w *Wrapper) Report() {
	if w.State.Picker != nil {
		w.Send(w.State.ConnectivityState, func(connectivity.State) balancer.Picker { return w.picker(w.State) })
	}
}

// ResolverError goes to the child.
func (w *Wrapper) ResolverError(err error) { w.Child.ResolverError(err) }

// ExitIdle goes to the child.
func (w *Wrapper) ExitIdle() { w.Child.ExitIdle() }

// Close closes the child.
func (w *Wrapper) Close() {
	w.Base.Close()
	w.Child.Close()
}

// Describe describes the policy with its child.
func (w *Wrapper) Describe() Node {
	child := w.Child.Describe()
	return Node{Policy: w.name, State: w.Reported, Err: child.Err, Child: &child}
}

// Summarize is the child's.
func (w *Wrapper) Summarize() Summary { return w.Child.Summarize() }
