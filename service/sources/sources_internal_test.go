package sources

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/resource"
)

// newTestSources returns sources with a ledger of their own, and without a store.
func newTestSources(t *testing.T) *Sources {
	t.Helper()
	draining, drain := context.WithCancel(t.Context())
	log := slog.New(slog.DiscardHandler)
	events := observe.NewEvents(log)
	hosted := ledger.New(ledger.Options{
		Channel: lb.Options{
			Registry: lb.Policies(), Draw: rand.Uint64,
			Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil},
		},
		Report: events.Report, Draining: draining,
	})
	s := New(Options{
		Logger: log, Ledger: hosted, Events: events, Draining: draining,
		Registry: prometheus.NewRegistry(),
	})
	t.Cleanup(func() {
		drain()
		s.Close()
		hosted.Close()
	})
	return s
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
