// Package outlierdetection is gRPC's outlier_detection: endpoints whose requests
// end worse than others' get none for a while (gRFC A50).
//
// What is counted is how held picks end: successes and errors. An ejected
// endpoint's SubConns fail for the policies below, until they are given back. It
// stays ejected as long as the config has it, whatever becomes of its SubConns.
package outlierdetection

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
)

// minInterval bounds how often a tree is busy with its endpoints, whatever is
// configured: gRPC takes an interval of zero for no pause at all.
const minInterval = 10 * time.Millisecond

// Builder builds outlier_detection policies, whose config is a
// *[policy.OutlierDetectionConfig].
type Builder struct{}

// Name returns "outlier_detection_experimental".
func (Builder) Name() string { return policy.OutlierDetection }

// Build returns an outlier_detection policy.
func (Builder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return policy.Build(cc, func(conn *policy.Conn) balancer.Balancer {
		b := &outlierDetection{
			Conn:  conn,
			state: balancer.State{ConnectivityState: connectivity.Connecting},
		}
		b.child = policy.NewSwitch(conn.Child(b))
		return b
	})
}

// outlierDetection belongs to the owner, all of it. It is the ClientConn that
// its child's calls go to.
//
// It is in every cluster's tree, so that its config can come, change and go
// without a connection made anew. While it detects nothing it counts nothing.
type outlierDetection struct {
	*policy.Conn

	config   *policy.OutlierDetectionConfig // nil before the first
	child    *policy.Switch
	state    balancer.State // the child's; its Picker is nil before the first
	subConns []*subConn     // those of the child, in no order

	// While detecting; zero otherwise. The endpoints are those of the config,
	// of all priorities, in its order. They may have a SubConn, or several: while
	// their policy is being changed, and below policies that make one for each
	// address.
	detecting   bool
	endpoints   []*endpoint
	byAddresses map[string]*endpoint
	ejected     map[*endpoint]struct{}
	configs     uint64    // how many gave endpoints
	began       time.Time // when the interval that runs did
	timer       *policy.Timer

	pending bool
	closed  bool
}

func (b *outlierDetection) UpdateClientConnState(s balancer.ClientConnState) error {
	cfg, ok := s.BalancerConfig.(*policy.OutlierDetectionConfig)
	if !ok {
		return fmt.Errorf("%s: config is a %T", policy.OutlierDetection, s.BalancerConfig)
	}
	old := b.config
	b.config = cfg
	switch detecting := detects(cfg); {
	case detecting && !b.detecting:
		b.start()
	case !detecting && b.detecting:
		b.stop()
	case detecting:
		b.takeEndpoints()
		b.schedule(cfg.Interval - time.Since(b.began))
		if old.BaseEjectionTime != cfg.BaseEjectionTime || old.MaxEjectionTime != cfg.MaxEjectionTime {
			b.retime()
		}
	}
	_ = b.child.Update(cfg.Child) // the Switch has said so
	return nil
}

// start begins the first interval.
func (b *outlierDetection) start() {
	b.detecting, b.began = true, time.Now()
	b.byAddresses, b.ejected = make(map[string]*endpoint), make(map[*endpoint]struct{})
	b.takeEndpoints()
	b.schedule(b.config.Interval)
	b.Mark(b, &b.pending) // picks are to be counted
}

// stop gives every endpoint back, and forgets all that was counted.
func (b *outlierDetection) stop() {
	b.timer.Stop()
	for _, e := range b.endpoints {
		if e.ejection != nil {
			b.giveBack(e)
		}
	}
	for _, sc := range b.subConns {
		sc.endpoint.Store(nil)
	}
	b.detecting, b.endpoints, b.byAddresses, b.ejected = false, nil, nil, nil
	b.Mark(b, &b.pending)
}

// takeEndpoints takes over the config's endpoints. One that it goes on having
// stays as it was judged.
func (b *outlierDetection) takeEndpoints() {
	b.configs++
	before := b.endpoints
	b.endpoints = make([]*endpoint, 0, len(before))
	for priority, value := range endpointsOf(b.config.Child) {
		k := key(value.Addresses)
		e := b.byAddresses[k]
		if e == nil {
			e = &endpoint{key: k}
			b.byAddresses[k] = e
		}
		if e.seen == b.configs {
			continue
		}
		e.value, e.priority, e.seen = value, priority, b.configs
		b.endpoints = append(b.endpoints, e)
	}
	for _, e := range before {
		if e.seen != b.configs {
			b.forget(e)
		}
	}
	for _, sc := range b.subConns {
		if sc.endpoint.Load() == nil {
			b.join(sc)
		}
	}
}

// forget lets go of an endpoint that the config has no more. A priority that is
// kept may have a SubConn to it for a while.
func (b *outlierDetection) forget(e *endpoint) {
	delete(b.byAddresses, e.key)
	if e.ejection != nil {
		delete(b.ejected, e)
		e.giveBack()
	}
	for _, sc := range e.subConns {
		sc.endpoint.Store(nil)
	}
}

// schedule lets the interval end in d.
func (b *outlierDetection) schedule(d time.Duration) {
	b.timer.Stop()
	b.timer = b.AfterFunc(max(d, minInterval), b.endInterval)
}

// retime tells the ejected endpoints' policies of another end, which other
// ejection times make.
func (b *outlierDetection) retime() {
	for e := range b.ejected {
		e.eject(&policy.EjectedError{Reason: e.ejection.Reason, Until: b.until(e)})
	}
}

// UpdateState takes the child's state.
func (b *outlierDetection) UpdateState(s balancer.State) {
	b.state = s
	b.Mark(b, &b.pending)
}

// Report sends the child's state up, under a picker that returns the SubConns of
// the tree and counts those that have an endpoint.
func (b *outlierDetection) Report() {
	if b.closed || b.state.Picker == nil {
		return
	}
	s := b.state
	s.Picker = &picker{child: s.Picker, failure: policy.FailureOf(s)}
	b.ClientConn.UpdateState(s)
}

// NewSubConn makes a SubConn that can be ejected with its endpoint.
func (b *outlierDetection) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	sc := &subConn{policy: b, value: policy.EndpointOfAddresses(addrs), listener: opts.StateListener}
	sc.partial = len(addrs) < len(sc.value.Addresses)
	opts.StateListener = sc.heard
	inner, err := b.ClientConn.NewSubConn(addrs, opts)
	if err != nil {
		return nil, err
	}
	sc.SubConn, sc.index = inner, len(b.subConns)
	b.subConns = append(b.subConns, sc)
	if b.detecting {
		b.join(sc)
	}
	return sc, nil
}

// join makes sc one of its endpoint's SubConns, where the config has that.
func (b *outlierDetection) join(sc *subConn) {
	if e := b.byAddresses[key(sc.value.Addresses)]; e != nil {
		e.subConns = append(e.subConns, sc)
		sc.endpoint.Store(e)
	}
}

// leave forgets sc, but not its endpoint.
func (b *outlierDetection) leave(sc *subConn) {
	last := len(b.subConns) - 1
	b.subConns[sc.index] = b.subConns[last]
	b.subConns[sc.index].index = sc.index
	b.subConns[last] = nil
	b.subConns = b.subConns[:last]
	if e := sc.endpoint.Load(); e != nil {
		e.subConns = slices.DeleteFunc(e.subConns, func(s *subConn) bool { return s == sc })
	}
}

// ResolverError goes to the child.
func (b *outlierDetection) ResolverError(err error) { b.child.ResolverError(err) }

// UpdateSubConnState is not called: SubConns have listeners.
func (b *outlierDetection) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle goes to the child.
func (b *outlierDetection) ExitIdle() { b.child.ExitIdle() }

func (b *outlierDetection) Close() {
	b.closed = true
	b.timer.Stop()
	b.child.Close()
}
