package share

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Record is the value that the replicas share for one limit. It is immutable.
type Record struct {
	// Entries are in the order of their Replica, which is unique.
	Entries []Entry `json:"entries"`
}

// Entry is what a process publishes.
type Entry struct {
	// Replica identifies the process: it is another one after a restart.
	Replica string `json:"replica"`
	// Session is the session of the process that Share is for.
	Session int64 `json:"session"`
	// Limit is the limit of the whole fleet as the process knows it.
	Limit int64 `json:"limit"`
	// Share is how many requests the process may hold at most.
	Share int64 `json:"share"`
	// Demand is how many it would like to hold.
	Demand int64 `json:"demand"`
	// Bound is the maximum ttl of its leases, in nanoseconds.
	Bound time.Duration `json:"bound"`
}

const (
	// maxEntries limits the entries of a record.
	maxEntries = 10_000
	// maxNumber limits the numbers of an entry, so that sums do not overflow.
	maxNumber = 1 << 40
	// version is the first byte of an encoded record.
	version = 1
)

// ErrNewer is the error of a record that was written by a later version.
var ErrNewer = errors.New("the record was written by a later version")

// Encode returns the bytes of a record.
func (r Record) Encode() []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return append([]byte{version}, text...)
}

// Decode returns the record of bytes that [Record.Encode] returned.
func Decode(b []byte) (Record, error) {
	if len(b) == 0 {
		return Record{}, errors.New("the record is empty")
	}
	if b[0] != version {
		return Record{}, fmt.Errorf("version %d: %w", b[0], ErrNewer)
	}
	var r Record
	if err := json.Unmarshal(b[1:], &r); err != nil {
		return Record{}, fmt.Errorf("the record is damaged: %w", err)
	}
	if len(r.Entries) > maxEntries {
		return Record{}, fmt.Errorf("the record has %d entries, more than %d", len(r.Entries), maxEntries)
	}
	for i, e := range r.Entries {
		switch {
		case e.Replica == "":
			return Record{}, fmt.Errorf("entry %d has no replica", i)
		case i > 0 && e.Replica <= r.Entries[i-1].Replica:
			return Record{}, fmt.Errorf("entry %d: replica %q is not in order", i, e.Replica)
		case !counts(e.Limit) || !counts(e.Share) || !counts(e.Demand) || e.Bound < 0:
			return Record{}, fmt.Errorf("entry %d of replica %q has numbers that are out of range", i, e.Replica)
		}
	}
	return r, nil
}

func counts(n int64) bool { return n >= 0 && n <= maxNumber }

// Find returns the entry of a replica.
func (r Record) Find(replica string) (Entry, bool) {
	if i, ok := r.at(replica); ok {
		return r.Entries[i], true
	}
	return Entry{}, false
}

func (r Record) at(replica string) (int, bool) {
	return slices.BinarySearchFunc(r.Entries, replica, func(e Entry, id string) int { return cmp.Compare(e.Replica, id) })
}

// Sum returns the sum of the shares.
func (r Record) Sum() int64 {
	sum := int64(0)
	for _, e := range r.Entries {
		sum += e.Share
	}
	return sum
}

// with returns the record with an entry in place of that of the same replica.
func (r Record) with(e Entry) Record {
	i, ok := r.at(e.Replica)
	if ok {
		entries := slices.Clone(r.Entries)
		entries[i] = e
		return Record{entries}
	}
	return Record{slices.Insert(slices.Clone(r.Entries), i, e)}
}

// without returns the record without the entries that match.
func (r Record) without(match func(Entry) bool) Record {
	if !slices.ContainsFunc(r.Entries, match) {
		return r
	}
	return Record{slices.DeleteFunc(slices.Clone(r.Entries), match)}
}
