package foreign

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// producers holds a SubConn's Producers, one for each builder.
type producers struct {
	mu    sync.Mutex
	built map[balancer.ProducerBuilder]*producer
}

// producer is a Producer with references.
type producer struct {
	build func() (value balancer.Producer, end func()) // once
	refs  int                                          // guarded by the producers' mu
}

// get returns b's Producer, and the function that releases it. The last release closes
// it.
func (p *producers) get(b balancer.ProducerBuilder) (balancer.Producer, func()) {
	p.mu.Lock()
	one := p.built[b]
	if one == nil {
		one = &producer{build: sync.OnceValues(func() (balancer.Producer, func()) { return b.Build(noCalls{}) })}
		if p.built == nil {
			p.built = make(map[balancer.ProducerBuilder]*producer)
		}
		p.built[b] = one
	}
	one.refs++
	p.mu.Unlock()
	value, end := one.build()
	return value, sync.OnceFunc(func() {
		if p.release(b, one) {
			end()
		}
	})
}

// release reports whether it was the last reference of a Producer that is not closed.
func (p *producers) release(b balancer.ProducerBuilder, one *producer) (last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one.refs--
	last = one.refs == 0 && p.built[b] == one
	if last {
		delete(p.built, b)
	}
	return last
}

// close closes all. The next get builds another.
func (p *producers) close() {
	p.mu.Lock()
	built := p.built
	p.built = nil
	p.mu.Unlock()
	for _, one := range built {
		_, end := one.build() // waits if another goroutine builds it
		end()
	}
}

// noCalls is the connection of Producers: lbd has none for calls.
type noCalls struct{}

var errNoCalls = status.Error(codes.Unimplemented, "lbd makes no calls on the connections of its SubConns")

func (noCalls) Invoke(context.Context, string, any, any, ...grpc.CallOption) error { return errNoCalls }

func (noCalls) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errNoCalls
}
