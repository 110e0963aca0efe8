package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/files"
)

// resourceFiles is the source of --resources.
type resourceFiles struct {
	watcher *files.Watcher
	archive *files.Archive
}

// watchFiles lets the service follow the resource directory, beginning with the
// versions of its files that were in use last. A directory that cannot be read is an
// error only if nothing of it is known.
func watchFiles(c Config, svc *service.Service, st sources.Store, b *bootstrap.Config, log *slog.Logger) (*resourceFiles, error) {
	f := &resourceFiles{archive: files.OpenArchive(c.Data, c.Resources, log)}
	known, _ := f.archive.Load()
	svc.FollowFiles(f.archive, st)
	var err error
	f.watcher, err = files.Open(c.Resources, files.Options{
		Logger: log, OnScan: svc.FilesScanned, Lenient: c.LenientFiles, MayBeAway: len(known) > 0,
		Policies: lb.PolicyConfig, Certificates: b.Instances(),
	})
	if err != nil {
		return nil, errors.Join(err, f.archive.Close())
	}
	return f, nil
}

// close ends the watching, then closes the archive.
func (f *resourceFiles) close() error {
	err := f.watcher.Close()
	if closeErr := f.archive.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("keep the versions of resource files: %w", closeErr))
	}
	return err
}
