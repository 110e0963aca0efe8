package policy

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"
)

// ErrNoEndpoints is the error of picks without any usable endpoint.
var ErrNoEndpoints = errors.New("no usable endpoints")

// EndpointPolicy is an endpoint policy that embeds [Endpoints]. It adds a picker, and
// may override the rest.
type EndpointPolicy[T any] interface {
	balancer.Balancer
	Describer
	Reporter

	// Picker returns the picker of a new state. Endpoints has one for every state but
	// READY.
	Picker(state connectivity.State) balancer.Picker
	// EndpointChanged is called after m's SubConn has changed its state, with m's
	// State and Counted before.
	EndpointChanged(m *Member[T], from, counted connectivity.State)
	// Shares returns each endpoint's part of the picks, in the config's order.
	Shares() []float64
}

// Endpoints keeps one SubConn for each endpoint of an endpoint policy, and reports
// their aggregate state: READY if one endpoint is, else CONNECTING, IDLE or
// TRANSIENT_FAILURE. C is the policy's config, and T what the policy keeps for each
// endpoint. All of it belongs to the owner.
type Endpoints[C EndpointConfig, T any] struct {
	Base
	Config C
	// Order has the endpoints in the config's order.
	Order []*Member[T]
	// Census counts the members by State, and Counted by Counted.
	Census, Counted Census
	// Lazy: only endpoints that have failed are reconnected (gRFC A62), others by
	// Connect. Otherwise every IDLE endpoint is connected, and counted as CONNECTING.
	// It is set when the policy is built.
	Lazy bool

	policy EndpointPolicy[T]
	// byAddress has each endpoint by its lowest address, which does not depend on
	// their order.
	byAddress map[string]*Member[T]
}

// EndpointConfig is the config of an endpoint policy. Configs with equal values are
// the same.
type EndpointConfig interface {
	comparable
	serviceconfig.LoadBalancingConfig
}

// NoConfig is the config of a policy without settings.
type NoConfig struct {
	serviceconfig.LoadBalancingConfig
}

// ReadNoConfig reads a NoConfig. gRPC ignores the JSON, so only hand-written members
// are findings.
func ReadNoConfig(r *ConfigReader) NoConfig {
	if string(bytes.TrimSpace(r.text)) == "null" {
		return NoConfig{}
	}
	r.Read(nil, nil)
	for i := range r.findings {
		r.findings[i].ByHand = true
	}
	return NoConfig{}
}

// NewEndpointBuilder returns the Builder of an endpoint policy. parse reads its
// config, and build embeds the Endpoints in it.
func NewEndpointBuilder[C EndpointConfig, T any](
	name string, parse func(*ConfigReader) C, build func(*Endpoints[C, T]) EndpointPolicy[T],
) Builder {
	return NewChoiceBuilder(name, parse, func(conn *Conn) balancer.Balancer {
		e := &Endpoints[C, T]{byAddress: make(map[string]*Member[T])}
		e.policy = build(e)
		e.Init(conn, name, e.policy)
		return e.policy
	})
}

// UpdateClientConnState applies the config and the endpoints.
func (e *Endpoints[C, T]) UpdateClientConnState(s balancer.ClientConnState) error {
	cfg, ok := s.BalancerConfig.(C)
	if !ok && any(cfg) != any(NoConfig{}) {
		return fmt.Errorf("%s: config is a %T", e.name, s.BalancerConfig)
	}
	changed, err := e.update(s.ResolverState.Endpoints)
	e.Stale = e.Stale || changed || e.Config != cfg
	e.Config = cfg
	e.Mark()
	switch {
	case err != nil:
		return err
	case len(e.Order) == 0:
		e.Err = ErrNoEndpoints
		return balancer.ErrBadResolverState
	default:
		return nil
	}
}

// EndpointChanged makes the policy report if picks see other READY endpoints, or
// another error.
func (e *Endpoints[C, T]) EndpointChanged(m *Member[T], from, _ connectivity.State) {
	if m.State == connectivity.TransientFailure {
		e.Err = m.LastErr
		e.Stale = e.Stale || e.Reported == connectivity.TransientFailure
	}
	e.Stale = e.Stale || (from == connectivity.Ready) != (m.State == connectivity.Ready)
	e.Mark()
}

// Report sends the aggregate state.
func (e *Endpoints[C, T]) Report() { e.Send(e.Counted.Best(), e.policy.Picker) }

// ResolverError fails a policy without endpoints.
func (e *Endpoints[C, T]) ResolverError(err error) {
	if len(e.Order) == 0 {
		e.Fail(err)
	}
}

// Close shuts all SubConns down.
func (e *Endpoints[C, T]) Close() {
	e.Base.Close()
	for _, m := range e.byAddress {
		e.remove(m)
	}
}

// Shares returns the same part for each READY endpoint.
func (e *Endpoints[C, T]) Shares() []float64 {
	shares := make([]float64, len(e.Order))
	for i, m := range e.Order {
		if m.State == connectivity.Ready {
			shares[i] = 1 / float64(e.Census.Ready)
		}
	}
	return shares
}

// Describe describes every endpoint, in the config's order.
func (e *Endpoints[C, T]) Describe() Node {
	n := e.Base.Describe()
	n.Endpoints, n.Shares = make([]EndpointNode, len(e.Order)), true
	shares := e.policy.Shares()
	for i, m := range e.Order {
		n.Endpoints[i] = EndpointNode{Endpoint: m.Value, State: m.State, LastErr: m.LastErr, Share: shares[i]}
		if sc, ok := m.SubConn.(SubConn); ok {
			n.Endpoints[i].Address, _ = sc.Ready()
		}
	}
	return n
}

// Summarize counts the endpoints by state.
func (e *Endpoints[C, T]) Summarize() Summary {
	return Summary{State: e.Reported, Priority: -1, Census: e.Census}
}
