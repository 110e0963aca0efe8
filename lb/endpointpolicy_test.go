package lb_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/leastrequest"
	"github.com/lbd-dev/lbd/lb/pickfirst"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/ringhash"
	"github.com/lbd-dev/lbd/lb/weightedroundrobin"
	"github.com/lbd-dev/lbd/xds/resource"
)

func by(p resource.Policy, ls ...*resource.LocalityEndpoints) *resource.Config {
	cc := &resource.ClusterConfig{
		Cluster:    resource.DefaultCluster(cluster),
		Assignment: &resource.Assignment{Name: cluster, Localities: ls},
	}
	cc.Cluster.Policy = p
	return configOf(cc)
}

// within lets p pick within a locality that is drawn.
func within(p resource.Policy) resource.Policy {
	return resource.Policy{Name: resource.PolicyWRRLocality, Child: &p}
}

var (
	ringHash     = resource.Policy{Name: ringhash.Name, Config: `{"maxRingSize":4096,"minRingSize":16}`}
	pickFirst    = resource.Policy{Name: pickfirst.Name}
	leastRequest = resource.Policy{Name: leastrequest.Name, Config: `{"choiceCount":2}`}
)

// TestLazyPoliciesServe: a policy that connects to little, and to nothing unasked,
// serves in every place that a cluster can put it: first, after its connection is
// lost, and when that endpoint does not come back.
func TestLazyPoliciesServe(t *testing.T) {
	tests := []struct {
		name     string
		policy   resource.Policy
		attempts int // before there was a pick
	}{
		{"ring_hash", ringHash, 0},
		{"ring_hash within localities", within(ringHash), 0},
		{"pick_first", pickFirst, 1},
		{"pick_first within localities", within(pickFirst), 2},
		{"least_request", leastRequest, 4},
		{"least_request within localities", within(leastRequest), 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				board := newSwitchboard()
				ls := []*resource.LocalityEndpoints{locality("a", 0, 1, 2), locality("b", 0, 1, 2)}
				for _, l := range ls {
					for _, e := range l.Endpoints {
						board.up[e.Addresses[0]] = true
					}
				}
				c := newChannel(t, board, func(o *lb.Options) { o.Draw = half })
				offer(t, c, by(tt.policy, ls...))
				synctest.Wait()
				attempts := 0
				for _, n := range board.attempts {
					attempts += n
				}
				if attempts != tt.attempts {
					t.Errorf("%d attempts before there was a pick, want %d", attempts, tt.attempts)
				}
				pick := func() string {
					t.Helper()
					call := newCall()
					call.HasHash, call.Hash = true, 1
					noError(t, c.Pick(call, time.Second))
					if call.Endpoint.Addresses[0] != call.Address {
						t.Errorf("the endpoint is %v, the address %s", call.Endpoint, call.Address)
					}
					return call.Address
				}
				first := pick()
				time.Sleep(time.Minute) // of the bubble: a connection that lasts is made again at once
				board.lose(first)
				board.set(true, first)
				synctest.Wait()
				if got := pick(); got != first && tt.policy.Child == nil && tt.policy.Name != leastrequest.Name {
					t.Errorf("%s after it was lost and came back, want %s", got, first)
				}
				board.set(false, first)
				synctest.Wait()
				if got := pick(); got == first {
					t.Errorf("still %s, which is down", got)
				}
			})
		})
	}
}

// TestOrderOfAddressesKeepsConnections: an endpoint whose addresses come in another
// order keeps its connection, whatever the policy (gRFC A61), and picks go on.
func TestOrderOfAddressesKeepsConnections(t *testing.T) {
	const v4, v6 = "192.0.2.1:80", "[2001:db8::1]:80"
	weighted := resource.Policy{
		Name: weightedroundrobin.Name, Config: `{"weightUpdatePeriod":"1s"}`,
	}
	for _, p := range []resource.Policy{resource.RoundRobinPolicy(), weighted, leastRequest, ringHash, pickFirst} {
		t.Run(string(p.Name), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				board := newSwitchboard()
				board.set(true, v4)
				board.set(false, v6)
				c := newChannel(t, board)
				wait := time.Second // until the first has connected, and no more
				for _, order := range [][]string{{v6, v4}, {v4, v6}, {v6, v4}} {
					l := locality("a", 0, 1, 1)
					l.Endpoints[0].Addresses = order
					offer(t, c, by(p, l))
					call := newCall()
					call.WaitForReady, call.HasHash = true, true
					if err := c.Pick(call, wait); err != nil {
						t.Fatalf("the addresses are %v: %v", order, err)
					}
					wait = 0
					if call.Address != v4 || call.Endpoint != l.Endpoints[0] {
						t.Errorf("picked %s of %v, want %s of %v", call.Address, call.Endpoint, v4, l.Endpoints[0])
					}
				}
				synctest.Wait()
				if n := board.open(); n != 1 {
					t.Errorf("%d connections", n)
				}
				if n := board.attempted(v4) + board.attempted(v6); n > 2 { // pick_first's are of an address each
					t.Errorf("%d attempts", n)
				}
			})
		})
	}
}

// TestRingsKnowLocalities: a ring's size shows whether its endpoints are weighed
// as gRPC does, with their localities, or by their own weights alone.
func TestRingsKnowLocalities(t *testing.T) {
	light, heavy := locality("a", 0, 3, 2), locality("b", 0, 5, 1)
	light.Endpoints[1].Weight = 2
	tests := []struct {
		policy resource.Policy
		places []*resource.LocalityEndpoints
		size   int
	}{
		{ringHash, []*resource.LocalityEndpoints{light, heavy}, 17},  // 16 by their own
		{within(ringHash), []*resource.LocalityEndpoints{light}, 19}, // 18
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.size), func(t *testing.T) {
			c := newChannel(t, nil)
			offer(t, c, by(tt.policy, tt.places...))
			call := newCall()
			call.HasHash = true
			noError(t, c.Pick(call, time.Second))
			call.Again()
			call.Trace = new(policy.Trace)
			noError(t, c.Pick(call, time.Second))
			e, ok := call.Trace.Steps[len(call.Trace.Steps)-1].(policy.EndpointStep)
			walk, ring := e.Detail.(*ringhash.RingWalk)
			if !ok || !ring || walk.Size != tt.size {
				t.Errorf("explained %+v, want a ring of %d entries", e.Detail, tt.size)
			}
		})
	}
}
