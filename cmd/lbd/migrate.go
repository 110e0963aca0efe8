package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/etcd"
	"github.com/lbd-dev/lbd/xds/store/file"
)

type storeCommand struct {
	Init    initCommand    `cmd:"" help:"Create a fleet at an etcd prefix that has none. Daemons with this --store are not ready before."`
	Migrate migrateCommand `cmd:"" help:"Copy everything that is stored to an empty store, and verify it. Stores are etcd://HOST:PORT,.../PREFIX, or a data directory; DIR/fleet is the copy that a daemon keeps of a store in etcd."`
}

type initCommand struct {
	URL string `arg:"" help:"Where: etcd://HOST:PORT,.../PREFIX, as --store of the daemons" placeholder:"URL"`

	StoreAccess StoreAccess `embed:""`
}

// Run creates the fleet. If there is one, that is no error: the command may be repeated.
func (c *initCommand) Run(ctx context.Context, app *kong.Kong) error {
	access, err := c.StoreAccess.config(c.URL)
	if err != nil {
		return err
	}
	fleet, created, err := etcd.Init(ctx, access)
	if err != nil {
		return fmt.Errorf("%s: %w", c.URL, err)
	}
	says := "created fleet %s at %s\n"
	if !created {
		says = "there is fleet %s already at %s: nothing was changed\n"
	}
	_, err = fmt.Fprintf(app.Stdout, says, fleet, c.URL)
	return err
}

type migrateCommand struct {
	From string `arg:"" help:"Store to copy, which no daemon may use meanwhile" placeholder:"FROM"`
	To   string `arg:"" help:"Store that gets everything, and must be empty" placeholder:"TO"`

	StoreAccess StoreAccess `embed:""`
}

// Validate checks what kong does not check. kong calls it.
func (c *migrateCommand) Validate() error {
	for _, place := range []string{c.From, c.To} {
		if !isEtcd(place) {
			continue
		}
		if _, err := parseEtcd(place); err != nil {
			return err
		}
	}
	return c.StoreAccess.validate()
}

func isEtcd(place string) bool { return strings.Contains(place, "://") }

// Run copies, and compares what it reads back.
func (c *migrateCommand) Run(ctx context.Context, app *kong.Kong) error {
	from, end, err := c.read(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", c.From, err)
	}
	defer func() { _ = end() }() // it was only read
	index, err := c.write(ctx, from)
	if err != nil {
		return fmt.Errorf("%s: %w", c.To, err)
	}
	if isEtcd(c.From) {
		now, _, err := c.read(ctx)
		if err == nil && now.Snapshot.Index() != from.Snapshot.Index() {
			err = fmt.Errorf("it changed while it was copied, from index %d to %d; delete the copy, stop all daemons and repeat", from.Snapshot.Index(), now.Snapshot.Index())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.From, err)
		}
	}
	_, err = fmt.Fprintf(app.Stdout, "copied %d entries of %d bytes from %s (index %d) to %s (index %d), read them back and compared them\n",
		from.Snapshot.Len(), from.Snapshot.Size(), c.From, from.Snapshot.Index(), c.To, index)
	return err
}

// read returns what FROM has. A directory is locked until end.
func (c *migrateCommand) read(ctx context.Context) (all etcd.Contents, end func() error, err error) {
	if isEtcd(c.From) {
		access, err := c.StoreAccess.config(c.From)
		if err != nil {
			return all, nil, err
		}
		all, err = etcd.Read(ctx, access)
		if err == nil && len(all.Running) > 0 {
			err = fmt.Errorf("%d daemons use it, or did so within the last minute (keys %s); stop them first", len(all.Running), strings.Join(all.Running, ", "))
		}
		return all, func() error { return nil }, err
	}
	if _, err := os.Stat(filepath.Join(c.From, file.Name)); err != nil {
		if _, fleet := os.Stat(filepath.Join(c.From, copyDirectory, file.Name)); fleet == nil {
			return all, nil, fmt.Errorf("it has no %s, but the copy of a store in etcd: %s", file.Name, filepath.Join(c.From, copyDirectory))
		}
		return all, nil, err
	}
	s, err := file.Open(c.From, file.Options{})
	if err != nil {
		return all, nil, err
	}
	return etcd.ContentsOf(s.Snapshot()), s.Close, nil
}

// write copies to TO, verifies that, and returns the index there.
func (c *migrateCommand) write(ctx context.Context, all etcd.Contents) (index uint64, err error) {
	if isEtcd(c.To) {
		access, err := c.StoreAccess.config(c.To)
		if err != nil {
			return 0, err
		}
		return etcd.Create(ctx, access, all)
	}
	s, err := file.Open(c.To, file.Options{})
	if err != nil {
		return 0, err
	}
	if now := s.Snapshot(); now.Len() > 0 || now.Index() > 0 {
		err = fmt.Errorf("it has %d entries, at index %d; choose another directory, or move its %s away", now.Len(), now.Index(), file.Name)
	} else {
		err = s.Copy(ctx, all.Snapshot)
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return 0, err
	}
	if s, err = file.Open(c.To, file.Options{}); err != nil {
		return 0, fmt.Errorf("read back: %w", err)
	}
	if err = store.CheckCopy(all.Snapshot, s.Snapshot()); err != nil {
		err = fmt.Errorf("read back: %w; do not use it", err)
	}
	return s.Snapshot().Index(), errors.Join(err, s.Close())
}
