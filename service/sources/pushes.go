package sources

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/service/admission"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// pushes owns what callers change: pushed resources, and targets that are hosted by
// name. All of it is in the store.
type pushes struct {
	*publisher
	files   *resourceFiles
	results *prometheus.CounterVec
	bodies  *bodyLimiter

	storeHealth
	inFlight inFlight
	store    atomic.Pointer[Store] // nil before Start has loaded it
}

func newPushes(p *publisher, files *resourceFiles) *pushes {
	return &pushes{
		publisher: p, files: files, results: newResults(p.Registry), bodies: newBodyLimiter(),
		storeHealth: storeHealth{logger: p.Logger, events: p.Events},
		inFlight:    inFlight{effects: make(map[*change]*effect)},
	}
}

// Loaded reports whether the store's resources are loaded.
func (p *pushes) Loaded() bool { return p.store.Load() != nil }

// open returns the store, or an error before Start has loaded it.
func (p *pushes) open() (Store, error) {
	st := p.store.Load()
	if st == nil {
		return nil, fault.Errorf(fault.ShuttingDown, "the pushed resources are still being loaded")
	}
	return *st, nil
}

// Start loads the resources of st, and returns once every tree has its config.
func (p *pushes) Start(ctx context.Context, st Store) error {
	stored := st.Snapshot()
	warnings := storedWarnings{logger: p.Logger}
	updates, hosts := p.updates(stored.Get, slices.Collect(stored.All()), &warnings)
	warnings.end()
	for _, name := range p.Targets {
		hosts = append(hosts, hosting{name, true})
	}
	p.publish(resource.SourcePush, updates, p.host(hosts))
	var names []string // those of files, too
	for _, t := range p.Ledger.Hosted().Sorted() {
		names = append(names, t.Name)
	}
	err := p.Ledger.Settle(ctx, names)
	p.markAll(ctx, st, updates)
	p.store.Store(&st)
	p.warnOfTargets(st.Snapshot().Get)
	return err
}

// Commit publishes what the store has committed. The store's writer calls it.
func (p *pushes) Commit(c store.Commit) {
	entries := make([]store.Entry, len(c.Changed))
	for i, key := range c.Changed {
		entries[i], _ = c.After.Get(key)
		entries[i].Key = key // also of one that was removed, which has no Raw
	}
	updates, hosts := p.updates(c.After.Get, entries, nil)
	p.inFlight.commit(p.publish(resource.SourcePush, updates, p.host(hosts)))
}

// updates returns what store entries are to the resolver: updates of resources, and
// targets that are hosted, or no longer, by name. An entry without Raw was removed.
func (p *pushes) updates(get getter, entries []store.Entry, warnings *storedWarnings) (updates []resource.Update, hosts []hosting) {
	for _, e := range entries {
		switch {
		case e.Key.Type == securedType:
		case e.Key.Type == hostedType:
			hosts = append(hosts, hosting{e.Key.Name, e.Raw != nil})
		case e.Raw == nil:
			updates = append(updates, resource.Update{Item: resource.Item{Key: e.Key}})
		default:
			item, problems, err := p.decoded(get, e)
			if err != nil {
				item.Raw = nil
			}
			warnings.log(e.Key, problems)
			updates = append(updates, resource.Update{Item: item, Err: err, Updated: e.Updated})
		}
	}
	return updates, hosts
}

// getter returns an entry of a store, and whether there is one.
type getter func(resource.Key) (store.Entry, bool)

// decoded returns an entry with its value. One that this daemon has pushed has it
// already.
func (o *Options) decoded(get getter, e store.Entry) (resource.Item, []fault.Problem, error) {
	if i, ok := e.Value.(resource.Item); ok {
		return i, nil, nil
	}
	d := o.decoding(Protobuf)
	d.Stored, d.Secured, d.Name = true, isSecured(get, e.Key, e.Raw), e.Key.Name
	return decode.Item(resource.Item{Key: e.Key, Raw: e.Raw}, d)
}

// view returns a View of the entries of a store.
func (o *Options) view(get getter) admission.View {
	return func(key resource.Key) (resource.Item, bool) {
		e, ok := get(key)
		if !ok {
			return resource.Item{}, false
		}
		item, _, _ := o.decoded(get, e) // has no value where it is invalid
		return item, true
	}
}
