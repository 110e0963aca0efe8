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

// ErrActor is wrapped by what an actor in TRANSIENT_FAILURE answers.
var ErrActor = errors.New("the actor failed")

// Part is an actor's config.
type Part struct {
	serviceconfig.LoadBalancingConfig
	// Name is the actor's, by which the test finds it.
	Name string
	// Says, where not nil, is what it says of itself while it takes the part.
	Says *connectivity.State
	// Refusal, where not nil, is what it refuses the part with.
	Refusal error
}

// Troupe builds policies that say what the test lets them say. Its pickers
// answer with an endpoint whose address is the actor's name.
type Troupe struct {
	PolicyName string
	// Actors are those that were built, in order.
	Actors []*Actor
}

// Actor is one policy of a troupe.
type Actor struct {
	Conn balancer.ClientConn
	// Part is the last one.
	Part *Part
	// Updates counts the parts that it was given.
	Updates int
	Closed  bool
	// Idles counts the calls of ExitIdle, Errors those of ResolverError.
	Idles, Errors int
}

// Name returns the policy's name.
func (t *Troupe) Name() string { return t.PolicyName }

// Build builds an actor.
func (t *Troupe) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	a := &Actor{Conn: cc}
	t.Actors = append(t.Actors, a)
	return a
}

// Child is the part of the troupe's actor of a name.
func (t *Troupe) Child(name string) policy.Child {
	return policy.Child{Policy: t.PolicyName, Config: &Part{Name: name}}
}

// Refusing is the part of an actor that will refuse it.
func (t *Troupe) Refusing(name string, err error) policy.Child {
	return policy.Child{Policy: t.PolicyName, Config: &Part{Name: name, Refusal: err}}
}

// Saying is the part of an actor that says state while it takes it.
func (t *Troupe) Saying(name string, state connectivity.State) policy.Child {
	return policy.Child{Policy: t.PolicyName, Config: &Part{Name: name, Says: &state}}
}

// Actor returns the actor of a name that was built last and is not closed, or
// nil.
func (t *Troupe) Actor(name string) *Actor {
	for _, a := range slices.Backward(t.Actors) {
		if !a.Closed && a.Part != nil && a.Part.Name == name {
			return a
		}
	}
	return nil
}

// Built counts the actors of a name that were built, closed or not.
func (t *Troupe) Built(name string) int {
	n := 0
	for _, a := range t.Actors {
		if a.Part != nil && a.Part.Name == name {
			n++
		}
	}
	return n
}

// Says lets the actor report state, in the batch that runs now.
func (a *Actor) Says(state connectivity.State) {
	a.Conn.UpdateState(balancer.State{ConnectivityState: state, Picker: a.Picker(state)})
}

// Picker is what the actor reports with state.
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

// UpdateClientConnState takes a [Part].
func (a *Actor) UpdateClientConnState(s balancer.ClientConnState) error {
	part, ok := s.BalancerConfig.(*Part)
	if !ok {
		return fmt.Errorf("an actor's config is a %T", s.BalancerConfig)
	}
	a.Part = part
	a.Updates++
	if part.Says != nil {
		a.Says(*part.Says)
	}
	return part.Refusal
}

// ResolverError is counted.
func (a *Actor) ResolverError(error) { a.Errors++ }

// UpdateSubConnState is not called.
func (a *Actor) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle is counted.
func (a *Actor) ExitIdle() { a.Idles++ }

// Close is noted.
func (a *Actor) Close() { a.Closed = true }

type actorPicker struct{ endpoint *resource.Endpoint }

func (p *actorPicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	policy.CallOf(info.Ctx).Endpoint = p.endpoint
	return balancer.PickResult{}, nil
}
