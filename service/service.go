package service

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/reports"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// Options configure a Service.
type Options struct {
	Logger *slog.Logger
	// Connectors has a Connector for each connect mode.
	Connectors map[resource.ConnectMode]lb.Connector
	// Dialer connects to endpoints for reports of [Service.Examine]; nil for never.
	Dialer Dialer
	sources.Settings
	// Wait is the default of [picks.Request].Wait.
	Wait time.Duration
	// Draw returns uniform random numbers, to any goroutine; nil is math/rand/v2's.
	Draw func() uint64
	// Name is the daemon's name in the dashboard and in GET /v1/daemon; Version is next to
	// it, and in the build metric.
	Name, Version string
	// MaxLeases limits the leases; 0 is [picks.DefaultMaxLeases].
	MaxLeases int
	// MaxLeaseShare is the part of a cluster's circuit breaker that one owner may hold with
	// leases; 0 is no limit.
	MaxLeaseShare float64
	// Fleet shares the limits of clusters with limit_scope fleet with other daemons; nil if this daemon has
	// no store that it shares. Close closes it.
	Fleet Fleet
	// HistoryBytes limits the memory of the history of all clusters; 0 is the default,
	// and -1 keeps none.
	HistoryBytes int
	// MaxWatchers limits the watchers; 0 is [observe.MaxWatchers].
	MaxWatchers int
	// Overload reports shortages of lbd itself; nil reports none.
	Overload *overload.Monitor
	// Turns is the budget of bulk work; nil for none.
	Turns *overload.Turns

	maxSeries int // of the ledger
}

// Service is lbd without HTTP.
type Service struct {
	// Fixed after New.
	*sources.Sources
	*picks.Picker
	*reports.Table
	*observe.State
	*observe.Watches
	*observe.Metrics
	options Options
	targets *ledger.Ledger
	events  *observe.Events
	history *observe.History
	started time.Time

	certificates certificateSources
	samples      *pickSamples
	running      sync.WaitGroup // of samples

	leaving  atomic.Bool     // after Leave
	draining context.Context // ends with Drain
	drain    context.CancelFunc
}

// New returns a Service without resources. The store must call its [Service.Commit] and
// [Service.StoreLost]; [Service.Start] loads the store's resources.
func New(o Options) *Service {
	ownDraws := o.Draw == nil
	if ownDraws {
		o.Draw = rand.Uint64
	}
	s := &Service{options: o, events: observe.NewEvents(o.Logger), started: time.Now()}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.targets = ledger.New(ledger.Options{
		Channel: lb.Options{Registry: lb.Policies(), Draw: o.Draw, Connectors: o.Connectors, Overload: o.Overload},
		Report:  s.events.Report, MaxSeries: o.maxSeries, Turns: o.Turns, Draining: s.draining, Fleet: o.Fleet,
	})
	if o.SharedStore = o.Fleet != nil; o.SharedStore {
		o.Replica = o.Fleet.ID()
	}
	s.State = observe.NewState(observe.StateOptions{
		Logger: o.Logger, Events: s.events, Ledger: s.targets, Overload: o.Overload, Turns: o.Turns, ConnectMode: o.ConnectMode,
		Name: o.Name, Version: o.Version, Draining: s.draining,
		Hosts:  func() (func(string) []observe.Host, error) { return s.Hosts() },
		Covers: func(c *resource.ClusterConfig, name string) []observe.Cover { return s.Sources.Covers(c, name) },
		Registered: func(assignment, address string) (time.Duration, time.Time) {
			return s.Sources.Registration(assignment, address)
		},
	})
	s.Watches = observe.NewWatches(s.State, o.MaxWatchers)
	s.history = observe.NewHistory(s.targets, o.HistoryBytes)
	s.samples = newPickSamples(s.targets)
	s.Metrics = observe.NewMetrics(s.State, s.history)
	s.Sources = sources.New(sources.Options{
		Settings: o.Settings, Logger: o.Logger, Ledger: s.targets, Events: s.events, Draining: s.draining,
		Registry: s.Registry().Registry, Overload: o.Overload, Turns: o.Turns, Recent: s.history.Recent,
	})
	var replica picks.ReplicaTag
	if o.Fleet != nil {
		replica = picks.TagOf(o.Fleet.ID())
	}
	s.Picker = picks.New(picks.Options{
		Replica: replica,
		Ledger:  s.targets, Events: s.events, Demand: s.Sources.Demand, MaxLeases: o.MaxLeases, MaxLeaseShare: o.MaxLeaseShare, OwnDraws: ownDraws,
		Overload: o.Overload, Registry: s.Registry().Registry, Draining: s.draining,
	})
	s.Table = reports.New(s.targets)
	s.AddConditions(s.SourceConditions)
	return s
}

// Start loads the resources of st, and returns when every tree has its config.
func (s *Service) Start(ctx context.Context, st store.Store) error {
	err := s.Sources.Start(ctx, st)
	s.history.Start()
	s.running.Go(func() { s.samples.run(s.draining) })
	return err
}

// Leave makes readiness fail, so that callers use another daemon. All else continues.
func (s *Service) Leave() { s.leaving.Store(true) }

// Drain makes readiness fail, and answers all callers that wait for a change. Picks
// continue.
func (s *Service) Drain() { s.drain() }

// Close ends the watches, the leases, and then the trees. Queued picks fail with
// ShuttingDown. The caller closes the store afterwards.
func (s *Service) Close() {
	s.Drain()
	if s.options.Fleet != nil {
		s.options.Fleet.Close() // before the leases end, whose requests go on
	}
	s.history.Close()
	s.running.Wait()
	s.State.Close()
	s.Watches.Close()
	s.CloseReports()
	s.Picker.Close()
	s.Sources.Close()
	s.targets.Close()
}

// Events returns the last events that match f, the newest first.
func (s *Service) Events(f observe.EventFilter) []observe.Event { return s.events.Last(f) }

// ReportEndedStreams reports as an event that streams and long polls of callers without identity were
// ended because lbd is overloaded.
func (s *Service) ReportEndedStreams(n int) {
	s.events.Add(observe.Event{
		Type: observe.EventStreamsEnded,
		Says: fmt.Sprintf("lbd is overloaded: streams and long polls of callers without identity were ended: %d", n),
	})
}

// History returns the recent history of a cluster.
func (s *Service) History(r observe.HistoryRequest) (*observe.ClusterHistory, error) {
	return s.history.Of(r)
}

// DefaultWait is the default wait of picks.
func (s *Service) DefaultWait() time.Duration { return s.options.Wait }

// Check is one line of a health probe's answer.
type Check struct {
	Name   string
	OK     bool
	Detail string
	// Warning marks a condition of the daemon that does not make the probe fail.
	Warning bool
}

// Health returns the checks of readiness: those of the service, and one for each
// condition of the daemon within a scope.
func (s *Service) Health(in *ledger.Scope) []Check {
	loaded := Check{Name: "store", OK: true, Detail: "what was pushed is loaded"}
	if err := s.Unread(); err != nil {
		loaded.OK, loaded.Detail = false, err.Error()
	}
	serving := Check{Name: "serving", OK: s.draining.Err() == nil && !s.leaving.Load(), Detail: "taking picks"}
	if !serving.OK {
		serving.Detail = "shutting down"
	}
	checks := []Check{loaded, serving}
	for _, c := range s.Conditions(in) {
		detail := c.Text
		if c.Remedy != "" {
			detail += ": " + c.Remedy
		}
		checks = append(checks, Check{Name: string(c.Kind), OK: !c.NotReady, Warning: !c.NotReady, Detail: detail})
	}
	return checks
}
