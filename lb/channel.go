package lb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/lbd-dev/lbd/lb/foreign"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/wake"
)

// ErrClosed is a pick's or an update's answer once the channel is closed.
var ErrClosed = errors.New("channel is closed")

// ErrCanceled ends a pick that waits when [policy.Call.Canceled] is closed.
var ErrCanceled = errors.New("the wait was canceled")

// NotReadyError ends a pick of a cluster in TRANSIENT_FAILURE. Err says why:
// usually a *[policy.ConnectError].
type NotReadyError struct{ Err error }

func (e *NotReadyError) Error() string { return e.Err.Error() }

func (e *NotReadyError) Unwrap() error { return e.Err }

// TimeoutError ends a pick that was still queued when its wait ended. Err is
// why the last picker had no answer; nil where it was still connecting.
type TimeoutError struct {
	Wait time.Duration
	Err  error
}

func (e *TimeoutError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("not ready within %v: %v", e.Wait, e.Err)
	}
	return fmt.Sprintf("still connecting after %v", e.Wait)
}

func (e *TimeoutError) Unwrap() error { return e.Err }

// Options are what a channel needs from around it.
type Options struct {
	// Registry holds the policies; see [Policies].
	Registry policy.Registry
	Counters *policy.Counters
	// Draw gives uniform random numbers, from any goroutine.
	Draw func() uint64
	// Report takes the events of each batch, in order; there may be none. The tree's
	// owner calls it, once picks see the batch and before [Offered.Wait] returns. It
	// must not block. It may be nil.
	Report func([]policy.Event)
	// Connectors holds a Connector for each mode that clusters may ask for.
	// The empty mode is the default's.
	Connectors map[resource.ConnectMode]Connector
	// Generation is the number of the first picker; each later one's is one
	// more.
	Generation int64
	// Overload reports what lbd itself is short of: while a shortage keeps connections from being
	// made, init timers stand still. It may be nil.
	Overload *overload.Monitor
}

// Channel is one target's tree and its current picker, as a gRPC channel has
// them. Its methods may be called from any goroutine.
type Channel struct {
	// Fixed after build.
	options Options
	owner   *policy.Serializer

	short   atomic.Bool // the monitor reports a shortage that any dial may fail for
	current atomic.Pointer[published]
	summary atomic.Pointer[policy.Summary]

	replaced wake.All // notified after current was replaced

	mu    sync.Mutex // guards slot, held and begun
	slot  *update
	held  bool // the owner does not know of slot
	begun bool // the owner has been given a config, or the channel is being closed

	// Owner only.
	tree     *policy.Tree // nil before the first config
	root     policy.Policy
	unwatch  func()          // ends the monitor's calls
	batch    uint64          // the one that runs now, counted from 0
	reported *balancer.State // by the root in this batch
	events   []policy.Event  // of this batch
	applied  []*update       // in this batch
	routing  *routing        // of the newest config
	rerouted bool            // since the last picker
	id       uint64          // hashed by routes that ask for the channel's; drawn for the first of them
	closed   bool
}

// published is one picker, with the routes that name its clusters: both are of
// the same config. It is never changed.
type published struct {
	routing    *routing // nil where picks name their cluster
	picker     balancer.Picker
	state      connectivity.State
	generation int64
	warming    bool // there is no tree yet: see Channel.Defer
}

// update is a config on its way to the tree. One that is superseded on its way
// is answered with the newer.
type update struct {
	config *resource.Config
	done   chan struct{}
	err    error
}

// connecting is the summary of a channel before its first batch.
var connecting = &policy.Summary{State: connectivity.Connecting, Priority: -1}

// NewChannel returns a channel that is CONNECTING: its picks queue until the
// first config.
func NewChannel(o Options) *Channel {
	c := &Channel{options: o}
	c.current.Store(&published{picker: policy.QueuePicker, state: connectivity.Connecting, generation: o.Generation})
	c.summary.Store(connecting)
	c.owner = policy.NewSerializer(c.endBatch)
	return c
}

// build builds the root of the tree before its first use. The owner calls it.
func (c *Channel) build() {
	if c.tree != nil {
		return
	}
	o := &c.options
	c.tree = &policy.Tree{
		Owner: c.owner, Registry: o.Registry, Foreign: foreign.Lookup, Counters: o.Counters, Draw: o.Draw,
		Events: func(e policy.Event) { c.events = append(c.events, e) },
	}
	root := o.Registry[policy.ClusterManager]
	c.root = root.Build(policy.NewConn(&clientConn{channel: c}, c.tree))
	c.unwatch = o.Overload.Watch(c.overloaded)
}

// Offered is a config on its way to the tree.
type Offered struct{ *update }

// Offer hands the tree a config and does not wait. Configs are applied in the
// order in which they were offered; of those that wait for the tree only the
// newest is.
func (c *Channel) Offer(config *resource.Config) Offered {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.hold(config)
	c.post()
	return Offered{u}
}

// hold puts a config in the slot. The caller holds mu.
func (c *Channel) hold(config *resource.Config) *update {
	if c.slot == nil {
		c.slot, c.held = &update{done: make(chan struct{})}, true
	}
	c.slot.config = config
	return c.slot
}

// post hands the owner what is in the slot. The caller holds mu.
func (c *Channel) post() {
	if !c.held {
		return
	}
	c.held, c.begun = false, true
	if !c.owner.Post(c.applySlot) {
		c.reject()
	}
}

// reject answers what is in the slot. The caller holds mu.
func (c *Channel) reject() {
	c.slot.err = ErrClosed
	close(c.slot.done)
	c.slot = nil
}

// Wait returns once picks see the config or a newer one. The error is
// [ErrClosed], or the cause of ctx's end.
func (o Offered) Wait(ctx context.Context) error {
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done reports whether Wait would return at once.
func (o Offered) Done() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// applySlot hands the waiting config to the tree. One that is Pending changes
// nothing.
func (c *Channel) applySlot() {
	c.mu.Lock()
	u := c.slot
	c.slot = nil
	c.mu.Unlock()

	c.build()
	c.applied = append(c.applied, u)
	if u.config.Pending {
		return
	}
	c.route(u.config)
	children := make(map[string]policy.Child, len(u.config.Roots))
	for _, name := range u.config.Roots {
		children[name] = policy.Child{
			Policy: policy.CDS,
			Config: &policy.CDSConfig{Cluster: name, XDS: u.config},
		}
	}
	u.err = c.root.Update(policy.Child{
		Config: &policy.ClusterManagerConfig{Children: children},
	})
}

// route takes the config's routes, to be published with the picker that the tree
// makes of the config.
func (c *Channel) route(config *resource.Config) {
	if config.Routing != nil && c.id == 0 {
		c.id = c.options.Draw()
	}
	if g := newRouting(config, c.options.Draw, c.id); !g.same(c.routing) {
		c.routing, c.rerouted = g, true
	}
}

// endBatch publishes the result of a batch: the summary, then one picker, then the
// report, then the answers to [Offered.Wait].
func (c *Channel) endBatch() {
	c.batch++
	if !c.closed && c.root != nil {
		s := c.root.Summarize()
		c.summary.Store(&s)
	}
	switch {
	case c.reported != nil:
	case len(c.applied) > 0 && c.Warming(): // the config is pending
		c.reported = &balancer.State{ConnectivityState: connectivity.Connecting, Picker: policy.QueuePicker}
	case c.rerouted: // other routes to the same clusters
		current := c.current.Load()
		c.reported = &balancer.State{ConnectivityState: current.state, Picker: current.picker}
	}
	if c.reported != nil {
		c.publish(*c.reported)
		c.reported, c.rerouted = nil, false
	}
	if c.options.Report != nil {
		c.options.Report(c.events)
	}
	c.events = nil
	for _, u := range c.applied {
		close(u.done)
	}
	clear(c.applied)
	c.applied = c.applied[:0]
}

func (c *Channel) publish(s balancer.State) {
	c.current.Store(&published{
		routing: c.routing, picker: s.Picker, state: s.ConnectivityState, generation: c.Generation() + 1,
	})
	c.replaced.Notify()
}

// Pick picks for call, queueing for at most wait while there is no answer. Where
// the config has routes they choose the call's Cluster and, unless the caller has
// one, its Hash; a pick that queues goes by what was chosen until there are other
// routes. The error is a *[policy.Refusal], a *[RouteError], a
// *[TargetError], a *[NotReadyError], a *[TimeoutError], [ErrClosed], the cause of
// call's end, or a foreign policy's status error.
func (c *Channel) Pick(call *policy.Call, wait time.Duration) error {
	call.Queued = 0
	p := c.current.Load()
	queue, err := pick(p, call, false)
	if !queue {
		return err
	}
	return c.queue(p, err, call, wait)
}

// pick asks one picker. routed is true if its routes have chosen already. queue
// is true if the pick must wait for the next picker; err is then the reason, if known.
func pick(p *published, call *policy.Call, routed bool) (queue bool, err error) {
	if p.routing != nil && !routed {
		if err := p.routing.choose(call); err != nil {
			call.Generation = p.generation
			return call.WaitForReady && p.routing.failed != nil, err
		}
	}
	_, err = p.picker.Pick(balancer.PickInfo{Ctx: call})
	switch {
	case err == nil:
		call.Generation = p.generation
		return false, nil
	case err == balancer.ErrNoSubConnAvailable: //nolint:errorlint // pickers return it bare
		return true, nil
	}
	call.Generation = p.generation
	if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok || err == ErrClosed { //nolint:errorlint // what an error wraps, such as a connection's status, does not make it the picker's own verdict
		return false, err
	}
	if call.WaitForReady {
		return true, err
	}
	return false, &NotReadyError{Err: err}
}

// queue waits for pickers until one has an answer. p is the picker that had
// none, because of why.
func (c *Channel) queue(p *published, why error, call *policy.Call, wait time.Duration) error {
	if wait <= 0 && !p.warming {
		return &TimeoutError{Err: why}
	}
	if call.Waiter != nil {
		if err := call.Waiter.BeginWait(); err != nil {
			return err
		}
		defer call.Waiter.EndWait()
	}
	start := time.Now()
	defer func() { call.Queued = time.Since(start) }()
	if p.warming {
		var queue bool
		if p, queue, why = c.pickWarmed(call); !queue {
			return why
		}
		if wait <= 0 {
			return &TimeoutError{Err: why}
		}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		replaced, next := c.replaced.Wait(), c.current.Load()
		if next == p {
			select {
			case <-replaced:
			case <-timer.C:
				return &TimeoutError{Wait: wait, Err: why}
			case <-call.Done():
				return context.Cause(call)
			case <-call.Canceled:
				return ErrCanceled
			}
			continue
		}
		if next.warming {
			c.begin()
		}
		routed := next.routing == p.routing && next.routing.chooses()
		if p = next; routed {
			call.Repick()
		} else {
			call.Again()
		}
		var queue bool
		if queue, why = pick(p, call, routed); !queue {
			return why
		}
	}
}

// State returns the channel's state. A state's picker is visible no later than
// the state.
func (c *Channel) State() connectivity.State { return c.current.Load().state }

// Generation returns the number of the current picker.
func (c *Channel) Generation() int64 { return c.current.Load().generation }

// WaitForGeneration returns true once the current picker's number is not g, and
// false when ctx ends before.
func (c *Channel) WaitForGeneration(ctx context.Context, g int64) bool {
	for {
		replaced := c.replaced.Wait()
		if c.Generation() != g {
			return true
		}
		select {
		case <-replaced:
		case <-ctx.Done():
			return false
		}
	}
}

// ClusterSummary returns the counts of one cluster. It is CONNECTING,
// without a priority, before the cluster's first batch.
func (c *Channel) ClusterSummary(cluster string) policy.Summary {
	if s := c.summary.Load().Clusters.Get(cluster); s != nil {
		return *s
	}
	return *connecting
}

// Describe asks the tree to describe itself.
func (c *Channel) Describe(ctx context.Context) (policy.Node, error) {
	return c.ask(ctx, func() policy.Node { return c.root.Describe() })
}

// DescribeCluster asks the tree to describe one cluster. One that it does not have
// has a zero Node.
func (c *Channel) DescribeCluster(ctx context.Context, cluster string) (policy.Node, error) {
	return c.ask(ctx, func() policy.Node {
		if d, ok := c.root.(interface{ DescribeCluster(string) policy.Node }); ok {
			return d.DescribeCluster(cluster)
		}
		return policy.Node{}
	})
}

// ask has the owner describe something. It builds the tree of a warming channel.
func (c *Channel) ask(ctx context.Context, describe func() policy.Node) (policy.Node, error) {
	if err := c.Build(ctx); err != nil { // else the state would be older than the description
		return policy.Node{}, fmt.Errorf("describe the tree: %w", err)
	}
	answer := make(chan policy.Node, 1)
	ok := c.owner.Post(func() {
		if c.closed {
			close(answer)
			return
		}
		c.build()
		answer <- describe()
	})
	if !ok {
		return policy.Node{}, ErrClosed
	}
	select {
	case n, ok := <-answer:
		if !ok {
			return policy.Node{}, ErrClosed
		}
		return n, nil
	case <-ctx.Done():
		return policy.Node{}, fmt.Errorf("describe the tree: %w", context.Cause(ctx))
	}
}

// Use gives the tree reports of requests to the endpoints of a cluster, and returns a channel that is closed
// when it has taken them. Those that no endpoint has [policy.Usage.Found] are for endpoints that the tree does
// not use. A tree that is not built yet takes none.
func (c *Channel) Use(cluster string, list []*policy.Usage) (taken <-chan struct{}) {
	done := make(chan struct{})
	ok := c.owner.Post(func() {
		defer close(done)
		if r, ok := c.root.(interface {
			UseCluster(cluster string, list []*policy.Usage)
		}); ok && !c.closed {
			r.UseCluster(cluster, list)
		}
	})
	if !ok {
		close(done)
	}
	return done
}

// Rest returns when the tree has nothing to do: it waits for connections, timers and picks at most. It
// fails with the cause of ctx's end.
func (c *Channel) Rest(ctx context.Context) error {
	select {
	case <-c.owner.Rest():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close closes the tree. Queued picks end with [ErrClosed]. When it returns, no
// callback comes any more, and no goroutine of the tree is left.
func (c *Channel) Close() {
	c.mu.Lock()
	c.begun = true
	if c.held { // its tree is not built only to be closed
		c.held = false
		c.reject()
	}
	c.mu.Unlock()
	c.owner.Close(func() {
		if c.root != nil {
			c.unwatch()
			c.root.Close()
		}
		c.closed = true
		c.reported, c.routing, c.rerouted = nil, nil, false
		c.publish(balancer.State{
			ConnectivityState: connectivity.Shutdown,
			Picker:            &policy.ErrPicker{Err: ErrClosed},
		})
	})
}
