package sources

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// record adds the record of a change of resources to its transaction, and removes the oldest
// records that are beyond the limits.
func (p *pushes) record(tx *store.Tx, st store.Store, c *change) error {
	if p.Changelog.Changes == 0 || len(c.replaced) == 0 || c.target != "" {
		return nil
	}
	r := changelog.Record{Caller: c.options.Name, Address: c.options.Address, Message: c.options.Message, Restored: c.restored}
	raw := r.Encode(c.replaced, p.Changelog.Bytes/2, hash)
	// The records of the snapshot, not those of tx: the change does not depend on them.
	for _, key := range p.trimmer.Expired(p.Changelog, st.Snapshot(), len(raw), time.Now()) {
		tx.Discard(key)
	}
	return tx.PutValue(changelog.NewKey(), raw, nil)
}

// Changes returns changes of resources, the newest first: pushes, and what this daemon has observed
// of files and management servers, of resources in a scope. oldest is the oldest index of which all pushed resources are known.
// next is Before of the rest; 0 if there is none.
func (p *pushes) Changes(f changelog.Filter, in *ledger.Scope) (list []changelog.Entry, oldest, next uint64, err error) {
	now, err := p.contents()
	if err != nil {
		return nil, 0, 0, err
	}
	records := changelog.Records(now.Of(changelog.Type))
	f.MaxAge = p.Changelog.Age
	if !in.All() {
		f.Visible = in.Resource
	}
	list, next = changelog.List(records, p.observed.Last(), f, time.Now())
	return list, changelog.Oldest(records, now.Index()), next, nil
}

// Difference is what differs between what was pushed at two indices.
type Difference struct {
	// From and To are the indices.
	From uint64 `json:"from" example:"4710"`
	To   uint64 `json:"to" example:"4711"`
	// Changes are sorted by resource. The first ones have words.
	Changes []VersionChange `json:"changes"`
	// Count is the number of all: Changes has the first 1000.
	Count int `json:"count"`
}

// VersionChange is what happened to one resource between two indices.
type VersionChange struct {
	difference.Change

	// Unknown is why its content at one of the indices is not known; absent if it is.
	Unknown string `json:"unknown,omitempty"`
	// Before and After are the contents, for a difference of one resource: absent where the
	// resource does not exist.
	Before Document `json:"before,omitempty" swaggertype:"object"`
	After  Document `json:"after,omitempty" swaggertype:"object"`
}

// Document is a resource in JSON.
type Document []byte

// MarshalJSON returns the document.
func (d Document) MarshalJSON() ([]byte, error) { return d, nil }

// maxDifferences is the maximum number of resources in a Difference.
const maxDifferences = 1000

// Range is a part of what was pushed.
type Range struct {
	// Resource is one resource, if it has a type.
	Resource resource.Key
	// Cluster is the Cluster and the ClusterLoadAssignment of a name; empty for all.
	Cluster string
}

// Has reports whether a resource is in the range.
func (r Range) Has(key resource.Key) bool {
	switch {
	case !isResource(key):
		return false
	case r.Resource.Type != "":
		return key == r.Resource
	case r.Cluster != "":
		return key.Name == r.Cluster && (key.Type == Config || key.Type == Endpoints)
	}
	return true
}

// query returns a query of what was pushed, as get and the records of all have it.
func query(all []store.Entry, get getter, of func(resource.Key) bool, pause func() error) *changelog.Query {
	return &changelog.Query{Records: all, Hash: hash, Of: of, Pause: pause, Now: func(key resource.Key) ([]byte, bool) {
		e, exists := get(key)
		return e.Raw, exists
	}}
}

// largest returns a function that reserves what the largest record takes while it is read: its bytes, and the
// compressed ones, are garbage when the next one is read.
func largest(ctx context.Context) func(bytes int) error {
	reserved := 0
	return func(bytes int) error {
		more := 2*bytes - reserved
		if more > overload.SmallWork { // less is reserved with what comes next
			reserved += more
		}
		return overload.Reserve(ctx, more)
	}
}

// reachable returns an error if what was pushed at an index is not known.
func reachable(records []store.Entry, index, now uint64) error {
	if oldest := changelog.Oldest(records, now); index < oldest {
		return fault.Errorf(fault.UnknownChange, "the history begins at index %d: what was pushed at index %d is not known", oldest, index)
	}
	if index > now {
		return fault.Errorf(fault.UnknownChange, "index %d is not reached: the last commit has index %d", index, now)
	}
	return nil
}

// Now is the index of the last commit, whichever that is.
const Now = math.MaxUint64

// Compare returns what differs between what was pushed at two indices, of which the first may be Now,
// for a caller. It waits for its turn.
func (p *pushes) Compare(ctx context.Context, caller string, from, to uint64, part Range, in *ledger.Scope) (*Difference, error) {
	now, err := p.contents()
	if err != nil {
		return nil, err
	}
	if from == Now {
		from = now.Index()
	}
	records := changelog.Records(now.Of(changelog.Type))
	if err := cmp.Or(reachable(records, from, now.Index()), reachable(records, to, now.Index())); err != nil {
		return nil, err
	}
	turn, err := p.Turns.BeginSized(ctx, overload.ResponseWork, caller, sizeOf(records))
	if err != nil {
		return nil, fault.FromContext(err)
	}
	defer turn.End()
	q := query(records, now.Get, func(key resource.Key) bool { return part.Has(key) && in.Resource(key) }, turn.Pause)
	q.Reserve = largest(ctx)
	before, err := q.At(from)
	if err != nil {
		return nil, unreadable(err)
	}
	after, err := q.At(to)
	if err != nil {
		return nil, unreadable(err)
	}
	at := func(state map[resource.Key]changelog.Content, key resource.Key) changelog.Content {
		c, changed := state[key]
		if e, exists := now.Get(key); !changed && exists {
			c = changelog.Content{Raw: e.Raw, Hash: hash(e.Raw)}
		}
		return c
	}
	keys := maps.Clone(before)
	maps.Copy(keys, after)
	out := &Difference{From: from, To: to, Changes: []VersionChange{}}
	for _, key := range slices.SortedFunc(maps.Keys(keys), store.CompareKeys) {
		if err := turn.Pause(); err != nil {
			return nil, unreadable(err)
		}
		a, b := at(before, key), at(after, key)
		if a.Unknown == nil && b.Unknown == nil && a.Hash == b.Hash {
			continue
		}
		if out.Count++; out.Count <= maxDifferences {
			contents := part.Resource.Type != ""
			if contents {
				if err := overload.Reserve(ctx, textFactor*(len(a.Raw)+len(b.Raw))); err != nil {
					return nil, err
				}
			}
			out.Changes = append(out.Changes, p.compare(key, a, b, out.Count <= difference.MaxListed, contents))
		}
	}
	return out, nil
}

func sizeOf(entries []store.Entry) int {
	n := 0
	for _, e := range entries {
		n += len(e.Raw)
	}
	return n
}

func unreadable(err error) error {
	if gone, ok := errors.AsType[*fault.Error](fault.FromContext(err)); ok {
		return gone
	}
	return fault.Errorf(fault.UnknownChange, "the history cannot be read: %v", err)
}

// compare describes two contents of a resource.
func (p *pushes) compare(key resource.Key, a, b changelog.Content, words, contents bool) VersionChange {
	out := VersionChange{Change: difference.Change{Resource: key.String(), Change: "modified"}}
	if unknown := cmp.Or(a.Unknown, b.Unknown); unknown != nil {
		out.Unknown = unknown.Error()
		return out
	}
	switch {
	case a.Raw == nil:
		out.Change.Change = "added"
	case b.Raw == nil:
		out.Change.Change = "removed"
	}
	if words {
		out.Difference = describeResource(p, store.Entry{Key: key, Raw: a.Raw}, store.Entry{Key: key, Raw: b.Raw})
	}
	if contents {
		out.Before, out.After = document(key, a.Raw), document(key, b.Raw)
	}
	return out
}

func document(key resource.Key, raw []byte) Document {
	if raw == nil {
		return nil
	}
	body, err := decode.Render(key.Type, raw, JSON)
	if err != nil {
		return nil
	}
	return body
}

// RestoreRequest restores what was pushed at an index.
type RestoreRequest struct {
	Options ChangeOptions // whose precondition is about Range.Resource, or about all pushed resources in Scope
	// Scope is what the caller may see; nil for everything.
	Scope *ledger.Scope
	Index uint64
	Range Range
	// MaxRemoved is how many resources may be removed; negative is any number.
	MaxRemoved int
}

// Restore pushes what was pushed at an index: it adds, replaces and removes resources in a range, all
// or none. They are checked as those of any push. When it returns, they are durable and picks see them.
func (p *pushes) Restore(ctx context.Context, r *RestoreRequest) (*PushResult, error) {
	c := &change{options: r.Options, cluster: r.Range.Cluster, restored: r.Index, res: &PushResult{}}
	c.current = currentSnapshot(r.Scope, new(string))
	if key := r.Range.Resource; key.Type != "" {
		c.cluster, c.current = clusterOf(key), keyed(key)
	}
	ready, err := p.prepare(ctx, r)
	if err != nil {
		p.report(c, err)
		return nil, err
	}
	c.run = func(tx *store.Tx) error { return p.restore(tx, r, c, ready) }
	return p.apply(ctx, c)
}

// decodedContents are contents by resource that are decoded already.
type decodedContents map[resource.Key]*decode.Decoded

// prepare decodes what a restore will probably need, so that other changes do not wait for that.
func (p *pushes) prepare(ctx context.Context, r *RestoreRequest) (decodedContents, error) {
	now, err := p.contents()
	if err != nil {
		return nil, err
	}
	records := changelog.Records(now.Of(changelog.Type))
	turn, err := p.Turns.BeginSized(ctx, overload.PushWork, r.Options.Caller, sizeOf(records))
	if err != nil {
		return nil, fault.FromContext(err)
	}
	defer turn.End()
	was, err := p.restorable(records, now.Get, now.Index(), r, turn.Pause, largest(ctx))
	if err != nil {
		return nil, err
	}
	out := decodedContents{}
	for key, content := range was {
		if content.Raw == nil {
			continue
		}
		if out[key], err = p.decodeContent(key, content.Raw, turn.Pause); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// restorable returns the contents in the range of a restore that are to be replaced.
func (p *pushes) restorable(records []store.Entry, get getter, index uint64, r *RestoreRequest, pause func() error, reserve func(int) error) (map[resource.Key]changelog.Content, error) {
	if err := reachable(records, r.Index, index); err != nil {
		return nil, err
	}
	q := query(records, get, r.Range.Has, pause)
	q.Reserve = reserve
	was, err := q.At(r.Index)
	if err != nil {
		return nil, unreadable(err)
	}
	for _, key := range slices.SortedFunc(maps.Keys(was), store.CompareKeys) {
		if c := was[key]; c.Unknown != nil {
			return nil, fault.Errorf(fault.UnknownChange, "%s cannot be restored: %v", key, c.Unknown).Of(clusterOf(key), "")
		}
	}
	return was, nil
}

func (p *pushes) decodeContent(key resource.Key, raw []byte, pause func() error) (*decode.Decoded, error) {
	o := p.decoding(Protobuf)
	o.Name, o.Lenient, o.Pause, o.Previous = key.Name, true, pause, p.previous
	d, err := decode.One(key.Type, raw, o)
	if err != nil {
		return nil, decodeError(key.String(), clusterOf(key), err)
	}
	d.Respelled = !bytes.Equal(d.Raw, raw)
	d.Raw = raw // exactly what was pushed
	return d, nil
}

func (p *pushes) restore(tx *store.Tx, r *RestoreRequest, c *change, ready decodedContents) error {
	st, err := p.open()
	if err != nil {
		return err
	}
	was, err := p.restorable(changelog.Records(tx.Of(changelog.Type)), tx.Get, st.Snapshot().Index(), r, letOthersRun, nil) // prepare has reserved it
	if err != nil {
		return err
	}
	for _, key := range slices.SortedFunc(maps.Keys(was), store.CompareKeys) {
		raw := was[key].Raw
		if raw == nil {
			p.remove(tx, c, key)
			continue
		}
		d := ready[key]
		if d == nil || !bytes.Equal(d.Raw, raw) {
			if d, err = p.decodeContent(key, raw, letOthersRun); err != nil {
				return err
			}
		}
		if err := p.put(tx, c, d.Item); err != nil {
			return err
		}
		c.res.Warnings = append(c.res.Warnings, p.judged(d.Warnings, nil)...)
	}
	if err := removesAtMost(c, r.MaxRemoved, "the restore"); err != nil {
		return err
	}
	if key := r.Range.Resource; key.Type != "" {
		if e, exists := tx.Get(key); exists {
			c.res.Hash = hash(e.Raw)
		}
	} else {
		c.res.Hash = hashAll(visible(tx.All(), r.Scope), letOthersRun)
	}
	return nil
}

// removesAtMost returns an error if a change removes more resources than it may; a negative number is
// no limit.
func removesAtMost(c *change, most int, what string) error {
	n, first := 0, ""
	for _, change := range c.res.Changes {
		if change.Change == "removed" {
			if n++; n == 1 {
				first = change.Resource
			}
		}
	}
	if most < 0 || n <= most {
		return nil
	}
	return fault.Errorf(fault.Blocked, "%s would remove %d resources, more than max_removed=%d; the first is %s", what, n, most, first)
}

// The metrics of the history.
var (
	historyChanges = observe.Gauge("lbd_change_history_changes", "Changes of pushed resources in the history (limit --change-history).")
	historyBytes   = observe.Gauge("lbd_change_history_bytes", "Size of the history of pushed resources in the store (limit --change-history-bytes).")
)

func (p *pushes) collectHistory(out chan<- prometheus.Metric) {
	st, err := p.open()
	if err != nil {
		return
	}
	records := changelog.Records(st.Snapshot().Of(changelog.Type))
	out <- historyChanges.Metric(float64(len(records)))
	out <- historyBytes.Metric(float64(sizeOf(records)))
}

// ParseResource returns the key of a resource, such as ClusterLoadAssignment/orders.
func ParseResource(text string) (resource.Key, error) {
	key := difference.Change{Resource: text}.Key()
	if key.Type.URL() == "" || key.Name == "" {
		return key, fmt.Errorf("a resource, such as ClusterLoadAssignment/orders")
	}
	return key, nil
}
