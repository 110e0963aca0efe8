package policy

import (
	"cmp"
	"fmt"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
)

// Switch runs one child, and changes its policy gracefully: the old policy serves
// until the new one is no longer CONNECTING, or the old one no longer READY.
//
// A part that the child rejects is the child's failure, until it accepts another.
type Switch struct {
	conn *Conn

	// Owner only. current is nil before Update and after Close; pending is nil unless
	// the policy is changing.
	current, pending *switched
	refused          error // why the last part was; nil where it was not
}

// switched is one policy of a Switch, and its ClientConn.
type switched struct {
	*Conn

	parent   *Switch
	policy   string
	balancer Policy
	state    balancer.State
	closed   bool
}

// NewSwitch returns a Switch without a child. Its state goes to conn.
func NewSwitch(conn *Conn) *Switch { return &Switch{conn: conn} }

// Update gives the child its part, and changes its policy if c has another. The error
// is that of an unknown policy or a rejected config, and has been sent to the parent
// as the child's failure.
func (s *Switch) Update(c Child) error {
	latest := cmp.Or(s.pending, s.current)
	if latest == nil || latest.policy != c.Policy {
		return s.Renew(c)
	}
	return s.hand(latest, c)
}

// Renew is Update with a new child, even of the same policy.
func (s *Switch) Renew(c Child) error {
	builder := s.conn.Builder(c.Policy)
	if builder == nil {
		return s.refuse(fmt.Errorf("load balancing policy %q is not registered", c.Policy))
	}
	return s.hand(s.start(builder), c)
}

func (s *Switch) hand(to *switched, c Child) error {
	if err := to.balancer.Update(c); err != nil {
		return s.refuse(err)
	}
	if s.refused != nil {
		s.refused = nil
		s.conn.UpdateState(s.current.state)
	}
	return nil
}

func (s *Switch) refuse(err error) error {
	s.refused = err
	s.conn.UpdateState(Failure(err))
	return err
}

func (s *Switch) start(builder Factory) *switched {
	child := &switched{
		Conn: s.conn, parent: s, policy: builder.Name(),
		state: balancer.State{ConnectivityState: connectivity.Connecting, Picker: QueuePicker},
	}
	if s.pending != nil {
		s.pending.close()
		s.pending = nil
	}
	if s.current == nil {
		s.current = child
	} else {
		s.pending = child
	}
	child.balancer = builder.Build(s.conn.Child(child))
	return child
}

// UpdateState takes the child's state.
func (c *switched) UpdateState(state balancer.State) {
	if c.closed {
		return
	}
	c.state = state
	s := c.parent
	switch {
	case c == s.pending:
		if state.ConnectivityState == connectivity.Connecting && s.current.state.ConnectivityState == connectivity.Ready {
			return
		}
		s.promote()
	case s.pending != nil && state.ConnectivityState != connectivity.Ready:
		s.promote()
	case s.refused == nil:
		s.conn.UpdateState(state)
	}
}

// promote replaces the current policy by the pending one.
func (s *Switch) promote() {
	s.current.close()
	s.current, s.pending = s.pending, nil
	if s.refused == nil {
		s.conn.UpdateState(s.current.state)
	}
}

func (c *switched) close() {
	c.closed = true
	c.balancer.Close()
}

// Use gives reports to the policy that serves.
func (s *Switch) Use(list []*Usage) {
	if s.current != nil {
		s.current.balancer.Use(list)
	}
}

// Close closes the policies, and ignores them from then on.
func (s *Switch) Close() {
	for _, c := range []*switched{s.current, s.pending} {
		if c != nil {
			c.close()
		}
	}
	s.current, s.pending, s.refused = nil, nil, nil
}

// Describe describes the policy that serves, or the rejection.
func (s *Switch) Describe() Node {
	if s.refused != nil {
		return Node{State: connectivity.TransientFailure, Err: s.refused}
	}
	if s.current == nil {
		return Node{State: connectivity.Connecting}
	}
	return s.current.balancer.Describe()
}

// Summarize summarizes the policy that serves.
func (s *Switch) Summarize() Summary {
	sum := Summary{State: connectivity.Connecting, Priority: -1}
	if s.current != nil {
		sum = s.current.balancer.Summarize()
	}
	if s.refused != nil {
		sum.State = connectivity.TransientFailure
	}
	return sum
}
