package policy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Member is one endpoint and its SubConn.
type Member[T any] struct {
	*Upstream // of the endpoint's newest value
	// LastErr is the last connection error since it was READY.
	LastErr error
	// Own belongs to the policy.
	Own T

	// There are many Members: a connectivity.State takes a byte here.
	state, counted uint8
	kept           bool // in the config being applied
}

// State returns the SubConn's state; SHUTDOWN once the endpoint is removed.
func (m *Member[T]) State() connectivity.State { return connectivity.State(m.state) }

// Counted returns the state as the policy counts it: TRANSIENT_FAILURE lasts until READY.
func (m *Member[T]) Counted() connectivity.State { return connectivity.State(m.counted) }

// update applies the endpoints of a config. An endpoint stays the same while its
// addresses do, in any order (gRFC A61); of duplicates the first counts. changed
// reports whether picks see a difference. Endpoints whose SubConn cannot be made are
// left out; the error is the first of theirs.
func (e *Endpoints[C, T]) update(values []*resource.Endpoint) (changed bool, err error) {
	for _, m := range e.Order {
		m.kept = false
	}
	order := make([]*Member[T], 0, len(values))
	var fresh []*Member[T]
	added := map[string]bool{} // the lowest addresses of fresh ones
	was := places[T]{of: e.Order}
	next := 0 // where the next one most likely was
	for _, value := range values {
		if len(value.Addresses) == 0 {
			continue
		}
		at := next
		if at == len(e.Order) || e.Order[at].kept || e.Order[at].Endpoint != value {
			lowest := slices.Min(value.Addresses)
			if added[lowest] {
				continue
			}
			at = was.find(lowest)
		}
		var m *Member[T]
		if at >= 0 {
			m = e.Order[at]
		}
		switch {
		case m != nil && m.kept:
			continue
		case m != nil && m.Endpoint == value:
		case m != nil && SameAddresses(m.Endpoint.Addresses, value.Addresses):
			changed = changed || m.State() == connectivity.Ready // pickers hold the value
			if m.Endpoint.Hostname != value.Hostname || !slices.Equal(m.Endpoint.Addresses, value.Addresses) {
				m.Connection.SubConn.UpdateAddresses(ResolverEndpoint(value).Addresses) // with the name that TLS verifies
			}
			m.Upstream = m.Connection.Replace(value)
		default:
			if m != nil {
				e.remove(m)
			}
			var refused error
			if m, refused = e.add(value); refused != nil {
				if err == nil {
					err = refused
				}
				continue
			}
			added[slices.Min(value.Addresses)] = true
			fresh = append(fresh, m)
		}
		m.kept = true
		order = append(order, m)
		if at-next < maxSearches { // those between are gone; one from far behind was moved
			next = max(next, at+1)
		}
		for next < len(e.Order) && e.Order[next].kept {
			next++
		}
	}
	for _, m := range e.Order {
		if !m.kept {
			e.remove(m)
		}
	}
	changed = changed || !slices.Equal(e.Order, order)
	e.Order, e.named = order, nil
	if !e.Lazy {
		e.connect(fresh)
	}
	return changed, err
}

// places finds endpoints by their lowest addresses, which do not depend on the order of the addresses. The map takes more
// memory than the endpoints' states, and the time of many searches: it is made for an update only that has many.
type places[T any] struct {
	of        []*Member[T]
	searches  int
	byAddress map[string]int
}

// maxSearches is how many endpoints are looked for one by one.
const maxSearches = 8

// find returns the place of an endpoint, or -1.
func (p *places[T]) find(lowest string) int {
	if p.searches++; p.searches <= maxSearches {
		return slices.IndexFunc(p.of, func(m *Member[T]) bool { return slices.Min(m.Endpoint.Addresses) == lowest })
	}
	if p.byAddress == nil {
		p.byAddress = make(map[string]int, len(p.of))
		for i, m := range p.of {
			p.byAddress[slices.Min(m.Endpoint.Addresses)] = i
		}
	}
	if at, ok := p.byAddress[lowest]; ok {
		return at
	}
	return -1
}

// connect begins at a random endpoint, so that clients with the same list do not all
// connect to the first one at once.
func (e *Endpoints[C, T]) connect(fresh []*Member[T]) {
	if len(fresh) == 0 {
		return
	}
	start, _ := bits.Mul64(e.Draw()(), uint64(len(fresh)))
	for i := range fresh {
		fresh[(int(start)+i)%len(fresh)].Connection.Connect()
	}
}

func (e *Endpoints[C, T]) add(value *resource.Endpoint) (*Member[T], error) {
	m := &Member[T]{state: uint8(connectivity.Idle), counted: uint8(connectivity.Idle)}
	sc, err := e.Conn.NewSubConn(ResolverEndpoint(value).Addresses, balancer.NewSubConnOptions{
		StateListener: func(state balancer.SubConnState) { e.subConnState(m, state) },
	})
	if err != nil {
		return nil, fmt.Errorf("new SubConn for %s: %w", value.Addresses[0], err)
	}
	m.Upstream = ConnectionOf(sc).Upstream()
	if !e.Lazy {
		m.counted = uint8(connectivity.Connecting)
	}
	e.Census.Count(m.State(), 1)
	e.Counted.Count(m.Counted(), 1)
	return m, nil
}

// remove shuts the SubConn down, once.
func (e *Endpoints[C, T]) remove(m *Member[T]) {
	if m.State() == connectivity.Shutdown {
		return
	}
	e.Census.Count(m.State(), -1)
	e.Counted.Count(m.Counted(), -1)
	m.state, m.counted = uint8(connectivity.Shutdown), uint8(connectivity.Shutdown)
	m.Connection.Shutdown()
}

// Connect connects an IDLE endpoint and counts it as CONNECTING. It reports false for
// any other.
func (e *Endpoints[C, T]) Connect(m *Member[T]) bool {
	if m.Counted() != connectivity.Idle {
		return false
	}
	e.count(m, connectivity.Connecting)
	m.Connection.Connect()
	return true
}

func (e *Endpoints[C, T]) subConnState(m *Member[T], state balancer.SubConnState) {
	if m.State() == connectivity.Shutdown || state.ConnectivityState == connectivity.Shutdown {
		return
	}
	from, counted := m.State(), m.Counted()
	m.state = uint8(state.ConnectivityState)
	e.Census.Count(from, -1)
	e.Census.Count(m.State(), 1)

	switch m.State() {
	case connectivity.Ready:
		m.LastErr = nil
	case connectivity.TransientFailure:
		m.LastErr = state.ConnectionError
	case connectivity.Idle:
		if state.ConnectionError != nil {
			m.LastErr = state.ConnectionError
		}
		if !e.Lazy || counted == connectivity.TransientFailure {
			m.Connection.Connect()
		}
	}
	switch {
	case counted == connectivity.TransientFailure && m.State() != connectivity.Ready:
	case !e.Lazy && m.State() == connectivity.Idle:
		e.count(m, connectivity.Connecting)
	default:
		e.count(m, m.State())
	}
	e.policy.EndpointChanged(m, from, counted)
}

func (e *Endpoints[C, T]) count(m *Member[T], state connectivity.State) {
	e.Counted.Count(m.Counted(), -1)
	e.Counted.Count(state, 1)
	m.counted = uint8(state)
}

// Best returns the best state, in gRPC's order: READY, CONNECTING, IDLE,
// TRANSIENT_FAILURE, which is also the state without endpoints.
func (c Census) Best() connectivity.State {
	switch {
	case c.Ready > 0:
		return connectivity.Ready
	case c.Connecting > 0:
		return connectivity.Connecting
	case c.Idle > 0:
		return connectivity.Idle
	default:
		return connectivity.TransientFailure
	}
}

// Count adds n endpoints that are in state s.
func (c *Census) Count(s connectivity.State, n int) {
	switch s {
	case connectivity.Ready:
		c.Ready += n
	case connectivity.Connecting:
		c.Connecting += n
	case connectivity.Idle:
		c.Idle += n
	case connectivity.TransientFailure:
		c.TransientFailure += n
	}
}

// Use gives reports to the endpoints.
func (e *Endpoints[C, T]) Use(list []*Usage) {
	if e.named == nil {
		e.named = make(map[string]*Member[T], len(e.Order))
		for _, m := range e.Order {
			for _, a := range m.Endpoint.Addresses {
				e.named[a] = m
			}
		}
	}
	for _, u := range list {
		m := cmp.Or(e.named[u.Address], e.named[resource.CanonicalAddress(u.Address)])
		if u.Found || m == nil || m.Upstream == nil {
			continue
		}
		m.Upstream.Use(u)
		if f, ok := any(&m.Own).(interface{ ReportedInFlight() *InFlight }); ok {
			u.count(f.ReportedInFlight())
		}
	}
}

// ErrNoEndpoints is the error of picks without any usable endpoint.
var ErrNoEndpoints = errors.New("no usable endpoints")

// EndpointPolicy is an endpoint policy that embeds [Endpoints]. It adds a picker, and
// may override the rest.
type EndpointPolicy[T any] interface {
	Policy
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
	named  map[string]*Member[T] // by all addresses; nil until reports need it
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

// NewEndpointBuilder is [NewChoiceBuilder] for an endpoint policy. build embeds the
// Endpoints in it.
func NewEndpointBuilder[C EndpointConfig, T any](
	name string, traits resource.PolicyTraits, parse func(*ConfigReader) C, build func(*Endpoints[C, T]) EndpointPolicy[T],
) Builder {
	return NewChoiceBuilder(name, traits, parse, func(conn *Conn) Policy {
		e := new(Endpoints[C, T])
		e.policy = build(e)
		e.Init(conn, name, e.policy)
		return e.policy
	})
}

// Update applies the config and the endpoints.
func (e *Endpoints[C, T]) Update(c Child) error {
	cfg, ok := c.Config.(C)
	if !ok && any(cfg) != any(NoConfig{}) {
		return fmt.Errorf("%s: config is a %T", e.name, c.Config)
	}
	changed, err := e.update(c.Endpoints)
	e.Stale = e.Stale || changed || e.Config != cfg
	e.Config = cfg
	e.Mark()
	if len(e.Order) == 0 && err == nil {
		e.Err = ErrNoEndpoints
	}
	return err
}

// EndpointChanged makes the policy report if picks see other READY endpoints, or
// another error.
func (e *Endpoints[C, T]) EndpointChanged(m *Member[T], from, _ connectivity.State) {
	if m.State() == connectivity.TransientFailure {
		e.Err = m.LastErr
		e.Stale = e.Stale || e.Reported == connectivity.TransientFailure
	}
	e.Stale = e.Stale || (from == connectivity.Ready) != (m.State() == connectivity.Ready)
	e.Mark()
}

// Report sends the aggregate state.
func (e *Endpoints[C, T]) Report() { e.Send(e.Counted.Best(), e.policy.Picker) }

// Close shuts all SubConns down.
func (e *Endpoints[C, T]) Close() {
	e.Base.Close()
	for _, m := range e.Order {
		e.remove(m)
	}
}

// Shares returns the same part for each READY endpoint.
func (e *Endpoints[C, T]) Shares() []float64 {
	shares := make([]float64, len(e.Order))
	for i, m := range e.Order {
		if m.State() == connectivity.Ready {
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
		n.Endpoints[i] = EndpointNode{Endpoint: m.Endpoint, State: m.State(), LastErr: m.LastErr, Share: shares[i]}
		n.Endpoints[i].Address, _ = m.Address()
	}
	return n
}

// Summarize counts the endpoints by state.
func (e *Endpoints[C, T]) Summarize() Summary {
	return Summary{State: e.Reported, Priority: -1, Census: e.Census}
}
