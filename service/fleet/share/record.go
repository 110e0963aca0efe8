package share

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Record is what the replicas share for one limit. It is immutable.
type Record struct {
	// Entries are in the order of their Replica, which is unique.
	Entries []Entry
}

// Entry is what a process publishes.
type Entry struct {
	// Replica identifies the process: it is another one after a restart.
	Replica string
	// Session is the session of the process that Share is for.
	Session int64
	// Limit is the limit of the whole fleet as the process knows it.
	Limit int64
	// Share is how many requests the process may hold at most.
	Share int64
	// Demand is how many it would like to hold.
	Demand int64
	// Bound is the maximum ttl of its leases.
	Bound time.Duration
}

const (
	// maxNumber limits the numbers of an entry, so that sums do not overflow.
	maxNumber = 1 << 40
	// version is the first byte of an encoded entry.
	version = 1
)

// ErrNewer is the error of an entry that was written by a later version.
var ErrNewer = errors.New("the entry was written by a later version")

// Encode returns the bytes of an entry, without its Replica.
func (e Entry) Encode() []byte {
	b := []byte{version}
	bound := (e.Bound + time.Millisecond - 1) / time.Millisecond // a longer one is safe
	for _, n := range []int64{e.Session, e.Limit, e.Share, e.Demand, int64(bound)} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// Decode returns the entry of a replica from bytes that [Entry.Encode] returned. What follows is of a later version,
// which may be ignored: only the replica itself replaces its entry.
func Decode(replica string, b []byte) (Entry, error) {
	switch {
	case len(b) == 0 || b[0] == 0:
		return Entry{}, fmt.Errorf("the entry of replica %q is damaged", replica)
	case b[0] > version:
		return Entry{}, fmt.Errorf("replica %q: version %d: %w", replica, b[0], ErrNewer)
	}
	b = b[1:]
	var n [5]int64
	for i := range n {
		value, size := binary.Uvarint(b)
		if size <= 0 {
			return Entry{}, fmt.Errorf("the entry of replica %q is damaged", replica)
		}
		n[i], b = int64(value), b[size:]
	}
	e := Entry{Replica: replica, Session: n[0], Limit: n[1], Share: n[2], Demand: n[3], Bound: time.Duration(n[4]) * time.Millisecond}
	if !counts(e.Limit) || !counts(e.Share) || !counts(e.Demand) || !counts(n[4]) {
		return Entry{}, fmt.Errorf("the entry of replica %q has numbers that are out of range", replica)
	}
	return e, nil
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

// With returns the record with an entry in place of that of the same replica.
func (r Record) With(e Entry) Record {
	i, ok := r.at(e.Replica)
	if ok {
		entries := slices.Clone(r.Entries)
		entries[i] = e
		return Record{entries}
	}
	return Record{slices.Insert(slices.Clone(r.Entries), i, e)}
}

// Without returns the record without the entries that match.
func (r Record) Without(match func(Entry) bool) Record {
	if !slices.ContainsFunc(r.Entries, match) {
		return r
	}
	return Record{slices.DeleteFunc(slices.Clone(r.Entries), match)}
}
