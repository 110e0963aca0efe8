package service

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Options are what a Service needs from around it.
type Options struct {
	Logger *slog.Logger
	// Connectors hold a Connector for each connect mode; ConnectMode is the
	// one that stands for the empty mode.
	Connectors  map[resource.ConnectMode]lb.Connector
	ConnectMode resource.ConnectMode
	// Wait is how long a pick may queue that does not say.
	Wait time.Duration
	// Lookup looks a name up for LOGICAL_DNS clusters; nil is the system's.
	Lookup func(ctx context.Context, host string) ([]string, error)
	// Draw gives uniform random numbers, from any goroutine; nil is
	// math/rand/v2's.
	Draw func() uint64
	// Name is what the daemon calls itself to its operators: in the dashboard and in
	// GET /v1/daemon.
	Name string
	// Version is shown by the build metric, and beside Name.
	Version string
	// RequireIfMatch refuses changes that do not say what they replace.
	RequireIfMatch bool
	// MaxRemoved is how many clusters one change of the resource files may remove;
	// nil is half of those that they provide, at least 1.
	MaxRemoved *int
	// Targets are the full names of xds targets that are hosted from the start,
	// as TargetName returns them.
	Targets []string
	// MaxLeases bounds the leases held at a time; 0 is DefaultMaxLeases.
	MaxLeases int
	// Bootstrap is that of the management server that the service is to
	// [Service.Follow]; nil without one.
	Bootstrap *bootstrap.Config
	// OnDemand is how many known clusters it is asked for at a time because picks
	// name them, OnDemandUnknown how many names that it has not confirmed, and
	// OnDemandIdle how long a cluster stays that nobody picks from; 0 are
	// DefaultOnDemand, DefaultOnDemandUnknown and DefaultOnDemandIdle.
	OnDemand, OnDemandUnknown int
	OnDemandIdle              time.Duration
	// HistoryBytes is the budget of the history of all clusters; 0 is
	// DefaultHistoryBytes, and -1 keeps none.
	HistoryBytes int
	// MaxWatchers bounds who watches at a time; 0 is MaxWatchers.
	MaxWatchers int
	// Overload knows what lbd itself lacks; nil knows of nothing.
	Overload *overload.Monitor

	maxSeries int // of the ledger
}

// Service is lbd without its edges.
type Service struct {
	// Fixed after New.
	*sources.Sources
	*picks.Picker
	*observe.State
	*observe.Watches
	*observe.Metrics
	options Options
	targets *ledger.Ledger
	events  *observe.Events
	history *observe.History

	leaving  atomic.Bool     // since Leave
	draining context.Context // ends with Drain
	drain    context.CancelFunc
}

// New returns a Service without resources. Its [Service.Commit] is to be the
// store's OnCommit; [Service.Start] begins.
func New(o Options) *Service {
	if o.Draw == nil {
		o.Draw = rand.Uint64
	}
	s := &Service{options: o, events: observe.NewEvents(o.Logger)}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.targets = ledger.New(ledger.Options{
		Channel: lb.Options{Registry: lb.Policies(), Draw: o.Draw, Connectors: o.Connectors, Overload: o.Overload},
		Report:  s.events.Report, MaxSeries: o.maxSeries, Draining: s.draining,
	})
	s.State = observe.NewState(observe.StateOptions{
		Logger: o.Logger, Events: s.events, Ledger: s.targets, Overload: o.Overload, ConnectMode: o.ConnectMode,
		Name: o.Name, Version: o.Version, Draining: s.draining,
		Hosts: func() (func(string) []observe.Host, error) { return s.Hosts() },
	})
	s.Watches = observe.NewWatches(s.State, o.MaxWatchers)
	s.history = observe.NewHistory(s.targets, o.HistoryBytes)
	s.Metrics = observe.NewMetrics(s.State, s.history)
	s.Sources = sources.New(sources.Options{
		Logger: o.Logger, Ledger: s.targets, Events: s.events, BreakerEased: s.events.BreakerEased, Draining: s.draining,
		Registry: s.Registry(), Overload: o.Overload, Lookup: o.Lookup, ConnectMode: o.ConnectMode,
		Bootstrap: o.Bootstrap, Targets: o.Targets, RequireIfMatch: o.RequireIfMatch, MaxRemoved: o.MaxRemoved,
		OnDemand: o.OnDemand, OnDemandUnknown: o.OnDemandUnknown, OnDemandIdle: o.OnDemandIdle,
	})
	s.Picker = picks.New(picks.Options{
		Ledger: s.targets, Breakers: s.events, Demand: s.Demand, MaxLeases: o.MaxLeases,
		Overload: o.Overload, Registry: s.Registry(), Draining: s.draining,
	})
	s.AddConditions(s.SourceConditions)
	return s
}

// Start takes the resources of st, and returns once every tree has its config.
func (s *Service) Start(ctx context.Context, st sources.Store) error {
	err := s.Sources.Start(ctx, st)
	s.history.Start()
	return err
}

// Leave lets readiness fail, so that callers go elsewhere. Everything else goes on.
func (s *Service) Leave() { s.leaving.Store(true) }

// Drain lets readiness fail, and whoever waits for a change have what there is,
// so that callers go elsewhere. Picks go on.
func (s *Service) Drain() { s.drain() }

// Close ends the watches, the leases, and then the trees. Picks that queue end with
// ShuttingDown. The store is the caller's to close.
func (s *Service) Close() {
	s.Drain()
	s.history.Close()
	s.State.Close()
	s.Watches.Close()
	s.Picker.Close()
	s.Sources.Close()
	s.targets.Close()
}

// Events returns the last events that f chooses, the newest first.
func (s *Service) Events(f observe.EventFilter) []observe.Event { return s.events.Last(f) }

// History returns what happened to a cluster lately, as [History.Of] does.
func (s *Service) History(r observe.HistoryRequest) (*observe.ClusterHistory, error) {
	return s.history.Of(r)
}

// DefaultWait is how long a pick may queue that does not say.
func (s *Service) DefaultWait() time.Duration { return s.options.Wait }

// Check is one line of a health probe's answer.
type Check struct {
	Name   string
	OK     bool
	Detail string
	// Warning marks a condition of the daemon that does not make the probe fail.
	Warning bool
}

// Health returns the checks of being ready to answer picks: those of the service,
// and one for each condition of the daemon.
func (s *Service) Health() []Check {
	loaded := Check{Name: "store", OK: s.Loaded(), Detail: "what was pushed is loaded"}
	if !loaded.OK {
		loaded.Detail = "what was pushed is being loaded"
	}
	serving := Check{Name: "serving", OK: s.draining.Err() == nil && !s.leaving.Load(), Detail: "taking picks"}
	if !serving.OK {
		serving.Detail = "shutting down"
	}
	checks := []Check{loaded, serving}
	for _, c := range s.Conditions() {
		detail := c.Text
		if c.Remedy != "" {
			detail += ": " + c.Remedy
		}
		checks = append(checks, Check{Name: string(c.Kind), OK: !c.NotReady, Warning: !c.NotReady, Detail: detail})
	}
	return checks
}
