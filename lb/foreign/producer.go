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
	build func() // once
	value balancer.Producer
	end   func()
	refs  int // guarded by the producers' mu
}

// get returns b's Producer, and the function that releases it. The last release closes
// it.
func (p *producers) get(b balancer.ProducerBuilder) (balancer.Producer, func()) {
	p.mu.Lock()
	one := p.built[b]
	if one == nil {
		one = new(producer)
		one.build = sync.OnceFunc(func() { one.value, one.end = b.Build(noCalls{}) })
		if p.built == nil {
			p.built = make(map[balancer.ProducerBuilder]*producer)
		}
		p.built[b] = one
	}
	one.refs++
	p.mu.Unlock()
	one.build()
	return one.value, sync.OnceFunc(func() { p.giveBack(b, one) })
}

func (p *producers) giveBack(b balancer.ProducerBuilder, one *producer) {
	p.mu.Lock()
	one.refs--
	last := one.refs == 0 && p.built[b] == one
	if last {
		delete(p.built, b)
	}
	p.mu.Unlock()
	if last {
		one.end()
	}
}

// close closes all. The next get builds another.
func (p *producers) close() {
	p.mu.Lock()
	built := p.built
	p.built = nil
	p.mu.Unlock()
	for _, one := range built {
		one.build() // waits if another goroutine builds it
		one.end()
	}
}

// noCalls is the connection of Producers: lbd has none for calls.
type noCalls struct{}

var errNoCalls = status.Error(codes.Unimplemented, "lbd makes no calls on the connections of its SubConns")

func (noCalls) Invoke(context.Context, string, any, any, ...grpc.CallOption) error { return errNoCalls }

func (noCalls) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errNoCalls
}
