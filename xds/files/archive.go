package files

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/lbd-dev/lbd/xds/lastgood"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	// archiveDirectory is the archive's place in the data directory.
	archiveDirectory = "resource-files"
	// MaxArchiveBytes is how much of the files' contents is kept on disk: a file
	// that would exceed it is not kept.
	MaxArchiveBytes = 256 << 20
)

// The types of the archive's keys.
const (
	versionType   resource.Type = "File"      // by the file's name
	directoryType resource.Type = "Directory" // the directory's path and identity
)

// directoryKey is the key of the directory.
var directoryKey = resource.Key{Type: directoryType}

// Archive keeps the versions of files that are in use on disk, so that the next start uses
// them for a held change or a bad file. Its methods are safe for concurrent use.
type Archive struct {
	cache *lastgood.Cache
	path  string // of the directory of files
}

// OpenArchive opens the archive in a data directory, or makes it, for the files of
// the directory dir. Versions of another directory's files are deleted. With an empty data
// directory, or with one that cannot be used, which is logged, the archive is empty and
// keeps nothing. A damaged archive is set aside, and a new one begins empty.
func OpenArchive(data, dir string, logger *slog.Logger) *Archive {
	path, err := filepath.Abs(dir)
	if err != nil {
		path = dir // as good a name as any
	}
	a := &Archive{path: path, cache: lastgood.Open(data, lastgood.Options{
		Of: "resource files", Directory: archiveDirectory, Logger: logger,
		Limit: MaxArchiveBytes, Cost: func(raw []byte) int { return len(raw) },
	})}
	was, others := "", map[resource.Key][]byte{}
	for e := range a.cache.All() {
		if e.Key == directoryKey {
			was, _ = decodeDirectory(e.Raw)
		}
		others[e.Key] = nil
	}
	if was != path && len(others) > 0 {
		a.cache.Logger.Info("the last good versions of another directory's files are deleted", "was", was, "is", path)
		a.cache.Put(others)
		_ = a.cache.Flush() // logged
	}
	return a
}

func encodeDirectory(path string, id Identity) []byte {
	b := binary.BigEndian.AppendUint64(nil, id.Device)
	return append(binary.BigEndian.AppendUint64(b, id.Inode), path...)
}

// decodeDirectory is the inverse of encodeDirectory.
func decodeDirectory(b []byte) (path string, id Identity) {
	if len(b) < 16 {
		return "", Identity{}
	}
	return string(b[16:]), Identity{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
}

// Load returns the versions that are kept, and the identity of the directory that
// they were read from. Their items have no values yet.
func (a *Archive) Load() (kept map[string]*Version, id Identity) {
	kept = map[string]*Version{}
	for e := range a.cache.All() {
		if e.Key == directoryKey {
			_, id = decodeDirectory(e.Raw)
			continue
		}
		v, err := decodeVersion(e.Raw)
		if err != nil {
			a.cache.Logger.Error("a last good version is left out", "file", e.Key.Name, "error", err)
			continue
		}
		kept[e.Key.Name] = v
	}
	return kept, id
}

// Save keeps versions in place of those before, and forgets those of files that are
// nil. When it returns without an error they are on disk, unless the archive keeps
// nothing. A failed write is retried in the background.
func (a *Archive) Save(versions map[string]*Version, id Identity) error {
	changes := map[resource.Key][]byte{directoryKey: encodeDirectory(a.path, id)}
	for file, v := range versions {
		key := resource.Key{Type: versionType, Name: file}
		if changes[key] = nil; v != nil {
			changes[key] = v.encode()
		}
	}
	a.cache.Put(changes)
	if err := a.cache.Flush(); err != nil {
		return fmt.Errorf("keep the versions of resource files: %w", err)
	}
	return nil
}

// Close retries a failed write once, and closes the archive. A second Close does nothing.
func (a *Archive) Close() error { return a.cache.Close() }
