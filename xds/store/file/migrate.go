package file

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file/boltfile"
)

const migratedSuffix = ".migrated"

// migrate replaces a bbolt file, which earlier versions of lbd wrote, by one of
// today's. The bbolt file is kept under another name.
func (f *file) migrate() (*store.Snapshot, error) {
	data, err := io.ReadAll(f.os)
	if err != nil {
		return nil, err
	}
	records, err := boltfile.Read(data)
	if err != nil {
		return nil, damage{error: err}
	}
	entries := make(store.Changes, len(records))
	for _, r := range records {
		key := resource.Key{Type: resource.Type(r.Type), Name: r.Name}
		if err := store.CheckKey(key); err != nil {
			return nil, damage{error: err}
		}
		entries[key] = &store.Entry{Key: key, Raw: bytes.Clone(r.Value), Updated: r.Updated}
	}
	snapshot, _ := (&store.Snapshot{}).Apply(entries, 1)
	kept, err := f.keep()
	if err != nil {
		return nil, fmt.Errorf("keep the file from before the migration: %w", err)
	}
	if err := f.replace(snapshot); err != nil {
		return nil, fmt.Errorf("migrate %s: %w", f.path, err)
	}
	if err := f.ready(); err != nil {
		return nil, err
	}
	f.logger.Info("the store was migrated from the format of an earlier version", "file", f.path, "kept_as", kept,
		"resources", snapshot.Len())
	return snapshot, nil
}

// keep gives the file a second name, unless a migration that was interrupted did.
func (f *file) keep() (string, error) {
	opened, err := f.os.Stat()
	if err != nil {
		return "", err
	}
	kept := f.path + migratedSuffix
	if there, err := os.Stat(kept); err == nil && os.SameFile(opened, there) {
		return kept, nil
	}
	kept = freeName(kept)
	return kept, os.Link(f.path, kept)
}
