package main

import (
	"context"
	"crypto/x509"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/lbd-dev/lbd"
	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/api/connections"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/web"
	"github.com/lbd-dev/lbd/xds/store"
)

// serve builds the parts, connects them, and serves until ctx ends. It calls ready with the
// addresses when they are served.
//
// The parts stop in the order of the data flow: API, leases, trees, connections, store.
func serve(ctx context.Context, c Config, ready func(addresses []string)) (err error) {
	lines, err := newQueuedLog(os.Stderr)
	if err != nil {
		return err
	}
	defer func() { _ = lines.Close() }() // what cannot be written is lost
	log := c.logger(lines)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // without logs to reopen, it has no effect
	defer signal.Stop(hangups)
	warnOfVariables(os.Environ(), log)
	overload.AddProcessors()
	limitMemory(log)
	b, err := loadBootstrap(c, log)
	if err != nil {
		return err
	}
	// crypto/x509 reads the system's roots once. Without a free descriptor it would trust no
	// certificate until the next start.
	_, _ = x509.SystemCertPool() // the first handshake reports an error
	lacks := overload.NewMonitor(nil)
	defer lacks.Close()
	turns, limit := overload.NewTurns(0), debug.SetMemoryLimit(-1)
	budget := budgetOf(c, limit, log)
	turns.Memory, turns.Monitor = overload.NewMemoryBudget(limit, overload.LiveMemory(), runtime.GC), lacks
	own := new(listenerAddresses)
	permit, err := c.permit(own)
	if err != nil {
		return err
	}
	dialer := lb.NewDialer(b, budget, lacks, permit)
	defer dialer.Close()
	sec, err := newSecurity(c, lacks, log)
	if err != nil {
		return err
	}
	defer sec.close()
	member, err := newMembership(c, log)
	if err != nil {
		return err
	}
	options := service.Options{
		Logger:     log,
		Connectors: dialer.Connectors(c.connectMode()),
		Dialer:     dialer,
		Name:       c.daemonName(),
		Version:    buildVersion(),
		Sources: sources.Settings{
			ConnectMode: c.connectMode(), Bootstrap: b, Targets: c.Target, RequireIfMatch: c.RequireIfMatch, MaxRemoved: c.MaxRemoved,
			Changelog: changelog.Limits{Changes: c.ChangeHistory, Bytes: c.ChangeHistoryBytes, Age: c.ChangeHistoryAge},
			OnDemand:  c.OnDemand, OnDemandUnknown: c.OnDemandUnknown, OnDemandIdle: c.OnDemandIdle,
			MaxRegistrations: c.MaxRegistrations, MaxExpired: c.MaxExpired,
		},
		TimelineBytes: c.timelineBytes(),
		Overload:      lacks,
		Turns:         turns,
		MaxLeases:     c.MaxLeases, MaxLeaseShare: c.MaxLeaseShare,
		MaxWatchers:  c.maxStreams(budget),
		Conditions:   []func() []observe.Condition{sec.conditions},
		Certificates: sec.certificates,
	}
	if member != nil {
		options.Fleet, options.Conditions = member, append(options.Conditions, member.conditions)
	}
	svc := service.New(options)
	defer svc.Close()

	listeners, err := sec.listen(ctx)
	if err != nil {
		return err
	}
	defer closeAll(listeners)
	own.set(listeners)
	to, err := openStore(ctx, c, svc, log)
	if err != nil {
		return err
	}
	if c.Data != "" { // which the store has locked
		svc.Picks.HandOver(filepath.Join(c.Data, "leases.json"), c.DrainTimeout, log)
	}
	// The trees close before the store, whose last commits update them.
	defer func() {
		svc.Close()
		err = errors.Join(err, to.Store.Close())
	}()
	if b != nil {
		f, followErr := follow(c, svc, b, lacks, turns, log)
		if followErr != nil {
			return followErr
		}
		to.Servers, to.LastGood, to.Reports = f.client, f.kept, f.reports
		defer func() {
			svc.Close()
			err = errors.Join(err, f.close())
		}()
	}
	if c.Resources != "" {
		directory := openFiles(c, b, turns, log)
		to.Files, to.WatchFiles = directory.archive, directory.watch
		defer func() { err = errors.Join(err, directory.close()) }()
	}
	err = svc.Start(ctx, to)
	if ctx.Err() != nil { // a signal, not a failure
		log.Info("stopped before serving")
		return nil
	}
	if err != nil {
		return err
	}
	if err = member.start(ctx, svc, to.Store, listeners); err != nil {
		return err
	}

	peers, err := member.peers()
	if err != nil {
		return err
	}
	defer peers.Close()
	quotas := c.quotas(budget)
	shedder := overload.NewShedder(overload.Signals{Memory: overload.MemoryUse(limit), Wait: overload.SchedulingWait(), Monitor: lacks})
	shedding := api.NewShedding(shedder.Sheds, turns.Memory)
	svc.Metrics.MustRegister(quotas, shedding, lines.lost(), reportedChecks(dialer))
	served := api.OptionsFor(svc)
	served.Peers, served.Callers, served.Audit, served.AccessLog, served.Logger = peers, sec.callers(), sec.audit, sec.access, log
	served.OpenAPI, served.Dashboard = lbd.OpenAPI, web.Files()
	served.Limits = api.Limits{Quotas: quotas, Shedding: shedding, Turns: turns, MaxTTL: c.MaxTTL, Wait: c.PickWait}
	handler := api.New(served)
	front := newFrontend(handler, connections.Options{Max: budget.Connections, MaxPeer: c.maxPeerConnections(budget)}, lacks, log)
	if err = front.startLoops(c.eventLoops(), handler, listeners, log); err != nil {
		return err
	}
	svc.Metrics.MustRegister(front.limiter)
	for _, f := range sec.logs {
		svc.Metrics.MustRegister(f)
	}
	addresses := make([]string, len(listeners))
	group, failed := errgroup.WithContext(ctx)
	group.Go(func() error { sec.reopenLogs(failed, hangups); return nil })
	group.Go(func() error {
		shedder.Run(failed, logShedding(log), endStreams(shedding.EndStreams, svc.Events.StreamsEnded))
		return nil
	})
	front.serving.Add(len(listeners))
	for i, l := range listeners {
		addresses[i] = printable(l)
		group.Go(func() error { return front.serve(l, sec) })
	}
	log.Info("serving", "addresses", addresses, "version", buildVersion(), "data", c.Data, "resources", resources(to.Store.Snapshot()))
	ready(addresses)
	notify(log, daemon.SdNotifyReady)

	<-failed.Done()
	notify(log, daemon.SdNotifyStopping)
	svc.Leave()
	front.leaving.Store(true)
	log.Info("draining", "delay", c.DrainDelay, "timeout", c.DrainTimeout)
	if ctx.Err() != nil { // else a listener has failed
		time.Sleep(c.DrainDelay)
	}
	front.drain(svc, listeners, c.DrainTimeout)
	err = group.Wait()
	log.Info("stopped")
	return err
}

// reportedChecks is the metric of the checks that callers cause.
func reportedChecks(d *lb.Dialer) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "lbd_reported_checks_total", Help: "Checks of endpoints that connect failures of callers have caused.",
	}, func() float64 { return float64(d.ReportedChecks()) })
}

// resources returns the number of xDS resources among what is stored.
func resources(s *store.Snapshot) (n int) {
	for e := range s.All() {
		if e.Key.Type.URL() != "" {
			n++
		}
	}
	return n
}
