package changelog

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// Records sorts the entries of records from the newest to the oldest. One that is not committed
// yet, in a transaction, is the newest.
func Records(of iter.Seq[store.Entry]) []store.Entry {
	out := slices.Collect(of)
	slices.SortFunc(out, func(a, b store.Entry) int { return compareRecords(&b, &a) })
	return out
}

// compareRecords orders records by age, the oldest first.
func compareRecords(a, b *store.Entry) int {
	return cmp.Or(cmp.Compare(a.Index-1, b.Index-1), cmp.Compare(a.Key.Name, b.Key.Name)) // 0 becomes the largest
}

// Limits bound a history. Each is a maximum, and 0 none.
type Limits struct {
	Changes int
	Bytes   int64 // of the records
	Age     time.Duration
}

// maxExpired limits how many records one change removes: more would make a commit of etcd large.
const maxExpired = 32

// A Trimmer finds what is to be removed from a history. It keeps what it has computed of a
// snapshot, on which a store runs many Updates. One goroutine may use it at a time.
type Trimmer struct {
	of      *store.Snapshot
	records int
	bytes   int64
	oldest  []store.Entry // up to maxExpired, the oldest first
}

// Expired returns the oldest records of a snapshot that are to be removed when a new one with a
// size is added.
func (t *Trimmer) Expired(l Limits, of *store.Snapshot, size int, now time.Time) []resource.Key {
	if t.of != of {
		t.of, t.records, t.bytes = of, 0, 0
		for e := range of.Of(Type) {
			t.records++
			t.bytes += int64(len(e.Raw))
		}
		t.oldest = firstRecords(of.Of(Type), maxExpired)
	}
	n, bytes := t.records+1, t.bytes+int64(size)
	var out []resource.Key
	for _, e := range t.oldest {
		exceeded := l.Changes > 0 && n > l.Changes || l.Bytes > 0 && bytes > l.Bytes || l.Age > 0 && now.Sub(e.Updated) > l.Age
		if !exceeded {
			break
		}
		n--
		bytes -= int64(len(e.Raw))
		out = append(out, e.Key)
	}
	return out
}

// firstRecords returns the oldest records, up to a number.
func firstRecords(records iter.Seq[store.Entry], most int) []store.Entry {
	out := make([]store.Entry, 0, most+1)
	for e := range records {
		if len(out) == most && compareRecords(&e, &out[most-1]) > 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(out, e, func(a, b store.Entry) int { return compareRecords(&a, &b) })
		out = slices.Insert(out, at, e)
		out = out[:min(len(out), most)]
	}
	return out
}

// Oldest returns the oldest index whose resources follow from records and what is stored at an
// index.
func Oldest(records []store.Entry, index uint64) uint64 {
	if n := len(records); n > 0 && records[n-1].Index > 0 { // else it is not committed
		return records[n-1].Index - 1
	}
	return index
}

// Content is a resource at an index.
type Content struct {
	// Raw is nil if the resource did not exist.
	Raw []byte
	// Hash is that of Raw; empty if the resource did not exist.
	Hash string
	// Unknown is why Raw is not known; nil if it is.
	Unknown error
}

// Errors of Content.
var (
	ErrNotKept  = errors.New("its content was too large for the history")
	ErrNoRecord = errors.New("it was changed without a record: by another version of lbd, or by a daemon without history")
)

// Query is what At computes.
type Query struct {
	Records []store.Entry // of all changes, as Records returns them
	// Now returns the present content of a resource, and whether it exists.
	Now  func(resource.Key) (raw []byte, exists bool)
	Hash func([]byte) string
	// Of reports whether a resource is of interest; nil for all.
	Of func(resource.Key) bool
	// Pause is called between records. An error ends the query.
	Pause func() error
	// Reserve is called with the size of the contents of a record before they are expanded; nil for no limit. An
	// error ends the query.
	Reserve func(bytes int) error
}

// At returns the resources that are different now from what they were at an index, as they were then.
func (q *Query) At(index uint64) (map[resource.Key]Content, error) {
	was := map[resource.Key]Content{}
	checked := map[resource.Key]bool{}
	for _, e := range q.Records {
		if err := q.Pause(); err != nil {
			return nil, err
		}
		r, err := Decode(e)
		if err == nil {
			if e.Index == 0 || e.Index > index {
				err = q.undo(was, r)
			} else {
				err = q.check(was, checked, r)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("the change of index %d: %w", e.Index, err)
		}
	}
	maps.DeleteFunc(was, func(key resource.Key, c Content) bool { return c.Unknown == nil && c.Hash == q.now(key) })
	for key, c := range was {
		if c.Raw != nil && q.Hash(c.Raw) != c.Hash {
			return nil, fmt.Errorf("%s: %w", key, errDamaged)
		}
	}
	return was, nil
}

// now returns the hash of the present content, or an empty one.
func (q *Query) now(key resource.Key) string {
	if raw, exists := q.Now(key); exists {
		return q.Hash(raw)
	}
	return ""
}

// undo changes a state to that before a change.
func (q *Query) undo(state map[resource.Key]Content, r *Record) error {
	details, err := r.Details()
	if err != nil {
		return err
	}
	if q.Of != nil && !slices.ContainsFunc(details, func(d Detail) bool { return q.Of(d.Key()) }) {
		return nil
	}
	before, err := r.replaced(details, q.Reserve)
	if err != nil {
		return err
	}
	for i, d := range details {
		key := d.Key()
		if q.Of != nil && !q.Of(key) {
			continue
		}
		c := Content{Hash: d.Before}
		switch {
		case d.Before == "":
		case !r.kept:
			c.Unknown = ErrNotKept
		default:
			c.Raw, c.Unknown = q.before(state, &d, before[i])
		}
		state[key] = c
	}
	return nil
}

// before returns a content before a change: what the record has of it, between what the content after the change has as
// well. The error is why it is not known.
func (q *Query) before(state map[resource.Key]Content, d *Detail, own []byte) ([]byte, error) {
	if d.Prefix+d.Suffix == 0 {
		return own, nil
	}
	after, changed := state[d.Key()]
	if !changed {
		after.Raw, _ = q.Now(d.Key())
		after.Hash = q.now(d.Key())
	}
	switch n := int64(len(after.Raw)); {
	case after.Unknown != nil:
		return nil, after.Unknown
	case after.Hash != d.After || d.Prefix+d.Suffix > n:
		return nil, ErrNoRecord
	default:
		return slices.Concat(after.Raw[:d.Prefix], own, after.Raw[n-d.Suffix:]), nil
	}
}

// check compares a state with what the last change before it left of each resource.
func (q *Query) check(state map[resource.Key]Content, checked map[resource.Key]bool, r *Record) error {
	details, err := r.Details()
	if err != nil {
		return err
	}
	for _, d := range details {
		key := d.Key()
		if checked[key] || q.Of != nil && !q.Of(key) {
			continue
		}
		checked[key] = true
		c, changed := state[key]
		if !changed {
			c.Hash = q.now(key)
		}
		if c.Hash != d.After {
			state[key] = Content{Unknown: ErrNoRecord}
		}
	}
	return nil
}
