package files

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	filestore "github.com/lbd-dev/lbd/xds/store/file"
)

const (
	// archiveDirectory is the archive's place in the data directory.
	archiveDirectory = "resource-files"
	// MaxArchiveBytes is how much of the files' contents is kept on disk: a file
	// that would exceed it is not kept.
	MaxArchiveBytes = 256 << 20
	// archiveRetry is the delay before writing is retried.
	archiveRetry = 10 * time.Second
)

// The types of the archive's keys.
const (
	versionType   resource.Type = "File"      // by the file's name
	directoryType resource.Type = "Directory" // the directory's path and identity
)

// Archive keeps the versions of files that are in use on disk, so that the next start uses
// them for a held change or a bad file. Its methods are safe for concurrent use.
type Archive struct {
	// fixed after OpenArchive
	logger *slog.Logger
	store  *filestore.Store // nil: nothing is kept
	path   string           // of the directory of files
	most   int

	// guarded by mu
	mu      sync.Mutex
	sizes   map[string]int // of the versions on disk, by file
	total   int            // of sizes
	pending changes        // not written yet
	failing bool
	full    bool // the logger knows that there is too much
	retry   *time.Timer
	closed  bool
}

// changes are versions by file; nil for a file that is gone.
type changes map[string]*Version

// OpenArchive opens the archive in a data directory, or makes it, for the files of
// the directory dir. Versions of another directory's files are deleted. With an empty data
// directory, or with one that cannot be used, which is logged, the archive is empty and
// keeps nothing. A damaged archive is set aside, and a new one begins empty.
func OpenArchive(data, dir string, logger *slog.Logger) *Archive {
	a := &Archive{logger: cmp.Or(logger, slog.New(slog.DiscardHandler)), most: MaxArchiveBytes, sizes: map[string]int{}, pending: changes{}}
	if data == "" {
		return a
	}
	var err error
	if a.path, err = filepath.Abs(dir); err == nil {
		a.store, err = filestore.Open(filepath.Join(data, archiveDirectory), filestore.Options{Logger: a.logger, BeginEmpty: true})
	}
	if err == nil {
		err = a.begin()
	}
	if err != nil {
		a.logger.Error("the versions of resource files that are in use cannot be kept on disk: after a restart, a bad file has no last good version",
			"error", err)
	}
	return a
}

// begin deletes the versions of another directory's files.
func (a *Archive) begin() error {
	if path, _, ok := a.directory(); !ok || path != a.path {
		if ok {
			a.logger.Info("the last good versions of another directory's files are deleted", "was", path, "is", a.path)
		}
		_, err := a.store.Update(context.Background(), func(tx *store.Tx) error {
			for e := range tx.All() {
				tx.Delete(e.Key)
			}
			return tx.Put(resource.Key{Type: directoryType}, encodeDirectory(a.path, Identity{}))
		})
		if err != nil {
			return err
		}
	}
	for e := range a.store.Snapshot().All() {
		if e.Key.Type == versionType {
			a.sizes[e.Key.Name] = len(e.Raw)
			a.total += len(e.Raw)
		}
	}
	return nil
}

// directory returns the path and the identity that are kept.
func (a *Archive) directory() (string, Identity, bool) {
	e, ok := a.store.Snapshot().Get(resource.Key{Type: directoryType})
	if !ok || len(e.Raw) < 16 {
		return "", Identity{}, false
	}
	id := Identity{binary.BigEndian.Uint64(e.Raw), binary.BigEndian.Uint64(e.Raw[8:])}
	return string(e.Raw[16:]), id, true
}

func encodeDirectory(path string, id Identity) []byte {
	b := binary.BigEndian.AppendUint64(nil, id.Device)
	return append(binary.BigEndian.AppendUint64(b, id.Inode), path...)
}

// Load returns the versions that are kept, and the identity of the directory that
// they were read from. Their items have no values yet.
func (a *Archive) Load() (map[string]*Version, Identity) {
	kept := map[string]*Version{}
	if a.store == nil {
		return kept, Identity{}
	}
	for e := range a.store.Snapshot().All() {
		if e.Key.Type != versionType {
			continue
		}
		v, err := decodeVersion(e.Raw)
		if err != nil {
			a.logger.Error("the last good version of a resource file is left out", "file", e.Key.Name, "error", err)
			continue
		}
		kept[e.Key.Name] = v
	}
	_, id, _ := a.directory()
	return kept, id
}

// Save keeps versions in place of those before, and forgets those of files that are
// nil. When it returns without an error they are on disk, unless the archive keeps
// nothing. A failed write is retried in the background.
func (a *Archive) Save(versions map[string]*Version, id Identity) error {
	if a.store == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.Copy(a.pending, versions)
	return a.flush(id)
}

// flush writes pending. The caller holds mu.
func (a *Archive) flush(id Identity) error {
	var kept map[string]int
	_, err := a.store.Update(context.Background(), func(tx *store.Tx) error {
		kept = a.apply(tx)
		return tx.Put(resource.Key{Type: directoryType}, encodeDirectory(a.path, id))
	})
	if err != nil {
		if !a.failing {
			a.logger.Error("the versions of resource files that are in use cannot be written to disk: a restart would begin with older ones",
				"retry_every", archiveRetry, "error", err)
		}
		a.failing = true
		if a.retry != nil {
			a.retry.Stop()
		}
		if !a.closed {
			a.retry = time.AfterFunc(archiveRetry, func() { a.flushAgain(id) })
		}
		return fmt.Errorf("keep the versions of resource files: %w", err)
	}
	if a.failing {
		a.logger.Info("the versions of resource files that are in use are on disk again")
	}
	a.failing = false
	for file := range a.pending {
		a.total += kept[file] - a.sizes[file]
		if a.sizes[file] = kept[file]; kept[file] == 0 {
			delete(a.sizes, file)
		}
	}
	clear(a.pending)
	return nil
}

func (a *Archive) flushAgain(id Identity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pending) > 0 && !a.closed {
		_ = a.flush(id) // logged
	}
}

func (a *Archive) apply(tx *store.Tx) map[string]int {
	kept := make(map[string]int, len(a.pending))
	total := a.total
	for file := range a.pending {
		total -= a.sizes[file]
	}
	for file, v := range a.pending {
		key := resource.Key{Type: versionType, Name: file}
		tx.Delete(key)
		if v == nil {
			continue
		}
		raw := v.encode()
		if total+len(raw) > a.most {
			a.reportFull(file, fmt.Errorf("all files together exceed %d bytes", a.most))
			continue
		}
		if err := tx.Put(key, raw); err != nil {
			a.reportFull(file, err)
			continue
		}
		total += len(raw)
		kept[file] = len(raw)
	}
	return kept
}

func (a *Archive) reportFull(file string, err error) {
	if !a.full {
		a.full = true
		a.logger.Error("the last good version of a resource file is not kept on disk; others like it are not reported",
			"file", file, "error", err)
	}
}

// Close retries a failed write once, and closes the archive. A second Close does nothing.
func (a *Archive) Close() error {
	if a.store == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil
	}
	a.closed = true
	if a.retry != nil {
		a.retry.Stop()
	}
	var err error
	if len(a.pending) > 0 {
		_, id, _ := a.directory()
		err = a.flush(id)
	}
	return errors.Join(err, a.store.Close())
}

// Version is a file's content that is, or was, in use. It is immutable.
type Version struct {
	Sum             string // SHA-256, in hex, of the content
	Modified        time.Time
	Items           []resource.Item
	Rejected        []decode.Rejected // Clusters of a Partial version that are not in use
	Warnings, Notes []decode.Problem  // not in an Archive
	Partial         bool              // it is the valid part of a bad file
	Restored        bool              // it is from an Archive
}

// versionFormat begins an encoded Version: the format, 1 if it is partial, Modified
// in Unix nanoseconds (8 bytes, big endian), then strings, each after its length
// (uvarint): the sum; and of each item type, name, field and raw. A rejected Cluster is
// an item without raw, and has why in the place of its field.
const versionFormat = 1

// versionHeader is the length of what comes before the strings.
const versionHeader = 10

var errVersion = errors.New("not a version that this lbd knows")

func (v *Version) encode() []byte {
	b := []byte{versionFormat, 0}
	if v.Partial {
		b[1] = 1
	}
	b = binary.BigEndian.AppendUint64(b, uint64(v.Modified.UnixNano()))
	b = store.AppendString(b, v.Sum)
	add := func(k resource.Key, field string, raw []byte) {
		b = store.AppendString(store.AppendString(b, string(k.Type)), k.Name)
		b = store.AppendString(store.AppendString(b, field), raw)
	}
	for _, i := range v.Items {
		add(i.Key, i.Field, i.Raw)
	}
	for _, r := range v.Rejected {
		add(r.Key, r.Why, nil)
	}
	return b
}

// decodeVersion is encode's inverse. The items have no values yet; their Raw shares
// b's memory.
func decodeVersion(b []byte) (*Version, error) {
	if len(b) < versionHeader || b[0] != versionFormat || b[1] > 1 {
		return nil, errVersion
	}
	v := &Version{Restored: true, Partial: b[1] == 1, Modified: time.Unix(0, int64(binary.BigEndian.Uint64(b[2:]))).UTC()}
	sum, b, ok := store.CutString(b[versionHeader:])
	if !ok {
		return nil, errVersion
	}
	v.Sum = string(sum)
	for len(b) > 0 {
		var parts [4][]byte
		for i := range parts {
			if parts[i], b, ok = store.CutString(b); !ok {
				return nil, errVersion
			}
		}
		key := resource.Key{Type: resource.Type(parts[0]), Name: string(parts[1])}
		if len(parts[3]) == 0 {
			v.Rejected = append(v.Rejected, decode.Rejected{Key: key, Why: string(parts[2])})
			continue
		}
		v.Items = append(v.Items, resource.Item{Key: key, Field: string(parts[2]), Raw: parts[3]})
	}
	return v, nil
}
