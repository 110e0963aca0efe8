package lb

import (
	"google.golang.org/grpc/balancer"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
)

// clientConn is the ClientConn of the topmost policy. It overrides every method of the
// interface that grpc requires to embed.
type clientConn struct {
	balancer.ClientConn

	channel *Channel
}

func (cc *clientConn) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	return newSubConn(cc.channel, addrs, opts)
}

func (cc *clientConn) RemoveSubConn(sc balancer.SubConn) { sc.Shutdown() }

func (cc *clientConn) UpdateAddresses(sc balancer.SubConn, addrs []resolver.Address) {
	sc.UpdateAddresses(addrs)
}

// UpdateState keeps the state until the end of the batch, which publishes it.
func (cc *clientConn) UpdateState(s balancer.State) {
	if !cc.channel.closed {
		cc.channel.reported = &s
	}
}

// ResolveNow does nothing: updates of resources need no request.
func (cc *clientConn) ResolveNow(resolver.ResolveNowOptions) {}

func (cc *clientConn) Target() string { return "" }

func (cc *clientConn) MetricsRecorder() estats.MetricsRecorder {
	return &estats.UnimplementedMetricsRecorder{}
}
