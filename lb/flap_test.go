package lb_test

import (
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/resource"
)

// flapper is a real listener that goes away and comes back.
type flapper struct {
	address string
	down    atomic.Int64 // since when, Unix nanoseconds; 0 is up

	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn
	wg       sync.WaitGroup
}

func (f *flapper) start() error {
	l, err := net.Listen("tcp", f.address)
	if err != nil {
		return err
	}
	f.address = l.Addr().String()
	f.mu.Lock()
	f.listener = l
	f.mu.Unlock()
	f.down.Store(0)
	f.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns = append(f.conns, c)
			f.mu.Unlock()
		}
	})
	return nil
}

func (f *flapper) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listener != nil {
		_ = f.listener.Close()
		f.listener = nil
	}
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
	f.down.CompareAndSwap(0, time.Now().UnixNano())
}

// TestFlappingEndpoints lets real endpoints come and go under picks. Afterwards
// nothing is in flight, and (goleak) no goroutine is left. In its long form, a
// thousand of them for a minute, no pick may reach an endpoint that has been down
// for longer than the mode needs to notice, and a second for a busy machine.
func TestFlappingEndpoints(t *testing.T) {
	endpoints, duration, slack := 60, 500*time.Millisecond, time.Hour
	if os.Getenv("LBD_TEST_LONG") != "" {
		endpoints, duration, slack = 1000, time.Minute, time.Second
	}
	fs := make(map[string]*flapper, endpoints)
	var all []*flapper
	l := &resource.LocalityEndpoints{Weight: 1}
	for range endpoints {
		f := &flapper{address: "127.0.0.1:0"}
		noError(t, f.start())
		defer func() { f.stop(); f.wg.Wait() }()
		fs[f.address] = f
		all = append(all, f)
		l.Endpoints = append(l.Endpoints, &resource.Endpoint{Addresses: []string{f.address}, Weight: 1})
	}
	dialer := lb.NewDialer(nil, overload.Budget{}, nil, nil)
	defer dialer.Close()
	o := options(nil)
	o.Connectors = dialer.Connectors(resource.ConnectTCPHold)
	c := lb.NewChannel(o)
	defer c.Close()
	offer(t, c, config(nil, 1<<20, l))

	end := time.Now().Add(duration)
	var busy sync.WaitGroup
	busy.Go(func() {
		for time.Now().Before(end) {
			f := all[rand.IntN(len(all)/2)] // the other half stays
			if f.down.Load() == 0 {
				f.stop()
			} else if err := f.start(); err != nil {
				t.Log(err) // its port is taken for the moment
			}
			time.Sleep(time.Millisecond)
		}
	})
	var picked, late atomic.Int64
	var worst atomic.Int64
	for range 2 {
		busy.Go(func() {
			for time.Now().Before(end) {
				call := newCall()
				call.Hold = true
				if err := c.Pick(call, time.Second); err != nil {
					t.Error(err)
					return
				}
				picked.Add(1)
				if since := fs[call.Address].down.Load(); since != 0 {
					gone := time.Since(time.Unix(0, since))
					worst.Store(max(worst.Load(), int64(gone)))
					if gone > lb.NoticeTime(resource.ConnectTCPHold)+slack {
						late.Add(1)
					}
				}
				call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
				time.Sleep(100 * time.Microsecond)
			}
		})
	}
	busy.Wait()
	t.Logf("%d picks; the longest that a picked endpoint had been down: %v", picked.Load(), time.Duration(worst.Load()))
	if n := late.Load(); n > 0 {
		t.Errorf("%d picks to endpoints down for longer than %v", n, slack)
	}
	if picked.Load() == 0 {
		t.Error("nothing was picked")
	}
	counters := o.Counters.Get(resource.ServiceKey{Cluster: cluster})
	if n := counters.Breaker.InFlight(); n != 0 {
		t.Errorf("%d in flight", n)
	}
	for id, load := range counters.Loads() {
		if load.InProgress != 0 || load.Issued != load.Succeeded || load.Issued != uint64(picked.Load()) {
			t.Errorf("%s: %+v of %d picks", id, load, picked.Load())
		}
	}
}
