package picks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/ledger/ledgertest"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kit is a Picker with one cluster, "orders", whose endpoints count as connected.
type kit struct {
	*Picker

	t      *testing.T
	ledger *ledger.Ledger
	draw   func() uint64 // replaceable while there is no pick
}

func newKit(t *testing.T, maxLeases int, drops []resource.Drop, limit uint32, localities ...*resource.LocalityEndpoints) *kit {
	t.Helper()
	var mu sync.Mutex
	seeded := rand.New(rand.NewPCG(1, 2))
	k := &kit{t: t, draw: func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return seeded.Uint64()
	}}
	draining, drain := context.WithCancel(t.Context())
	events := observe.NewEvents(slog.New(slog.DiscardHandler))
	k.ledger = ledger.New(ledger.Options{
		Channel: lb.Options{
			Registry: lb.Policies(), Draw: func() uint64 { return k.draw() },
			Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil},
		},
		Report: events.Report, Draining: draining,
	})
	k.Picker = New(Options{
		Ledger: k.ledger, Breakers: events, Demand: func(string) (*ledger.Target, error) { return nil, nil },
		MaxLeases: maxLeases, Registry: prometheus.NewRegistry(), Draining: draining,
	})
	t.Cleanup(k.close)
	t.Cleanup(drain)
	config := ledgertest.Config("orders", &resource.Assignment{Name: "orders", Drops: drops, Localities: localities})
	config.Clusters["orders"].Cluster.MaxRequests = limit
	target := resolver.Target("orders")
	k.ledger.Apply([]resolver.Change{{Target: target, Config: config}})
	if err := k.ledger.Settle(t.Context(), []string{target}); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *kit) close() {
	k.Close()
	k.ledger.Close()
}

// locality has n endpoints, named zone-0 and so on.
func locality(zone string, priority, weight uint32, n int) *resource.LocalityEndpoints {
	l := &resource.LocalityEndpoints{ID: resource.Locality{Zone: zone}, Priority: priority, Weight: weight}
	for i := range n {
		l.Endpoints = append(l.Endpoints, &resource.Endpoint{Addresses: []string{fmt.Sprint(zone, "-", i)}, Weight: 1, Locality: l.ID})
	}
	return l
}

func (k *kit) pick(r Request) (out Picks, err error) {
	r.Cluster = "orders"
	err = k.Pick(context.Background(), &r, &out)
	return out, err
}

// expect checks how many leases and requests in flight the cluster has.
func (k *kit) expect(leases int64) *ledger.Cluster {
	k.t.Helper()
	c, err := k.ledger.Find("orders", "")
	if err != nil {
		k.t.Fatal(err)
	}
	own, _ := c.Own()
	if n := own.Breaker().InFlight; n != leases || c.Totals.Leases.Load() != leases {
		k.t.Errorf("%d in flight, %d leases, want %d", n, c.Totals.Leases.Load(), leases)
	}
	return c
}

func code(err error) fault.Code {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Code
	}
	return ""
}
