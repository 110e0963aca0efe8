package observe

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/resource"
)

// StateOptions are what a State needs.
type StateOptions struct {
	Logger *slog.Logger
	Events *Events
	Ledger *ledger.Ledger
	// Overload reports what lbd itself lacks; it may be nil.
	Overload *overload.Monitor
	// ConnectMode stands for the empty mode.
	ConnectMode resource.ConnectMode
	// Name and Version are those of the daemon.
	Name, Version string
	// Hosts returns a function that lists what hosts a target. It fails while pushed
	// resources are being loaded.
	Hosts func() (func(target string) []Host, error)
	// Draining ends when the daemon drains, and every wait for a change with it.
	Draining context.Context
}

// State reads the state of the daemon, its targets and clusters. Its methods may be
// called from any goroutine.
type State struct {
	// Fixed after build.
	options StateOptions
	ledger  *ledger.Ledger
	started time.Time
	waiting *prometheus.GaugeVec // requests that wait for changes, by kind
	unwatch func()               // ends the reports of shortages

	shortages  shortages
	conditions conditions
}

// NewState returns a State. It must be closed.
func NewState(o StateOptions) *State {
	s := &State{options: o, ledger: o.Ledger, started: time.Now().UTC()}
	s.waiting = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "lbd_watchers",
		Help: "Requests that wait for changes now, by kind: sse, longpoll.",
	}, []string{"kind"})
	s.waiting.WithLabelValues("longpoll")
	s.waiting.WithLabelValues("sse")
	s.shortages.events = o.Events
	s.unwatch = o.Overload.Watch(s.shortages.overloaded)
	s.AddConditions(s.shortageConditions)
	return s
}

// Close ends the reports of shortages.
func (s *State) Close() { s.unwatch() }
