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

// resourceFiles watches the directory of --resources.
type resourceFiles struct {
	watcher *files.Watcher
	archive *files.Archive
}

// watchFiles connects the service to the resource directory. The service starts with the
// versions of the files that were last in use. An unreadable directory is an error only
// if there are none.
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

// close stops the watcher and closes the archive.
func (f *resourceFiles) close() error {
	err := f.watcher.Close()
	if closeErr := f.archive.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("store the versions of resource files: %w", closeErr))
	}
	return err
}
