// Package outlierdetection is gRPC's outlier_detection: endpoints whose requests fail
// more often than others' get none for a while (gRFC A50).
//
// It counts how held picks end. The SubConns of an ejected endpoint fail for the
// policies below. The endpoint stays ejected while the config has it, even if its
// SubConns change.
package outlierdetection

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// minInterval limits how often outliers are detected: gRPC allows an interval of zero.
const minInterval = 10 * time.Millisecond

// Builder returns the builder of outlier_detection policies, whose config is a
// *[policy.OutlierDetectionConfig].
func Builder() policy.Builder {
	return policy.NewBuilder(policy.OutlierDetection, func(conn *policy.Conn) policy.Policy {
		b := new(outlierDetection)
		b.Init(conn, policy.OutlierDetection, b, b.picker)
		return b
	})
}

// outlierDetection belongs to the owner. It is in every cluster's tree, so that
// configuring it does not reconnect endpoints. Without a config it counts nothing.
type outlierDetection struct {
	policy.Wrapper

	unconfigured bool // the last config has no outlier detection
	// idle has the SubConns of the child while nothing is detected, and some that are shut
	// down. They cost nothing else then.
	idle []*policy.Connection

	*detection // nil while nothing is detected
}

// detection is what the policy has while it detects outliers. The endpoints are those of the
// config, of all priorities, in its order. An endpoint may have several SubConns: while its
// policy changes, or of policies that make one for each address.
type detection struct {
	config      *policy.OutlierDetectionConfig
	subConns    []*subConn // those of the child, in no order
	endpoints   []*endpoint
	byAddresses map[string]*endpoint
	ejected     map[*endpoint]struct{}
	configs     uint64    // how many gave endpoints
	began       time.Time // when the interval that runs did
	timer       *policy.Timer
}

func (b *outlierDetection) Update(given policy.Child) error {
	cfg, ok := given.Config.(*policy.OutlierDetectionConfig)
	if !ok {
		return fmt.Errorf("%s: config is a %T", policy.OutlierDetection, given.Config)
	}
	b.unconfigured = cfg.OutlierDetection == nil
	switch detecting := b.detects(cfg); {
	case detecting && b.detection == nil:
		b.start(cfg)
	case !detecting && b.detection != nil:
		b.stop()
	case detecting:
		old := b.config
		b.config = cfg
		b.takeEndpoints()
		b.schedule(cfg.Interval - time.Since(b.began))
		if old.BaseEjectionTime != cfg.BaseEjectionTime || old.MaxEjectionTime != cfg.MaxEjectionTime {
			for e := range b.ejected { // their ejections end at other times now
				e.eject(&policy.EjectedError{Reason: e.ejection.Reason, Until: b.until(e)})
			}
		}
	}
	_ = b.Child.Update(cfg.Child) // the Switch reports the error
	return nil
}

// start begins the first interval.
func (b *outlierDetection) start(cfg *policy.OutlierDetectionConfig) {
	b.detection = &detection{
		config: cfg, began: time.Now(), byAddresses: make(map[string]*endpoint), ejected: make(map[*endpoint]struct{}),
	}
	b.takeEndpoints()
	for _, c := range b.idle {
		if !isShutdown(c) {
			b.watch(c)
		}
	}
	b.idle = nil
	b.schedule(b.config.Interval)
	b.MarkStale() // picks are to be counted
}

// stop ends all ejections, and forgets all counts.
func (b *outlierDetection) stop() {
	b.timer.Stop()
	for _, e := range b.endpoints {
		if e.ejection != nil {
			b.uneject(e)
		}
	}
	for _, sc := range b.subConns { // none is ejected: their states are for their listeners again
		sc.setEndpoint(nil)
		sc.Listen(sc.listener)
		b.idle = append(b.idle, sc.Connection)
	}
	b.detection = nil
	b.MarkStale()
}

// takeEndpoints applies the config's endpoints. One that remains keeps its counts and
// ejection.
func (b *outlierDetection) takeEndpoints() {
	b.configs++
	before := b.endpoints
	b.endpoints = make([]*endpoint, 0, len(before))
	for priority, localities := range b.config.Priorities {
		for _, l := range localities {
			for _, value := range l.Endpoints {
				b.take(value, priority)
			}
		}
	}
	for _, e := range before {
		if e.seen != b.configs {
			b.forget(e)
		}
	}
	for _, sc := range b.subConns {
		if sc.endpoint == nil {
			b.join(sc)
		}
	}
}

// take adds an endpoint of the config, of which the highest priority counts.
func (b *outlierDetection) take(value *resource.Endpoint, priority int) {
	k := key(value.Addresses)
	e := b.byAddresses[k]
	if e == nil {
		e = &endpoint{key: k}
		e.finisher = e
		b.byAddresses[k] = e
	}
	if e.seen == b.configs {
		return
	}
	e.value, e.priority, e.seen = value, priority, b.configs
	b.endpoints = append(b.endpoints, e)
}

// forget removes an endpoint. A deactivated priority may keep a SubConn to it.
func (b *outlierDetection) forget(e *endpoint) {
	delete(b.byAddresses, e.key)
	if e.ejection != nil {
		delete(b.ejected, e)
		e.uneject()
	}
	for _, sc := range e.subConns {
		sc.setEndpoint(nil)
	}
}

// schedule ends the interval after d.
func (b *outlierDetection) schedule(d time.Duration) {
	b.timer.Stop()
	b.timer = b.AfterFunc(max(d, minInterval), b.endInterval)
}

func (b *outlierDetection) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	sc, err := b.ClientConn.NewSubConn(addrs, opts)
	if err != nil {
		return nil, err
	}
	c := policy.ConnectionOf(sc)
	if b.detection != nil {
		b.watch(c)
		return sc, nil
	}
	if len(b.idle) == cap(b.idle) { // before it grows
		b.idle = slices.DeleteFunc(b.idle, isShutdown)
	}
	b.idle = append(b.idle, c)
	return sc, nil
}

func isShutdown(c *policy.Connection) bool {
	return c.Reported().ConnectivityState == connectivity.Shutdown
}

// watch begins to handle the states of a SubConn.
func (b *outlierDetection) watch(c *policy.Connection) {
	sc := &subConn{Connection: c, policy: b, index: len(b.subConns), reported: c.Reported().ConnectivityState}
	sc.listener = c.Listen(sc.changed)
	b.subConns = append(b.subConns, sc)
	b.join(sc)
}

// join adds sc to its endpoint, if the config has it.
func (b *outlierDetection) join(sc *subConn) {
	if e := b.byAddresses[key(sc.Upstream().Endpoint.Addresses)]; e != nil {
		e.subConns = append(e.subConns, sc)
		sc.setEndpoint(e)
	}
}

// leave removes sc.
func (b *outlierDetection) leave(sc *subConn) {
	last := len(b.subConns) - 1
	b.subConns[sc.index] = b.subConns[last]
	b.subConns[sc.index].index = sc.index
	b.subConns[last] = nil
	b.subConns = b.subConns[:last]
	if e := sc.endpoint; e != nil {
		e.subConns = slices.DeleteFunc(e.subConns, func(s *subConn) bool { return s == sc })
	}
}

func (b *outlierDetection) Close() {
	if b.detection != nil {
		b.timer.Stop()
	}
	b.Wrapper.Close()
}

// detects reports whether cfg can eject an endpoint. As in gRPC, none of a policy is
// ejected that keeps its endpoint (gRFC A61).
func (b *outlierDetection) detects(cfg *policy.OutlierDetectionConfig) bool {
	if cfg.OutlierDetection == nil || cfg.SuccessRate == nil && cfg.FailurePercentage == nil {
		return false
	}
	traits := policy.TraitsOf(b.Builder(cfg.EndpointPolicy))
	return traits == nil || !traits.KeepsEndpoint
}

// Describe describes the policy with its child; only the child if outlier detection is
// not configured. The last error of an ejected endpoint is its ejection.
func (b *outlierDetection) Describe() policy.Node {
	if b.unconfigured {
		return b.Child.Describe()
	}
	return b.Wrapper.Describe()
}

// Summarize is the child's, with failed endpoints that are ejected counted as such.
func (b *outlierDetection) Summarize() policy.Summary {
	sum := b.Child.Summarize()
	if b.detection == nil {
		return sum
	}
	for e := range b.ejected {
		switch {
		case !e.fails():
		case len(sum.Priorities) == 0:
			sum.Census = sum.Census.Eject(1)
		case e.priority < len(sum.Priorities):
			sum.Priorities[e.priority] = sum.Priorities[e.priority].Eject(1)
		}
	}
	return sum
}
