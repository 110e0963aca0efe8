package parity_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

// pickFirstDifferences are those of endpoints with several addresses.
var pickFirstDifferences = []difference{
	{
		row:      "an endpoint with several addresses, all of which failed",
		grpc:     inBubble(secondIsIdle),
		lbd:      inBubble(addressesTriedAgain),
		grpcDoes: "tries b again", lbdDoes: "tries a and b again",
	},
}

// secondIsIdle ends the back-off of the second address first, after both failed.
func secondIsIdle(t *testing.T) string {
	side := newGRPCPolicy(t, "pick_first", `{}`)
	side.manual = true
	side.update([]resolver.Endpoint{{Addresses: []resolver.Address{{Addr: "a"}, {Addr: "b"}}}})
	side.report("a", connectivity.Connecting, connectivity.TransientFailure)
	side.report("b", connectivity.Connecting, connectivity.TransientFailure)
	side.report("b", connectivity.Idle)
	return "tries " + strings.Join(side.connects, " and ") + " again"
}

// starts is a Connector whose attempts fail. It records their addresses.
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
	offered := channel.Offer(&resource.Config{Target: "cluster:c", Roots: []string{"c"}, Clusters: few.Of(map[string]*resource.ClusterConfig{"c": {
		Cluster: resource.DefaultCluster("c"),
		Assignment: &resource.Assignment{Name: "c", Localities: []*resource.LocalityEndpoints{{
			Weight: 1, Endpoints: []*resource.Endpoint{{Addresses: []string{"a", "b"}, Weight: 1}},
		}}},
	}})})
	must(t, offered.Wait(t.Context()))
	time.Sleep(2 * time.Second) // the first back-off
	synctest.Wait()
	noted.mu.Lock()
	defer noted.mu.Unlock()
	if len(noted.all) < 2 {
		return fmt.Sprintf("tries %q only", noted.all)
	}
	return "tries " + noted.all[1] + " again"
}
