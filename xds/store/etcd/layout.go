package etcd

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// formatVersion is that of the keys and values that this lbd writes.
const formatVersion = 1

// fleetSize is the size of a fleet's id, in bytes.
const fleetSize = 16

// layout names the keys under a prefix, which ends with a slash. Every daemon watches what
// follows state; the rest is only read when it is needed.
//
//	format                        the format's version and the fleet's id
//	migration                     exists, instead of format, until all is copied to the prefix
//	janitor                       exists while a daemon deletes garbage; with a lease
//	state/head                    put by each commit: its revision is the commit's index
//	state/pending                 exists while a large commit is folded
//	state/resource/<type>/<name>  a record of one entry; type and name are escaped as in URLs
//	state/turn                    exists while a writer asks others to wait; with a lease
//	state/writer/<id>             the last commit of a writer; with a lease
//	put/<type>                    put by each commit that puts an entry of the type
//	limit/, share/, status/       of package service/fleet
//	replica/<id>                  exists while a daemon runs; of package service/fleet
//	blob/<id>/<n>                 part n of a value or of a large commit
type layout string

func (l layout) format() string    { return string(l) + "format" }
func (l layout) migration() string { return string(l) + "migration" }
func (l layout) janitor() string   { return string(l) + "janitor" }
func (l layout) state() string     { return string(l) + "state/" }
func (l layout) head() string      { return l.state() + "head" }
func (l layout) pending() string   { return l.state() + "pending" }
func (l layout) turn() string      { return l.state() + "turn" }
func (l layout) resource() string  { return l.state() + "resource/" }
func (l layout) replicas() string  { return string(l) + "replica/" }
func (l layout) writers() string   { return l.state() + "writer/" }
func (l layout) blobs() string     { return string(l) + "blob/" }

func (l layout) writer(id string) string { return l.writers() + id }

func (l layout) lastPut(kind resource.Type) string {
	return string(l) + "put/" + url.PathEscape(string(kind))
}

// relative returns a key without the prefix.
func (l layout) relative(key string) string { return strings.TrimPrefix(key, string(l)) }

// blob returns the prefix of the parts of a blob.
func (l layout) blob(id string) string { return l.blobs() + id + "/" }

func (l layout) part(id string, n int) string { return fmt.Sprintf("%s%08d", l.blob(id), n) }

// entry returns the key of an entry.
func (l layout) entry(key resource.Key) string {
	return l.resource() + url.PathEscape(string(key.Type)) + "/" + url.PathEscape(key.Name)
}

// key is the inverse of entry.
func (l layout) key(entry string) (resource.Key, error) {
	kind, name, ok := strings.Cut(strings.TrimPrefix(entry, l.resource()), "/")
	if !ok {
		return resource.Key{}, fmt.Errorf("key %q has no type", entry)
	}
	k, err1 := url.PathUnescape(kind)
	n, err2 := url.PathUnescape(name)
	key := resource.Key{Type: resource.Type(k), Name: n}
	if err := errors.Join(err1, err2); err != nil {
		return key, err
	}
	if l.entry(key) != entry {
		return key, fmt.Errorf("key %q is not escaped as lbd does it", entry)
	}
	return key, store.CheckKey(key)
}

// format is the value of the key format.
type format struct {
	Version int `json:"version"`
	// Fleet identifies what is stored under the prefix.
	Fleet string `json:"fleet"`
	// Base is what indices are larger than etcd's revisions.
	Base uint64 `json:"base"`

	revision int64 // of the key; 0 in a local copy
}

func (f format) encode() string {
	b, _ := json.Marshal(f)
	return string(b)
}

func decodeFormat(value []byte) (format, error) {
	var f format
	if err := json.Unmarshal(value, &f); err != nil {
		return f, fmt.Errorf("the format cannot be read: %w", err)
	}
	if _, err := hex.DecodeString(f.Fleet); err != nil || f.Version < 1 || f.Fleet == "" || f.Base > maxIndex {
		return f, fmt.Errorf("the format %q is invalid", value)
	}
	if f.Version > formatVersion {
		return f, fmt.Errorf("%w: format %d, this lbd knows %d", store.ErrNewer, f.Version, formatVersion)
	}
	return f, nil
}

// EmptyError reports that nothing is under the prefix, and that this daemon knows of no fleet that was there. A daemon
// never creates one by itself: etcd may have lost what the others still have.
type EmptyError struct {
	Prefix string
}

func (e *EmptyError) Error() string {
	return fmt.Sprintf("nothing is stored at the etcd prefix %s: to create a new fleet, run lbd store init; "+
		"if etcd has lost what was there, copy the directory fleet in --data of another replica to it with lbd store migrate", e.Prefix)
}
