package policy

import (
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Policy is a load balancing policy in a tree of lbd's, whose owner calls it. Unlike
// grpc's balancers, it gets errors of resources with its config, and picks make it connect
// what is IDLE.
type Policy interface {
	// Update applies the policy's part of a config. With an error, it rejects that part.
	Update(c Child) error
	// Describe describes the policy and those below it, for the state dump.
	Describe() Node
	// Summarize counts what is below. It is called at the end of a batch in which the policy
	// or one below called Mark.
	Summarize() Summary
	// Use takes those reports of requests that no other policy has Found.
	Use(list []*Usage)
	Close()
}

// Factory builds the policies of one name: a [Builder], or what adapts a policy that is
// not lbd's.
type Factory interface {
	Name() string
	Build(conn *Conn) Policy
}

// Builder builds lbd's policies of one name.
type Builder struct {
	name  string
	build func(*Conn) Policy

	// Both are nil unless clusters can choose the policy.
	parse  func(*ConfigReader) serviceconfig.LoadBalancingConfig
	traits *resource.PolicyTraits
}

// NewBuilder returns the Builder of a policy above endpoint policies.
func NewBuilder(name string, build func(*Conn) Policy) Builder {
	return Builder{name: name, build: build}
}

// NewChoiceBuilder returns the Builder of a policy that clusters can choose by name,
// and whose config parse reads. It sets the Judge of the policy's traits.
func NewChoiceBuilder[C serviceconfig.LoadBalancingConfig](
	name string, traits resource.PolicyTraits, parse func(*ConfigReader) C, build func(*Conn) Policy,
) Builder {
	b := Builder{name: name, build: build, parse: func(r *ConfigReader) serviceconfig.LoadBalancingConfig { return parse(r) }}
	traits.Judge = b.judgeConfig
	b.traits = &traits
	return b
}

// TraitsOf returns what the policy of a builder declares; nil if that is not one of lbd's,
// or if clusters cannot choose it.
func TraitsOf(b Factory) *resource.PolicyTraits {
	if d, ok := b.(interface{ Traits() *resource.PolicyTraits }); ok {
		return d.Traits()
	}
	return nil
}

// Traits returns what the policy declares; nil if clusters cannot choose it.
func (b Builder) Traits() *resource.PolicyTraits { return b.traits }

// ParseConfig parses a JSON config by gRPC's rules.
func (b Builder) ParseConfig(text json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	if b.parse == nil {
		return nil, fmt.Errorf("%s: takes no JSON config", b.name)
	}
	r := &ConfigReader{policy: b.name, text: text}
	config := b.parse(r)
	return config, r.err()
}

// judgeConfig validates a JSON config. applied is its normal form: the same for all
// configs with the same meaning.
func (b Builder) judgeConfig(text json.RawMessage) (applied string, findings []resource.ConfigFinding) {
	r := &ConfigReader{policy: b.name, text: text}
	b.parse(r)
	applied, err := r.canonical()
	if err != nil {
		r.Invalid("", "%v", err)
	}
	return applied, r.findings
}

// Name returns the policy's name in gRPC's registry.
func (b Builder) Name() string { return b.name }

// Build builds a policy.
func (b Builder) Build(conn *Conn) Policy { return b.build(conn) }

// Base sends a policy's state to its parent, once in a batch at most. A policy with a
// picker of its own embeds it, and calls [Base.Init] first. All of it belongs to the
// owner.
type Base struct {
	*Conn

	// Reported is the last state sent; SHUTDOWN before the first.
	Reported connectivity.State
	// Stale means that the last picker sent is out of date.
	Stale bool
	// Err is the error of picks while the state is TRANSIENT_FAILURE.
	Err error

	name            string
	reporter        Reporter
	pending, closed bool
}

// Init prepares the Base. r calls [Base.Send] at the end of each batch with a
// [Base.Mark].
func (b *Base) Init(conn *Conn, name string, r Reporter) {
	*b = Base{Conn: conn, Reported: connectivity.Shutdown, name: name, reporter: r}
}

// Mark makes the policy report at the end of the batch.
func (b *Base) Mark() { b.Conn.Mark(b.reporter, &b.pending) }

// MarkStale is Mark with a new picker.
func (b *Base) MarkStale() {
	b.Stale = true
	b.Mark()
}

// Send sends the state, unless it is the same and its picker is not stale.
func (b *Base) Send(state connectivity.State, picker func(connectivity.State) balancer.Picker) {
	if b.closed || state == b.Reported && !b.Stale {
		return
	}
	b.Reported, b.Stale = state, false
	b.Conn.UpdateState(balancer.State{ConnectivityState: state, Picker: picker(state)})
}

// Picker returns the picker of a state other than READY: picks wait, or fail with Err.
func (b *Base) Picker(state connectivity.State) balancer.Picker {
	if state == connectivity.TransientFailure {
		return &ErrPicker{Err: b.Err}
	}
	return QueuePicker
}

// Closed reports whether Close was called.
func (b *Base) Closed() bool { return b.closed }

// Close ends reporting.
func (b *Base) Close() { b.closed = true }

// Describe describes the policy without its children.
func (b *Base) Describe() Node {
	n := Node{Policy: b.name, State: b.Reported}
	if b.Reported == connectivity.TransientFailure {
		n.Err = b.Err
	}
	return n
}

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
	ClientConn
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

// Use gives reports to the child.
func (w *Wrapper) Use(list []*Usage) { w.Child.Use(list) }

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
