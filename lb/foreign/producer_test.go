package foreign_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/lbd-dev/lbd/test/lbtest"
)

// counter builds Producers, which are the numbers of their making, and notes those
// that are closed.
type counter struct {
	built  atomic.Int64
	closed atomic.Int64 // the sum of their numbers
	conn   atomic.Value // the last one's
}

func (c *counter) Build(cc any) (balancer.Producer, func()) {
	c.conn.Store(cc)
	n := c.built.Add(1)
	return n, func() { c.closed.Add(n) }
}

func TestProducers(t *testing.T) {
	s := play(t)
	x, y := new(counter), new(counter)
	var a, b balancer.SubConn
	s.act(func() {
		a, b = s.subConn("a", addressesOf(endpoint("a:1"))...), s.subConn("b", addressesOf(endpoint("b:1"))...)
	})
	get := func(sc balancer.SubConn, from *counter, want int64) func() {
		t.Helper()
		p, end := sc.GetOrBuildProducer(from)
		equal(t, "Producer", lbtest.As[int64](t, p), want)
		return end
	}
	closed := func(when string, ofX, ofY int64) {
		t.Helper()
		equal(t, when+", closed of x", x.closed.Load(), ofX)
		equal(t, when+", closed of y", y.closed.Load(), ofY)
	}
	end1, end2 := get(a, x, 1), get(a, x, 1)
	get(a, y, 1)
	endB := get(b, x, 2)
	end1()
	end1()
	closed("one of two has given it back, twice", 0, 0)
	end2()
	closed("both have given it back", 1, 0)
	endB()
	closed("the other SubConn's is given back", 1+2, 0)

	// No state outlives another; what is given back then is closed already.
	end := get(a, x, 3)
	s.say("a:1", ready, nil)
	closed("another state", 1+2+3, 1)
	again := get(a, x, 4)
	end()
	closed("what is closed is given back", 1+2+3, 1)
	again()
	closed("the next is given back", 1+2+3+4, 1)

	get(a, x, 5)
	s.act(a.Shutdown)
	closed("the SubConn is shut down", 1+2+3+4+5, 1)
	get(b, y, 2)
	var late balancer.SubConn
	s.onClose = func() {
		late = s.subConn("late", addressesOf(endpoint("c:1"))...)
		get(late, y, 3)
	}
	s.Close()
	closed("the policy's end", 1+2+3+4+5, 1+2+3)
}

// The policy gets a state once the Producers of the one before are closed.
func TestProducersAreClosedFirst(t *testing.T) {
	s := play(t)
	x := new(counter)
	var sc balancer.SubConn
	s.act(func() {
		var err error
		sc, err = s.cc.NewSubConn(addressesOf(endpoint("a:1")), balancer.NewSubConnOptions{StateListener: func(state balancer.SubConnState) {
			p, _ := sc.GetOrBuildProducer(x)
			if state.ConnectivityState == connectivity.Ready && p != balancer.Producer(int64(1)) || state.ConnectivityState == idle && p != balancer.Producer(int64(2)) {
				t.Errorf("%v: got %v", state.ConnectivityState, p)
			}
		}})
		if err != nil {
			t.Error(err)
		}
	})
	s.say("a:1", ready, nil)
	s.say("a:1", idle, nil)
	s.Close()
	equal(t, "closed", x.closed.Load(), 1+2)
}

func TestProducersBuiltByMany(t *testing.T) {
	s := play(t)
	x := new(counter)
	var sc balancer.SubConn
	s.act(func() { sc = s.subConn("a", addressesOf(endpoint("a:1"))...) })
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 50 {
				p, end := sc.GetOrBuildProducer(x)
				if p == nil {
					t.Error("no Producer")
				}
				end()
			}
		})
	}
	for range 50 {
		s.say("a:1", ready, nil)
		s.say("a:1", idle, nil)
	}
	all.Wait()
	n := x.built.Load()
	equal(t, "closed", x.closed.Load(), n*(n+1)/2) // each once
}

func TestProducersMakeNoCalls(t *testing.T) {
	s := play(t)
	x := new(counter)
	s.act(func() {
		_, end := s.subConn("a", addressesOf(endpoint("a:1"))...).GetOrBuildProducer(x)
		end()
	})
	conn := lbtest.As[grpc.ClientConnInterface](t, x.conn.Load())
	if err := conn.Invoke(t.Context(), "/a/b", nil, nil); status.Code(err) != codes.Unimplemented {
		t.Errorf("a call: %v", err)
	}
	if stream, err := conn.NewStream(t.Context(), nil, "/a/b"); stream != nil || status.Code(err) != codes.Unimplemented {
		t.Errorf("a stream: %v, %v", stream, err)
	}
}
