// Package changelog keeps the history of pushed resources: who changed what, when, and what that
// replaced.
//
// Each change leaves a [Record] in the store, in the transaction of the change itself. A record holds what the change replaced, so that
// the resources of an earlier index follow from those of now and the records since ([Query.At]).
package changelog

import (
	"bytes"
	"cmp"
	"compress/flate"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// Type is the store's type of records. Their names are unique, and sort those of one commit.
const Type resource.Type = "Change"

const (
	// MaxMessage is the maximum length of a message, in bytes.
	MaxMessage = 500
	// maxContents is the maximum size of the contents that one change has replaced, before
	// they are compressed. A record of a larger change has none.
	maxContents = 256 << 20
)

// Replaced is one resource of a change, and what the change replaced.
type Replaced struct {
	Key    resource.Key
	Change difference.Change
	// Before is the content that was replaced, and After the one since; nil where the
	// resource did not exist.
	Before, After []byte
}

// Record is what one change did.
type Record struct {
	// Index is that of the commit; 0 before it.
	Index uint64 `json:"-"`
	// Time is that of the commit, by the clock of the daemon that made it.
	Time time.Time `json:"-"`

	// Caller is the name of the identity of the caller; empty if it had none.
	Caller string `json:"caller,omitempty"`
	// Address is that of the caller, or unix.
	Address string `json:"address,omitempty"`
	// Message is what the caller said about the change.
	Message string `json:"message,omitempty"`
	// Restored is the index that the change restored; 0 if it is no restore.
	Restored uint64 `json:"restored,omitempty"`
	// Changes are the first few, with words.
	Changes []difference.Change `json:"changes"`
	// Count is the number of all.
	Count int `json:"count"`

	details  []byte // compressed, JSON of []Detail
	contents []byte // compressed: of each Detail, in order, Before without what After has as well; nil if they are not kept
	kept     bool
}

// Detail is one resource of a change.
type Detail struct {
	Resource string `json:"resource"`
	Change   string `json:"change"`
	// Before and After are hashes of contents; empty where the resource did not exist.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Size is that of the content before, in bytes.
	Size int64 `json:"size,omitempty"`
	// Prefix and Suffix are how many bytes at its beginning and its end the content after has as well. They are not in
	// the record.
	Prefix int64 `json:"prefix,omitempty"`
	Suffix int64 `json:"suffix,omitempty"`
}

// own is the size of what the record has of the content before.
func (d *Detail) own() int64 { return d.Size - d.Prefix - d.Suffix }

// Key returns the key of the resource.
func (d *Detail) Key() resource.Key { return difference.Change{Resource: d.Resource}.Key() }

// lastKey is the time in the last key, in nanoseconds.
var lastKey atomic.Int64

// NewKey returns a key for the record of a change. It sorts after those that this process has made
// before: a commit may have several changes of one resource.
func NewKey() resource.Key {
	at := time.Now().UnixNano()
	for last := lastKey.Load(); ; last = lastKey.Load() {
		at = max(at, last+1)
		if lastKey.CompareAndSwap(last, at) {
			break
		}
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	return resource.Key{Type: Type, Name: fmt.Sprintf("%016x%x", at, id)}
}

var compressors = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(io.Discard, flate.BestSpeed) // the level is valid
	return w
}}

// compress writes parts to one stream.
func compress(parts ...[]byte) []byte {
	var out bytes.Buffer
	w := compressors.Get().(*flate.Writer) //nolint:errcheck // the pool holds nothing else
	defer compressors.Put(w)
	w.Reset(&out)
	for _, p := range parts {
		_, _ = w.Write(p) // a buffer takes all
	}
	_ = w.Close()
	return out.Bytes()
}

// expand returns what was compressed, which must have at most a number of bytes.
func expand(packed []byte, most int64) ([]byte, error) {
	r := flate.NewReader(bytes.NewReader(packed))
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = errors.New("more bytes than it says")
	}
	return b, err
}

// Encode returns the record of changes, without contents if these would take more than a number of
// bytes. hash is that of a content.
func (r *Record) Encode(of []Replaced, most int64, hash func([]byte) string) []byte {
	r.Count = len(of)
	r.Changes = r.Changes[:0]
	details := make([]Detail, len(of))
	var before [][]byte
	var size int64
	shares := false
	for i, c := range of {
		d := Detail{Resource: c.Key.String(), Change: c.Change.Change}
		if c.Before != nil {
			prefix, suffix := store.Shared(c.Before, c.After)
			if prefix+suffix < minShared {
				prefix, suffix = 0, 0
			}
			shares = shares || prefix+suffix > 0
			d.Before, d.Size, d.Prefix, d.Suffix = hash(c.Before), int64(len(c.Before)), int64(prefix), int64(suffix)
			before = append(before, c.Before[prefix:len(c.Before)-suffix])
			size += d.Size
		}
		if c.After != nil {
			d.After = hash(c.After)
		}
		details[i] = d
		if i < difference.MaxListed {
			r.Changes = append(r.Changes, c.Change)
		}
	}
	head, _ := json.Marshal(r) // always possible
	all, _ := json.Marshal(details)
	format := byte(formatWhole)
	if shares {
		format = formatShared
	}
	out := store.AppendString([]byte{format}, head)
	out = store.AppendString(out, compress(all))
	if size <= maxContents {
		if packed := compress(before...); int64(len(packed)) <= most {
			return store.AppendString(out, packed)
		}
	}
	return out
}

// minShared is the least that a content has to share with the one after for that not to be in the record: what depends on
// the content after is unknown if that is.
const minShared = 1 << 10

// The formats of records: without, and with contents that share something with those after.
const (
	formatWhole  = 1
	formatShared = 2
)

var errDamaged = errors.New("the record is damaged")

// Decode is the inverse of Encode for what a store has.
func Decode(e store.Entry) (*Record, error) {
	r := &Record{}
	if len(e.Raw) == 0 {
		return nil, errDamaged
	}
	if f := e.Raw[0]; f != formatWhole && f != formatShared {
		return nil, fmt.Errorf("the record has format %d; this lbd knows %d and %d", f, formatWhole, formatShared)
	}
	head, rest, ok := store.CutString(e.Raw[1:])
	if !ok || json.Unmarshal(head, r) != nil || r.Count < 0 || len(r.Changes) > r.Count {
		return nil, errDamaged
	}
	if r.details, rest, ok = store.CutString(rest); !ok {
		return nil, errDamaged
	}
	if len(rest) > 0 {
		if r.contents, rest, r.kept = store.CutString(rest); !r.kept || len(rest) > 0 {
			return nil, errDamaged
		}
	}
	r.Index, r.Time = e.Index, e.Updated
	return r, nil
}

// maxDetails is the maximum size of the details of a record, in bytes.
const maxDetails = 64 << 20

// Details returns all resources of the change.
func (r *Record) Details() ([]Detail, error) {
	b, err := expand(r.details, maxDetails)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	var all []Detail
	if err := json.Unmarshal(b, &all); err != nil || len(all) != r.Count {
		return nil, errDamaged
	}
	for _, d := range all {
		if d.Size < 0 || d.Size > maxContents || (d.Size > 0 && d.Before == "") || d.Prefix < 0 || d.Suffix < 0 || d.Prefix > d.Size || d.Suffix > d.Size-d.Prefix {
			return nil, errDamaged
		}
	}
	return all, nil
}

// Author returns the name of the caller's identity, or its address.
func (r *Record) Author() string { return cmp.Or(r.Caller, r.Address) }

// Kept reports whether the record has the contents that the change replaced.
func (r *Record) Kept() bool { return r.kept }

// replaced returns what the record has of the contents that the change replaced, for each of its details; nil where there
// was none, or if they are not kept. reserve is called with the size of the contents before they are expanded, unless it is nil.
func (r *Record) replaced(of []Detail, reserve func(bytes int) error) ([][]byte, error) {
	out := make([][]byte, len(of))
	if !r.kept {
		return out, nil
	}
	var size, own int64
	for i := range of {
		if size += of[i].Size; size > maxContents {
			return nil, errDamaged
		}
		own += of[i].own()
	}
	if reserve != nil {
		if err := reserve(int(size)); err != nil {
			return nil, err
		}
	}
	all, err := expand(r.contents, own)
	if err != nil || int64(len(all)) != own {
		return nil, errDamaged
	}
	for i, d := range of {
		if d.Before != "" {
			out[i], all = all[:d.own():d.own()], all[d.own():]
		}
	}
	return out, nil
}
