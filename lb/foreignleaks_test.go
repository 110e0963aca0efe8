package lb_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"

	"github.com/lbd-dev/lbd/lb/policy"
)

// counting is a picker of any READY SubConn that counts the picks whose Done it waits for.
type counting struct {
	sc    balancer.SubConn
	waits *atomic.Int64
}

func (p counting) Build(info base.PickerBuildInfo) balancer.Picker {
	for p.sc = range info.ReadySCs {
		return p
	}
	return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
}

func (p counting) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	p.waits.Add(1)
	return balancer.PickResult{SubConn: p.sc, Done: func(balancer.DoneInfo) { p.waits.Add(-1) }}, nil
}

// TestForeignPolicyLeavesNothing: the Done of each pick is called, and no connection
// outlives the policy. Policies of package base leave their SubConns behind when they
// are closed, as grpc permits.
func TestForeignPolicyLeavesNothing(t *testing.T) {
	const name = "counting_policy"
	picks := new(atomic.Int64)
	balancer.Register(base.NewBalancerBuilder(name, counting{waits: picks}, base.Config{}))
	synctest.Test(t, func(t *testing.T) {
		board := newSwitchboard()
		ch := newChannel(t, board)
		board.set(true, "a-0:80", "a-1:80", "b-0:80")
		offer(t, ch, foreignConfig(name, "{}", locality("a", 0, 1, 2)))
		synctest.Wait()
		waits := func(when string, want int64) {
			t.Helper()
			if got := picks.Load(); got != want {
				t.Errorf("%s: %d picks wait for their Done, want %d", when, got, want)
			}
		}
		call := newCall()
		noError(t, ch.Pick(call, 0))
		waits("nothing is held", 0)
		call = newCall()
		call.Hold = true
		noError(t, ch.Pick(call, 0))
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
