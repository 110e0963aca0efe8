package service

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/doctor"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/reports"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/lrs"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Options configure a Service.
type Options struct {
	Logger *slog.Logger
	// Connectors has a Connector for each connect mode.
	Connectors map[resource.ConnectMode]lb.Connector
	// Dialer connects to endpoints for the Doctor and for Reconnect; nil for never.
	Dialer Dialer
	// Sources are the settings of what resources come from.
	Sources sources.Settings
	// Draw returns uniform random numbers, to any goroutine; nil is math/rand/v2's.
	Draw func() uint64
	// Name is the daemon's name in the dashboard and in GET /v1/daemon; Version is next to
	// it, and in the build metric.
	Name, Version string
	// MaxLeases and MaxLeaseShare are those of [picks.Options].
	MaxLeases     int
	MaxLeaseShare float64
	// Fleet shares the limits of clusters with limit_scope fleet with other daemons; nil if this daemon has
	// no store that it shares. Close closes it.
	Fleet Fleet
	// TimelineBytes and MaxWatchers are the limits of [observe.NewTimeline] and [observe.NewWatches].
	TimelineBytes, MaxWatchers int
	// Overload reports shortages of lbd itself; nil reports none.
	Overload *overload.Monitor
	// Turns is the budget of bulk work; nil for none.
	Turns *overload.Turns
	// Conditions are those of parts of the daemon that are not in the service, as in [observe.StateOptions].
	Conditions []func() []observe.Condition
	// Certificates returns certificates of lbd, for reports; nil for none. It must not block.
	Certificates func() []doctor.Certificate

	maxSeries int // of the ledger
}

// Service has the parts of lbd without HTTP, fixed after New. Each user takes the parts that it needs.
type Service struct {
	Picks    *picks.Picker
	Sources  *sources.Sources
	Overlays *Overlays
	Reports  *reports.Table
	State    *observe.State
	Watches  *observe.Watches
	Events   *observe.Events
	Timeline *observe.Timeline
	Metrics  *observe.Metrics
	Replicas *Replicas
	Doctor   *Doctor
	// Inbound is for the store and the xDS client.
	Inbound sources.Inbound
	// Loads are the loads of the picks of all trees, for load reports.
	Loads lrs.Loads

	targets  *ledger.Ledger
	dialer   Dialer
	draining context.Context // ends with Drain
	drain    context.CancelFunc
	leaving  atomic.Bool // after Leave
}

// New returns a Service without resources: the store must call its Inbound before [Service.Start] loads
// what is stored.
func New(o Options) *Service {
	ownDraws := o.Draw == nil
	if ownDraws {
		o.Draw = rand.Uint64
	}
	s := &Service{Events: observe.NewEvents(o.Logger), Replicas: &Replicas{fleet: o.Fleet}, dialer: o.Dialer}
	if o.Fleet != nil {
		s.Replicas.id = o.Fleet.ID()
	}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.targets = ledger.New(ledger.Options{
		Channel: lb.Options{Registry: lb.Policies(), Draw: o.Draw, Connectors: o.Connectors, Overload: o.Overload},
		Report:  s.Events.Report, MaxSeries: o.maxSeries, Turns: o.Turns, Draining: s.draining, Fleet: o.Fleet,
	})
	s.Loads, s.Reports = s.targets.Loads(), reports.New(s.targets)
	s.Timeline = observe.NewTimeline(s.targets, o.TimelineBytes)
	registry := prometheus.NewRegistry()
	s.Sources, s.Inbound = sources.New(sources.Options{
		Settings: o.Sources, SharedStore: o.Fleet != nil, Replica: s.Replicas.id, Logger: o.Logger, Ledger: s.targets, Events: s.Events,
		Draining: s.draining, Registry: registry, Overload: o.Overload, Turns: o.Turns, Recent: s.Timeline.Recent,
	})
	s.Picks = picks.New(picks.Options{
		Replica: picks.TagOf(s.Replicas.id), Ledger: s.targets, Events: s.Events, Demand: s.Sources.Demand, MaxLeases: o.MaxLeases,
		MaxLeaseShare: o.MaxLeaseShare, OwnDraws: ownDraws, Overload: o.Overload, Registry: registry, Draining: s.draining,
	})
	s.State = observe.NewState(observe.StateOptions{
		Logger: o.Logger, Events: s.Events, Ledger: s.targets, Overload: o.Overload, Turns: o.Turns, ConnectMode: o.Sources.ConnectMode,
		Name: o.Name, Version: o.Version, Draining: s.draining, Conditions: append(slices.Clip(o.Conditions), s.Sources.Conditions),
		Hosts: s.Sources.Hosts, Covers: s.Sources.Covers, Covered: s.covered, Registered: s.Sources.Registration,
	})
	s.Watches = observe.NewWatches(s.State, o.MaxWatchers)
	s.Metrics = observe.NewMetrics(registry, s.State, s.Timeline)
	s.Overlays = &Overlays{sources: s.Sources, picks: s.Picks, targets: s.targets, draining: s.draining}
	s.Doctor = &Doctor{parts: s, options: o, samples: newPickSamples(s.targets), begun: time.Now()}
	return s
}

// covered returns the resources that are covered, each with what covers it.
func (s *Service) covered() map[string]string {
	out := make(map[string]string)
	for _, c := range s.Sources.AllCovered(nil) {
		out[c.Resource] = c.By.Phrase() + " covers that of " + c.Source.Phrase()
	}
	return out
}

// Start connects the sources, loads what is stored, and returns when every tree has its config.
func (s *Service) Start(ctx context.Context, c sources.Connections) error {
	err := s.Sources.Start(ctx, c)
	s.Timeline.Start()
	s.Doctor.running.Go(func() { s.Doctor.samples.run(s.draining) })
	return err
}

// Check is one line of a health probe's answer.
type Check struct {
	Name   string
	OK     bool
	Detail string
	// Warning marks a condition of the daemon that does not make the probe fail.
	Warning bool
}

// Leave makes readiness fail, so that callers use another daemon. All else continues.
func (s *Service) Leave() { s.leaving.Store(true) }

// Readiness returns the checks of readiness: those of the service, and one for each
// condition of the daemon within a scope.
func (s *Service) Readiness(in *ledger.Scope) []Check {
	loaded := Check{Name: "store", OK: true, Detail: "what was pushed is loaded"}
	if err := s.Sources.Unread(); err != nil {
		loaded.OK, loaded.Detail = false, err.Error()
	}
	serving := Check{Name: "serving", OK: s.draining.Err() == nil && !s.leaving.Load(), Detail: "taking picks"}
	if !serving.OK {
		serving.Detail = "shutting down"
	}
	checks := []Check{loaded, serving}
	if troubled := s.State.Troubled(in); len(troubled) > 0 { // not a reason to take the daemon out of use: others would fail, too
		first := troubled[0]
		checks = append(checks, Check{Name: "clusters", Warning: true, Detail: fmt.Sprintf("%d fail, such as %s: %v", len(troubled), first.Name, first.Trouble)})
	}
	for _, c := range s.State.Conditions(in) {
		detail := c.Text
		if c.Remedy != "" {
			detail += ": " + c.Remedy
		}
		checks = append(checks, Check{Name: string(c.Kind), OK: !c.NotReady, Warning: !c.NotReady, Detail: detail})
	}
	return checks
}

// Drain makes readiness fail, and answers all callers that wait for a change. Picks
// continue.
func (s *Service) Drain() { s.drain() }

// Close ends the watches, the leases, and then the trees. Queued picks fail with
// ShuttingDown. The caller closes the store afterwards.
func (s *Service) Close() {
	s.Drain()
	if s.Replicas.fleet != nil {
		s.Replicas.fleet.Close() // before the leases end, whose requests go on
	}
	s.Timeline.Close()
	s.Doctor.running.Wait()
	s.State.Close()
	s.Watches.Close()
	s.Reports.Close()
	s.Picks.Close()
	s.Sources.Close()
	s.targets.Close()
}
