package lbtest

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// ErrActor is the error of picks from an actor in TRANSIENT_FAILURE.
var ErrActor = errors.New("the actor failed")

// Part is an actor's config.
type Part struct {
	serviceconfig.LoadBalancingConfig
	// Name is the name of the actor in the test.
	Name string
	// Says is the state that it reports while it applies the part, if not nil.
	Says *connectivity.State
	// Refusal is the error with which it rejects the part, if not nil.
	Refusal error
}

// Troupe builds policies whose states the test sets. They pick an endpoint whose
// address is the actor's name.
type Troupe struct {
	PolicyName string
	// Actors are all that were built, in order.
	Actors []*Actor
}

// Actor is one policy of a troupe.
type Actor struct {
	Conn *policy.Conn
	// Part is the last one.
	Part *Part
	// Updates counts its parts.
	Updates int
	Closed  bool

	policy string
	state  connectivity.State // the last
}

// Name returns the policy's name.
func (t *Troupe) Name() string { return t.PolicyName }

// Build builds an actor.
func (t *Troupe) Build(conn *policy.Conn) policy.Policy {
	a := &Actor{Conn: conn, policy: t.PolicyName, state: connectivity.Connecting}
	t.Actors = append(t.Actors, a)
	return a
}

// Child is the part of the actor with a name.
func (t *Troupe) Child(name string) policy.Child {
	return policy.Child{Policy: t.PolicyName, Config: &Part{Name: name}}
}

// Refusing is the part that an actor rejects.
func (t *Troupe) Refusing(name string, err error) policy.Child {
	return policy.Child{Policy: t.PolicyName, Config: &Part{Name: name, Refusal: err}}
}

// Actor returns the last actor of a name that is not closed, or nil.
func (t *Troupe) Actor(name string) *Actor {
	for _, a := range slices.Backward(t.Actors) {
		if !a.Closed && a.Part != nil && a.Part.Name == name {
			return a
		}
	}
	return nil
}

// Says reports state. The owner must call it.
func (a *Actor) Says(state connectivity.State) {
	a.state = state
	a.Conn.UpdateState(balancer.State{ConnectivityState: state, Picker: a.Picker(state)})
}

// Picker returns the picker of a state.
func (a *Actor) Picker(state connectivity.State) balancer.Picker {
	switch state {
	case connectivity.Ready:
		return &actorPicker{&resource.Endpoint{Addresses: []string{a.Part.Name}, Weight: 1}}
	case connectivity.TransientFailure:
		return &policy.ErrPicker{Err: fmt.Errorf("%s: %w", a.Part.Name, ErrActor)}
	default:
		return policy.QueuePicker
	}
}

// Update takes a [Part].
func (a *Actor) Update(c policy.Child) error {
	part, ok := c.Config.(*Part)
	if !ok {
		return fmt.Errorf("an actor's config is a %T", c.Config)
	}
	a.Part = part
	a.Updates++
	if part.Says != nil {
		a.Says(*part.Says)
	}
	return part.Refusal
}

// Describe describes the last state.
func (a *Actor) Describe() policy.Node { return policy.Node{Policy: a.policy, State: a.state} }

// Summarize has the last state.
func (a *Actor) Summarize() policy.Summary { return policy.Summary{State: a.state, Priority: -1} }

// Use does nothing.
func (a *Actor) Use([]*policy.Usage) {}

// Close is noted.
func (a *Actor) Close() { a.Closed = true }

type actorPicker struct{ endpoint *resource.Endpoint }

func (p *actorPicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	policy.CallOf(info.Ctx).Endpoint = p.endpoint
	return balancer.PickResult{}, nil
}
