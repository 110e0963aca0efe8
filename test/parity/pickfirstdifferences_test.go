package parity_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// pickFirstDifferences are those of several addresses that are tried in turn.
var pickFirstDifferences = []difference{
	{
		row:      "an endpoint with several addresses, all of which failed",
		grpc:     inBubble(func(t *testing.T) string { return secondIsIdle(t) }),
		lbd:      inBubble(addressesTriedAgain),
		grpcDoes: "tries b again", lbdDoes: "tries a and b again",
	},
}

// secondIsIdle lets the back-off of the second address end first, after both failed.
func secondIsIdle(t *testing.T) string {
	side := newGRPCPolicy(t, "pick_first", `{}`)
	side.manual = true
	config, err := parseConfig(side.builder, []byte(side.config))
	if err != nil {
		t.Fatal(err)
	}
	side.call(func() {
		err = side.policy.UpdateClientConnState(balancer.ClientConnState{
			ResolverState:  resolver.State{Endpoints: []resolver.Endpoint{{Addresses: []resolver.Address{{Addr: "a"}, {Addr: "b"}}}}},
			BalancerConfig: config,
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	says := func(address string, states ...connectivity.State) {
		side.mu.Lock()
		sc := side.subConns[address]
		side.connects = nil
		side.mu.Unlock()
		sc.says(states...)
		synctest.Wait()
	}
	says("a", connectivity.Connecting, connectivity.TransientFailure)
	says("b", connectivity.Connecting, connectivity.TransientFailure)
	says("b", connectivity.Idle)
	return "tries " + strings.Join(side.connects, " and ") + " again"
}

// starts is a Connector that connects to nothing, and notes what it is to connect to.
type starts struct {
	mu  sync.Mutex
	all []string
}

func (s *starts) Start(addresses []string, report func(lb.Connection)) func() {
	s.mu.Lock()
	s.all = append(s.all, strings.Join(addresses, " and "))
	s.mu.Unlock()
	report(lb.Connection{Address: addresses[0], Err: errRequest})
	return func() {}
}

// addressesTriedAgain waits for the second attempt to connect to an endpoint.
func addressesTriedAgain(t *testing.T) string {
	noted := &starts{}
	channel := lb.NewChannel(lb.Options{
		Registry: lb.Policies(), Counters: policy.NewCounters(), Draw: func() uint64 { return 1 << 63 },
		Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: noted},
	})
	defer channel.Close()
	offered := channel.Offer(&resource.Config{Target: "cluster:c", Roots: []string{"c"}, Clusters: map[string]*resource.ClusterConfig{"c": {
		Cluster: resource.DefaultCluster("c"),
		Assignment: &resource.Assignment{Name: "c", Localities: []*resource.LocalityEndpoints{{
			Weight: 1, Endpoints: []*resource.Endpoint{{Addresses: []string{"a", "b"}, Weight: 1}},
		}}},
	}}})
	if err := offered.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // the first back-off
	synctest.Wait()
	noted.mu.Lock()
	defer noted.mu.Unlock()
	if len(noted.all) < 2 {
		return fmt.Sprintf("tries %q only", noted.all)
	}
	return "tries " + slices.Clone(noted.all)[1] + " again"
}
