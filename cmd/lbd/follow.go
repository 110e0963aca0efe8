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
	"github.com/lbd-dev/lbd/xds/store"
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

// follow connects the service to management servers. The service starts with the last good
// version of their resources.
func follow(c Config, svc *service.Service, b *bootstrap.Config, lacks *overload.Monitor, turns *overload.Turns, log *slog.Logger) (*following, error) {
	xds, err := client.New(client.Options{
		Bootstrap: b, Logger: log, Policies: lb.PolicyTraits, OnUpdate: svc.ServerUpdate, Events: svc.ServerEvent, Overload: lacks,
		Turns: turns, Fleet: c.Store != "",
	})
	if err != nil {
		return nil, err
	}
	f := &following{
		client:  xds,
		kept:    lastgood.OpenResources(c.Data, log),
		reports: lrs.New(lrs.Options{Node: b.Node, Loads: svc.Loads(), Logger: log}),
	}
	svc.Follow(f.client, f.kept, f.reports)
	return f, nil
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

// resourceFiles watches the directory of --resources.
type resourceFiles struct {
	watcher *files.Watcher
	archive *files.Archive
}

// watchFiles connects the service to the resource directory. The service starts with the
// versions of the files that were last in use. An unreadable directory is an error only
// if there are none.
func watchFiles(c Config, svc *service.Service, st store.Store, b *bootstrap.Config, turns *overload.Turns, log *slog.Logger) (*resourceFiles, error) {
	f := &resourceFiles{archive: files.OpenArchive(c.Data, c.Resources, log)}
	known, _ := f.archive.Load()
	svc.FollowFiles(f.archive, st)
	var err error
	f.watcher, err = files.Open(c.Resources, files.Options{
		Logger: log, OnScan: svc.FilesScanned, Lenient: c.LenientFiles, MayBeAway: len(known) > 0,
		Policies: lb.PolicyTraits, Certificates: b.Instances(), Turns: turns, Fleet: c.Store != "",
	})
	if err != nil {
		return nil, errors.Join(err, f.archive.Close())
	}
	return f, nil
}

func (f *resourceFiles) close() error {
	err := f.watcher.Close()
	if closeErr := f.archive.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("store the versions of resource files: %w", closeErr))
	}
	return err
}
