package lb_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
)

// careless is a policy that counts the picks whose Done it waits for, and leaves
// its SubConns behind when it is closed, as grpc lets policies do.
type careless struct{ waits atomic.Int64 }

func (c *careless) Name() string { return "careless_policy" }

func (c *careless) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return &carelessBalancer{policy: c, cc: cc}
}

type carelessBalancer struct {
	balancer.Balancer
	policy *careless
	cc     balancer.ClientConn

	mu    sync.Mutex
	ready []balancer.SubConn
}

func (b *carelessBalancer) UpdateClientConnState(s balancer.ClientConnState) error {
	for _, a := range s.ResolverState.Addresses {
		var sc balancer.SubConn
		sc, err := b.cc.NewSubConn([]resolver.Address{a}, balancer.NewSubConnOptions{StateListener: func(s balancer.SubConnState) {
			if s.ConnectivityState == connectivity.Ready {
				b.isReady(sc)
			}
		}})
		if err != nil {
			return err
		}
		sc.Connect()
	}
	return nil
}

func (b *carelessBalancer) isReady(sc balancer.SubConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = append(b.ready, sc)
	b.cc.UpdateState(balancer.State{ConnectivityState: connectivity.Ready, Picker: &carelessPicker{sc: b.ready[0], waits: &b.policy.waits}})
}

func (b *carelessBalancer) Close() {}

type carelessPicker struct {
	sc    balancer.SubConn
	waits *atomic.Int64
}

func (p *carelessPicker) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	p.waits.Add(1)
	return balancer.PickResult{SubConn: p.sc, Done: func(balancer.DoneInfo) { p.waits.Add(-1) }}, nil
}

// TestForeignPolicyLeavesNothing: each of its picks is told its end, whatever
// becomes of it, and no connection outlives the policy.
func TestForeignPolicyLeavesNothing(t *testing.T) {
	c := new(careless)
	balancer.Register(c)
	synctest.Test(t, func(t *testing.T) {
		board := newSwitchboard()
		ch := newChannel(t, board)
		board.set(true, "a-0:80", "a-1:80", "b-0:80")
		offer(t, ch, foreignConfig(c.Name(), "{}", locality("a", 0, 1, 2)))
		synctest.Wait()
		waits := func(when string, want int64) {
			t.Helper()
			if got := c.waits.Load(); got != want {
				t.Errorf("%s: %d picks wait for their Done, want %d", when, got, want)
			}
		}
		call := newCall()
		if err := ch.Pick(call, 0); err != nil {
			t.Fatal(err)
		}
		waits("nothing is held", 0)
		call = newCall()
		call.Hold = true
		if err := ch.Pick(call, 0); err != nil {
			t.Fatal(err)
		}
		waits("one is held", 1)
		call.Held().Finish(policy.OutcomeError, policy.NoInfo)
		waits("it is given back", 0)
		call = newCall()
		call.Hold, call.Exclude = true, []string{"a-0:80", "a-1:80"}
		var r *policy.Refusal
		if err := ch.Pick(call, 0); !errors.As(err, &r) || r.Kind != policy.KindAllExcluded {
			t.Errorf("all excluded: %v", err)
		}
		waits("all are excluded", 0)

		if n := board.open(); n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
		offer(t, ch, config(nil, 100, locality("b", 0, 1, 1)))
		synctest.Wait()
		if n := board.open(); n != 1 || addressesOf(ch, 5) != "b-0:80" {
			t.Errorf("%d connections once the policy is another, want 1; picks go to %s", n, addressesOf(ch, 5))
		}
	})
}
