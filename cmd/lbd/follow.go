package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/lastgood"
	"github.com/lbd-dev/lbd/xds/lrs"
)

// loadBootstrap reads the bootstrap of the flag or the environment; nil if there is none.
func loadBootstrap(c Config, log *slog.Logger) (*bootstrap.Config, error) {
	b, err := bootstrap.Load(bootstrap.Options{File: c.Bootstrap, Version: buildVersion(), Logger: log})
	if err != nil {
		return nil, fmt.Errorf("read the bootstrap of the management server: %w", err)
	}
	if b != nil {
		for _, w := range b.Warnings {
			log.Warn("bootstrap", "source", b.Source, "warning", w.String())
		}
	}
	return b, nil
}

// following has the parts that follow a management server.
type following struct {
	client  *client.Client
	reports *lrs.Reporter
	kept    *lastgood.Resources
}

// follow returns what connects the service to management servers. The service starts with the last good
// version of their resources.
func follow(c Config, svc *service.Service, b *bootstrap.Config, lacks *overload.Monitor, turns *overload.Turns, log *slog.Logger) (*following, error) {
	xds, err := client.New(client.Options{
		Bootstrap: b, Logger: log, Policies: lb.PolicyTraits, OnUpdate: svc.Inbound.ServerUpdate, Events: svc.Inbound.ServerEvent, Overload: lacks,
		Turns: turns, Fleet: c.Store != "",
	})
	if err != nil {
		return nil, err
	}
	return &following{
		client:  xds,
		kept:    lastgood.OpenResources(c.Data, log),
		reports: lrs.New(lrs.Options{Node: b.Node, Loads: svc.Loads, Logger: log}),
	}, nil
}

// close sends the last load report and stores the last good version. The service must be
// closed, so that nothing is counted after the report.
func (f *following) close() error {
	f.reports.Close()
	f.client.Close()
	if err := f.kept.Close(); err != nil {
		return errors.Join(errors.New("store the last good resources"), err)
	}
	return nil
}

// resourceFiles is the directory of --resources, with the versions of its files that were last in use.
type resourceFiles struct {
	archive   *files.Archive
	directory string
	options   files.Options
	watcher   *files.Watcher // nil before watch
}

func openFiles(c Config, b *bootstrap.Config, turns *overload.Turns, log *slog.Logger) *resourceFiles {
	return &resourceFiles{archive: files.OpenArchive(c.Data, c.Resources, log), directory: c.Resources, options: files.Options{
		Logger: log, Lenient: c.LenientFiles, Policies: lb.PolicyTraits, Certificates: b.Instances(), Turns: turns, Fleet: c.Store != "",
	}}
}

// watch begins to watch. An unreadable directory is an error only if no versions are known.
func (f *resourceFiles) watch(scanned func(*files.Scan)) (err error) {
	known, _ := f.archive.Load()
	f.options.OnScan, f.options.MayBeAway = scanned, len(known) > 0
	f.watcher, err = files.Open(f.directory, f.options)
	return err
}

func (f *resourceFiles) close() (err error) {
	if f.watcher != nil {
		err = f.watcher.Close()
	}
	if closeErr := f.archive.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("store the versions of resource files: %w", closeErr))
	}
	return err
}
