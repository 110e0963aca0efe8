package lb

import (
	"google.golang.org/grpc/balancer"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
)

// clientConn is the channel as its topmost policy sees it. grpc wants the
// interface embedded; every method of it is overridden.
type clientConn struct {
	balancer.ClientConn

	channel *Channel
}

// NewSubConn makes a SubConn of the channel's.
func (cc *clientConn) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	return newSubConn(cc.channel, addrs, opts)
}

// RemoveSubConn shuts sc down.
func (cc *clientConn) RemoveSubConn(sc balancer.SubConn) { sc.Shutdown() }

// UpdateAddresses gives sc other addresses.
func (cc *clientConn) UpdateAddresses(sc balancer.SubConn, addrs []resolver.Address) {
	sc.UpdateAddresses(addrs)
}

// UpdateState is published at the end of the batch.
func (cc *clientConn) UpdateState(s balancer.State) {
	if !cc.channel.closed {
		cc.channel.reported = &s
	}
}

// ResolveNow does nothing: what is pushed or watched comes by itself.
func (cc *clientConn) ResolveNow(resolver.ResolveNowOptions) {}

// Target is empty: policies know clusters, not targets.
func (cc *clientConn) Target() string { return "" }

// MetricsRecorder records nothing: lbd's metrics are its own.
func (cc *clientConn) MetricsRecorder() estats.MetricsRecorder {
	return &estats.UnimplementedMetricsRecorder{}
}
