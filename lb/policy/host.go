package policy

import (
	"math/rand/v2"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"
)

// Build makes a policy for whatever cc is. In a tree of lbd's it is what build
// returns. Under any other ClientConn, such as a gRPC channel's, the policy gets
// a tree of its own, without other policies, and each call into it is a batch.
func Build(cc balancer.ClientConn, build func(*Conn) balancer.Balancer) balancer.Balancer {
	if conn, ok := cc.(*Conn); ok {
		return build(conn)
	}
	h := new(host)
	h.owner = NewSerializer(h.endBatch)
	tree := &Tree{
		Owner:    h.owner,
		Counters: NewCounters(),
		Draw:     rand.Uint64,
		Events:   func(Event) {},
	}
	h.policy = build(NewConn(&hostConn{ClientConn: cc, owner: h.owner}, tree))
	return h
}

// host runs a policy under a ClientConn that is not lbd's.
type host struct {
	owner *Serializer

	// Owner only.
	policy balancer.Balancer
	ended  []chan struct{} // of those who wait for the end of this batch
}

// do runs f in the tree and returns when its batch has ended: what the policy
// had to say about it has been said.
func (h *host) do(f func()) {
	done := make(chan struct{})
	if h.owner.Post(func() {
		h.ended = append(h.ended, done)
		f()
	}) {
		<-done
	}
}

func (h *host) endBatch() {
	for _, done := range h.ended {
		close(done)
	}
	h.ended = nil
}

func (h *host) UpdateClientConnState(s balancer.ClientConnState) error {
	var err error
	h.do(func() { err = h.policy.UpdateClientConnState(s) })
	return err
}

func (h *host) ResolverError(err error) { h.do(func() { h.policy.ResolverError(err) }) }

// UpdateSubConnState does nothing: policies listen to their SubConns.
func (h *host) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

func (h *host) ExitIdle() { h.do(h.policy.ExitIdle) }

func (h *host) Close() { h.owner.Close(h.policy.Close) }

// hostConn posts what a foreign ClientConn calls.
type hostConn struct {
	balancer.ClientConn

	owner *Serializer
}

func (c *hostConn) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	listener := opts.StateListener
	opts.StateListener = func(s balancer.SubConnState) { c.owner.Post(func() { listener(s) }) }
	return c.ClientConn.NewSubConn(addrs, opts)
}
