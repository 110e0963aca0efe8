// Package outlierdetection is gRPC's outlier_detection: endpoints whose requests
// end worse than others' get none for a while (gRFC A50).
//
// What is counted is how held picks end: successes and errors. An ejected
// endpoint's SubConns fail for the policies below, until they are given back.
package outlierdetection

import (
	"fmt"
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
			Conn: conn, byAddresses: make(map[string]*endpoint),
			state: balancer.State{ConnectivityState: connectivity.Connecting},
		}
		b.child = policy.NewSwitch(conn.Child(b))
		return b
	})
}

// outlierDetection belongs to the owner, all of it. It is the ClientConn that
// its child's calls go to.
type outlierDetection struct {
	*policy.Conn

	config *policy.OutlierDetectionConfig // nil before the first
	child  *policy.Switch
	state  balancer.State // the child's; its Picker is nil before the first

	// The endpoints that have a SubConn.
	byAddresses map[string]*endpoint
	endpoints   []*endpoint
	ejected     int // of them
	// ejectedIn counts the ejected by priority; nil where that is not known
	// any more.
	ejectedIn []int

	// detecting is whether the config asks for it. began is when the interval
	// that runs did, while detecting.
	detecting bool
	began     time.Time
	timer     *policy.Timer

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
	b.ejectedIn = nil
	switch detecting := detects(cfg); {
	case detecting && !b.detecting:
		b.start()
	case !detecting && b.detecting:
		b.stop()
	case detecting:
		b.schedule(cfg.Interval - time.Since(b.began))
	}
	if old != nil && (old.BaseEjectionTime != cfg.BaseEjectionTime || old.MaxEjectionTime != cfg.MaxEjectionTime) {
		b.retime()
	}
	_ = b.child.Update(cfg.Child) // the Switch has said so
	return nil
}

// detects reports whether cfg can eject an endpoint. pick_first keeps to the
// endpoint that it has, and gRPC ejects none from under it (gRFC A61).
func detects(cfg *policy.OutlierDetectionConfig) bool {
	return (cfg.SuccessRate != nil || cfg.FailurePercentage != nil) && endpointPolicy(cfg.Child) != policy.PickFirst
}

// start begins the first interval: what was counted before is forgotten.
func (b *outlierDetection) start() {
	b.detecting, b.began = true, time.Now()
	for _, e := range b.endpoints {
		e.ended.Store(0)
	}
	b.schedule(b.config.Interval)
	b.Mark(b, &b.pending) // picks are to be counted
}

// stop gives every endpoint back, and forgets that it was ejected before.
func (b *outlierDetection) stop() {
	b.detecting = false
	b.timer.Stop()
	for _, e := range b.endpoints {
		if e.ejection.Load() != nil {
			b.giveBack(e)
		}
		e.times = 0
	}
	b.Mark(b, &b.pending)
}

// schedule lets the interval end in d.
func (b *outlierDetection) schedule(d time.Duration) {
	b.timer.Stop()
	b.timer = b.AfterFunc(max(d, minInterval), b.endInterval)
}

// retime tells the ejected endpoints' policies of another end, which other
// ejection times make.
func (b *outlierDetection) retime() {
	for _, e := range b.endpoints {
		if ejection := e.ejection.Load(); ejection != nil {
			e.eject(&policy.EjectedError{Reason: ejection.Reason, Until: b.until(e)})
		}
	}
}

// UpdateState takes the child's state.
func (b *outlierDetection) UpdateState(s balancer.State) {
	b.state = s
	b.Mark(b, &b.pending)
}

// Report sends the child's state up under a picker of its own.
func (b *outlierDetection) Report() {
	if b.closed || b.state.Picker == nil {
		return
	}
	b.ClientConn.UpdateState(balancer.State{
		ConnectivityState: b.state.ConnectivityState,
		Picker:            &picker{child: b.state.Picker, counts: b.detecting},
	})
}

// NewSubConn makes a SubConn that can be ejected with its endpoint.
func (b *outlierDetection) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	sc := &subConn{listener: opts.StateListener}
	opts.StateListener = func(s balancer.SubConnState) {
		if s.ConnectivityState == connectivity.Shutdown {
			b.leave(sc)
		}
		sc.heard(s)
	}
	inner, err := b.ClientConn.NewSubConn(addrs, opts)
	if err != nil {
		return nil, err
	}
	sc.SubConn = inner
	b.join(sc, policy.EndpointOfAddresses(addrs).Addresses)
	return sc, nil
}

// join makes sc one of its endpoint's SubConns. An endpoint can have several:
// while its policy is being changed, and below policies that make one for each
// address.
func (b *outlierDetection) join(sc *subConn, addresses []string) {
	k := key(addresses)
	e := b.byAddresses[k]
	if e == nil {
		e = &endpoint{key: k, address: addresses[0], index: len(b.endpoints)}
		b.byAddresses[k] = e
		b.endpoints = append(b.endpoints, e)
	}
	e.subConns = append(e.subConns, sc)
	sc.endpoint = e
}

// leave forgets sc, and its endpoint with the last of them.
func (b *outlierDetection) leave(sc *subConn) {
	e := sc.endpoint
	if !e.remove(sc) {
		return
	}
	delete(b.byAddresses, e.key)
	last := len(b.endpoints) - 1
	b.endpoints[e.index] = b.endpoints[last]
	b.endpoints[e.index].index = e.index
	b.endpoints[last] = nil
	b.endpoints = b.endpoints[:last]
	if e.ejection.Load() != nil {
		b.ejected--
		b.ejectedIn = nil
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
