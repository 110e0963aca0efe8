package parity_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/foreign"
	"github.com/lbd-dev/lbd/lb/leastrequest"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/weightedroundrobin"
	"github.com/lbd-dev/lbd/lb/weightedtarget"
	"github.com/lbd-dev/lbd/xds/resource"
)

// policyDifferences are those of endpoint policies and of cluster_impl.
var policyDifferences = []difference{
	{
		row: "weighted_target: another policy of a locality",
		grpc: inBubble(func(t *testing.T) string {
			side := newGRPCPolicy(t, policy.WeightedTarget, `{"targets": {"x": {"weight": 1, "childPolicy": [{"`+servingName+`": {}}]}}}`)
			return otherChild(side, func() { side.config = strings.Replace(side.config, servingName, waitingName, 1) })
		}),
		lbd: inBubble(func(t *testing.T) string {
			leaf, locality := servingName, &policy.Locality{Weight: 1}
			side := newLBDPolicy(t, func([]*resource.Endpoint) policy.Child {
				return policy.Child{Config: &policy.WeightedTargetConfig{Targets: []policy.Target{{Locality: locality, Child: policy.Child{Policy: leaf}}}}}
			}, weightedtarget.Builder(), foreign.Wrap(balancer.Get(servingName)), foreign.Wrap(balancer.Get(waitingName)))
			return otherChild(side, func() { leaf = waitingName })
		}),
		grpcDoes: "picks wait for the new one", lbdDoes: "picks get the answer of the old one",
	},
	byPolicy("least_request: an endpoint that was lost and is READY again", "picks a b", "picks b", func(t *testing.T) policySide {
		return newGRPCPolicy(t, leastrequest.Name, `{"choiceCount": 10}`)
	}, lbdLeastRequest, lostWhileHeld),
	{
		row:  "the breaker under contention",
		grpc: grpcBreaker, lbd: lbdBreaker,
		grpcDoes: "checks the limit, then adds", lbdDoes: "never holds more than 10 of 10",
	},
	byPolicy("weighted_round_robin without load reports", "b gets 1 × as many as a", "b gets 3 × as many as a", grpcWeighted, lbdWeighted, ratio),
	byPolicy("weighted_round_robin: an endpoint that weighs less than a 131,070th of the heaviest", "picks a", "picks a b", grpcWeighted, lbdWeighted, heaviest),
}

// otherChild replaces a child that serves by one that connects.
func otherChild(side policySide, other func()) string {
	side.endpoints("a")
	other()
	side.endpoints("a", "b")
	switch _, _, err := side.pick(); {
	case errors.Is(err, balancer.ErrNoSubConnAvailable):
		return "picks wait for the new one"
	case errors.Is(err, errRequest):
		return "picks get the answer of the old one"
	default:
		return fmt.Sprint(err)
	}
}

func lbdLeastRequest(t *testing.T) policySide {
	side := newLBDPolicy(t, func(all []*resource.Endpoint) policy.Child {
		return policy.Child{Config: leastrequest.Config{ChoiceCount: 10}, Endpoints: all}
	}, leastrequest.Builder())
	draw := uint64(1)
	side.tree.Draw = func() uint64 { // a linear congruential generator: every endpoint is among ten draws
		draw = draw*6364136223846793005 + 1442695040888963407
		return draw
	}
	return side
}

// lostWhileHeld has requests in flight to a only, and ends a's connection.
func lostWhileHeld(t *testing.T, side policySide) string {
	side.endpoints("a", "b")
	var ends []func(balancer.DoneInfo)
	for range 10 {
		address, done, err := side.pick()
		if err != nil {
			t.Fatalf("pick: %v", err)
		}
		if address == "b" {
			ends = append(ends, done)
		}
	}
	for _, done := range ends {
		done(policy.NoInfo)
	}
	side.lose("a")
	return used(t, side, 100)
}

func grpcBreaker(t *testing.T) string {
	source := grpcSource(t, "internal/xds/xdsclient/requests_counter.go")
	if strings.Contains(source, "if atomic.LoadUint32(&c.numRequests) >= max {") && strings.Contains(source, "atomic.AddUint32(&c.numRequests, 1) return nil") {
		return "checks the limit, then adds"
	}
	return "counts in another way"
}

// lbdBreaker has many concurrent callers.
func lbdBreaker(*testing.T) string {
	const limit, callers, rounds = 10, 8, 20_000
	counters := policy.NewCounters().Acquire(resource.ServiceKey{Cluster: "c"})
	var held, most atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range rounds {
				if !counters.Hold(limit) {
					continue
				}
				n := held.Add(1)
				for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
				}
				held.Add(-1)
				counters.Unhold()
			}
		})
	}
	wg.Wait()
	if n := most.Load(); n > limit {
		return fmt.Sprintf("holds %d of %d", n, limit)
	}
	return "never holds more than 10 of 10"
}

func grpcWeighted(t *testing.T) policySide {
	return newGRPCPolicy(t, weightedroundrobin.Name, `{"blackoutPeriod": "0s", "weightUpdatePeriod": "1s"}`)
}

// lbdWeighted gives b the weight 3 in EDS, and all others 1.
func lbdWeighted(t *testing.T) policySide {
	side := newLBDPolicy(t, func(all []*resource.Endpoint) policy.Child {
		return policy.Child{
			Config: weightedroundrobin.Config{
				WeightUpdatePeriod: time.Second, WeightExpirationPeriod: 3 * time.Minute, ErrorUtilizationPenalty: 1,
			},
			Endpoints: all,
		}
	}, weightedroundrobin.Builder())
	side.weight = func(address string) uint32 {
		if address == "b" {
			return 3
		}
		return 1
	}
	return side
}

func ratio(t *testing.T, side policySide) string {
	side.endpoints("a", "b")
	counts := complete(t, side, 4000)
	return fmt.Sprintf("b gets %.0f × as many as a", float64(counts["b"])/math.Max(1, float64(counts["a"])))
}

// heaviest reports a load of a that makes its weight 10,000,000 times that of b.
func heaviest(t *testing.T, side policySide) string {
	side.endpoints("a", "b")
	for range 10 {
		address, done, err := side.pick()
		if err != nil {
			t.Fatalf("pick: %v", err)
		}
		load := &orcav3.OrcaLoadReport{RpsFractional: 1e6, ApplicationUtilization: 0.1}
		if address == "b" {
			load = &orcav3.OrcaLoadReport{RpsFractional: 1, ApplicationUtilization: 1}
		}
		done(balancer.DoneInfo{ServerLoad: load})
	}
	time.Sleep(2 * time.Second)
	synctest.Wait()
	return used(t, side, 200_000)
}
