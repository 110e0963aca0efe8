package lastgood

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// MaxResources is the maximum number of resources on disk. The cache drops more.
const MaxResources = 200_000

const resourcesDirectory = "last-known-good"

// Resources is the cache of the resources of management servers.
type Resources struct{ cache *Cache }

// OpenResources opens the cache in a data directory. A nil logger logs nothing.
func OpenResources(data string, logger *slog.Logger) *Resources {
	return &Resources{Open(data, Options{
		Of: "resources of management servers", Directory: resourcesDirectory, Logger: logger,
		Limit: MaxResources, Cost: func([]byte) int { return 1 }, Same: sameResource,
	})}
}

// All yields the resources on disk, by type and name.
func (r *Resources) All() iter.Seq[resource.Update] {
	return func(yield func(resource.Update) bool) {
		for kept := range r.cache.All() {
			u, err := decode(kept.Key, kept.Raw)
			if err != nil {
				r.cache.Logger.Error("a last good version is left out", "key", kept.Key, "error", err)
				continue
			}
			if !yield(u) {
				return
			}
		}
	}
}

// Put adds or replaces resources, and removes those without Raw. It does not wait for the
// disk. After Close it does nothing.
func (r *Resources) Put(updates []resource.Update) {
	changes := make(map[resource.Key][]byte, len(updates))
	for _, u := range updates {
		if changes[u.Key] = nil; u.Raw != nil {
			changes[u.Key] = encode(&u)
		}
	}
	r.cache.Put(changes)
}

// Close writes what is not on disk yet, and closes the cache.
func (r *Resources) Close() error { return r.cache.Close() }

// An encoded Update is: the format (1 byte), Updated in Unix nanoseconds (8 bytes, big
// endian), Version with its length (uvarint), Server with its length, Raw.
const entryFormat = 2

var errUnknownFormat = errors.New("unknown format of the entry")

func encode(u *resource.Update) []byte {
	b := make([]byte, 0, 9+2*binary.MaxVarintLen64+len(u.Version)+len(u.Server)+len(u.Raw))
	b = append(b, entryFormat)
	b = binary.BigEndian.AppendUint64(b, uint64(u.Updated.UnixNano()))
	b = store.AppendString(b, u.Version)
	b = store.AppendString(b, u.Server)
	return append(b, u.Raw...)
}

// decode is the inverse of encode. Raw is the end of b.
func decode(key resource.Key, b []byte) (resource.Update, error) {
	if len(b) < 9 || b[0] != entryFormat {
		return resource.Update{}, errUnknownFormat
	}
	updated := time.Unix(0, int64(binary.BigEndian.Uint64(b[1:]))).UTC()
	version, b, ok := store.CutString(b[9:])
	if !ok {
		return resource.Update{}, errUnknownFormat
	}
	server, b, ok := store.CutString(b)
	if !ok {
		return resource.Update{}, errUnknownFormat
	}
	return resource.Update{Item: resource.Item{Key: key, Raw: b}, Updated: updated, Version: string(version), Server: string(server)}, nil
}

// sameResource reports whether an entry has the resource of the stored one, of the same
// server: then the first version and time stay.
func sameResource(stored, raw []byte) bool {
	a, err := decode(resource.Key{}, stored)
	b, otherErr := decode(resource.Key{}, raw)
	return err == nil && otherErr == nil && a.Server == b.Server && bytes.Equal(a.Raw, b.Raw)
}
