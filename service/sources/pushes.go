package sources

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/service/registration"
	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// maxStoredWarnings limits the warnings about stored resources that are logged at
// startup. An older lbd may have accepted these resources without them.
const maxStoredWarnings = 100

// hostedType is the store's type of the targets that are hosted by name. Its
// entries are no xDS resources: a snapshot neither has nor deletes them.
const hostedType resource.Type = "Target"

// pushes owns what callers change: pushed resources, and targets that are hosted by
// name. All of it is in the store.
type pushes struct {
	*publisher
	files   *resourceFiles
	results *prometheus.CounterVec
	waiting atomic.Int64 // pushes that wait for their turn
	// forecasts is the cost of the forecasts that run or wait, see MaxForecasts.
	forecasts atomic.Int64

	storeHealth
	inFlight inFlight
	rendered renderedSnapshots
	served   *served
	expiry   overlays.Expiry
	// registered has the endpoints with a ttl of all that is pushed.
	registered *registration.Table
	// describeStore is nil, or set before Start.
	describeStore func(*StoreState)
	store         atomic.Pointer[store.Store] // nil before Start has loaded it
	trimmer       changelog.Trimmer           // of the functions of Updates, which the store runs one by one

	committing sync.Mutex // orders Start's snapshot among the commits that are published
}

func newPushes(p *publisher, files *resourceFiles) *pushes {
	return &pushes{
		publisher: p, files: files, results: newResults(p.Registry),
		storeHealth: storeHealth{logger: p.Logger, events: p.Events},
		inFlight:    inFlight{changes: make(map[*change][]string)},
		served:      newServed(),
		registered:  registration.New(registration.Options{MaxExpired: cmp.Or(p.MaxExpired, DefaultMaxExpired), Shared: p.SharedStore}),
	}
}

// open returns the store, or an error before Start has loaded it.
func (p *pushes) open() (store.Store, error) {
	st := p.store.Load()
	if st == nil {
		return nil, fault.Errorf(fault.ShuttingDown, "the pushed resources are still being loaded")
	}
	return *st, nil
}

// Unread returns why it is not known what is pushed, as an error of requests that depend on
// it; nil if it is known.
func (p *pushes) Unread() error {
	st, err := p.open()
	if err != nil || st.Loaded() {
		return err
	}
	why := "it is being read"
	if err := st.Err(); err != nil {
		why = err.Error()
	}
	return fault.Errorf(fault.StoreUnavailable, "what is pushed is not known yet, because it was not read from etcd, and there is no local copy: %s", why).Retry(time.Second)
}

// Missing returns err. If it says that there is no such cluster or target, which may be only
// because it is not known what is pushed, Missing returns the error of Unread.
func (p *pushes) Missing(err error) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Code != fault.UnknownCluster && e.Code != fault.UnknownTarget {
		return err
	}
	unread, ok := errors.AsType[*fault.Error](p.Unread())
	if !ok {
		return err
	}
	unread.Detail = e.Detail + "; " + unread.Detail
	return unread.Of(e.Cluster, e.Target)
}

// contents returns what is pushed, or an error if that is not known.
func (p *pushes) contents() (*store.Snapshot, error) {
	if err := p.Unread(); err != nil {
		return nil, err
	}
	return (*p.store.Load()).Snapshot(), nil
}

// start loads the resources of st, and returns once every tree has its config.
func (p *pushes) start(ctx context.Context, st store.Store) error {
	updates, index := p.load(st)
	var names []string // those of files, too
	for _, t := range p.Ledger.Hosted().Sorted() {
		names = append(names, t.Name)
	}
	err := p.Ledger.Settle(ctx, names)
	p.served.start(index, p.Ledger.Settle)
	p.markAll(ctx, st, updates)
	p.store.Store(&st)
	return err
}

// load publishes what the store has, and returns its index. A commit that it reports before is
// in the snapshot; a later one is published afterwards.
func (p *pushes) load(st store.Store) ([]resource.Update, uint64) {
	p.committing.Lock()
	defer p.committing.Unlock()
	stored := st.Snapshot()
	warnings := 0
	is := p.updates(stored.Get, slices.Collect(stored.All()), func(key resource.Key, problem fault.Problem) {
		if warnings++; warnings <= maxStoredWarnings {
			p.Logger.Warn("stored resource", "resource", key, "warning", problem)
		}
	})
	p.register(is)
	if more := warnings - maxStoredWarnings; more > 0 {
		p.Logger.Warn("stored resources have more warnings: PUT what GET /v1/snapshot returns with dry_run=true to list them", "more", more)
	}
	for _, name := range p.Targets {
		is.hosts = append(is.hosts, hosting{name, true})
	}
	p.publishChange(func(r *resolver.Resolver) []resolver.Change {
		overlay := p.overlay(stored, is.overlaid, r) // before the clusters, so that they are not without it
		return slices.Concat(overlay, r.Apply(resource.SourcePush, is.updates), p.host(is.hosts)(r))
	})
	return is.updates, stored.Index()
}

// Commit publishes what the store has committed. The store's writer calls it.
func (p *pushes) Commit(c store.Commit) {
	p.committing.Lock()
	defer p.committing.Unlock()
	entries := make([]store.Entry, len(c.Changed))
	for i, key := range c.Changed {
		entries[i], _ = c.After.Get(key)
		entries[i].Key = key // also of one that was removed, which has no Raw
	}
	is := p.updates(c.After.Get, entries, func(resource.Key, fault.Problem) {})
	p.register(is)
	affected, _ := p.publish(resource.SourcePush, is.updates, func(r *resolver.Resolver) []resolver.Change {
		return append(p.host(is.hosts)(r), p.overlay(c.After, is.overlaid, r)...)
	})
	p.served.published(c.After.Index(), affected)
	p.inFlight.commit(affected)
}

// stored is what store entries are to the resolver.
type stored struct {
	updates  []resource.Update
	hosts    []hosting
	overlaid []string // clusters whose overlays have changed
	renewals []store.Entry
}

type hosting struct {
	name string
	on   bool
}

// host returns a function that hosts targets in a resolver, or no longer.
func (p *pushes) host(hosts []hosting) func(*resolver.Resolver) []resolver.Change {
	return func(r *resolver.Resolver) (changes []resolver.Change) {
		for _, h := range hosts {
			switch {
			case h.on:
				changes = append(changes, r.Host(h.name)...)
			case !slices.Contains(p.Targets, h.name):
				changes = append(changes, r.Unhost(h.name)...)
			}
		}
		return changes
	}
}

// updates returns what store entries are to the resolver. An entry without Raw was removed. warn is
// called with the warnings about resources that this daemon did not push.
func (p *pushes) updates(get getter, entries []store.Entry, warn func(resource.Key, fault.Problem)) stored {
	is := stored{updates: make([]resource.Update, 0, len(entries))}
	for _, e := range entries {
		switch {
		case e.Key.Type == securedType, e.Key.Type == changelog.Type:
		case e.Key.Type == registration.Type:
			is.renewals = append(is.renewals, e)
		case e.Key.Type == hostedType:
			is.hosts = append(is.hosts, hosting{e.Key.Name, e.Raw != nil})
		case e.Key.Type == overlay.Type:
			if cluster := overlay.ClusterOf(e.Key); !slices.Contains(is.overlaid, cluster) {
				is.overlaid = append(is.overlaid, cluster)
			}
			if _, err := overlays.Decode(e); e.Raw != nil && err != nil {
				p.Logger.Warn("an overlay has no effect on this daemon", "error", err)
			}
		case e.Raw == nil:
			is.updates = append(is.updates, resource.Update{Item: resource.Item{Key: e.Key}})
		default:
			item, problems, err := p.decoded(get, e)
			if err != nil {
				item.Raw = nil
			}
			for _, problem := range problems {
				warn(e.Key, problem)
			}
			is.updates = append(is.updates, resource.Update{Item: item, Err: err, Updated: e.Updated})
		}
	}
	return is
}

// overlay applies the overlays of clusters, as a snapshot has them, to a resolver, and sets the time at
// which the next one expires.
func (p *pushes) overlay(s *store.Snapshot, clusters []string, r *resolver.Resolver) (changes []resolver.Change) {
	if len(clusters) == 0 {
		return nil
	}
	now := time.Now()
	of := map[string][]*resource.Overlay{}
	for _, o := range overlays.All(overlays.Entries(s), now) {
		of[o.Cluster] = append(of[o.Cluster], o)
	}
	for _, cluster := range clusters {
		changes = append(changes, r.ApplyOverlays(cluster, of[cluster])...)
	}
	expired, next := overlays.Expired(s, now)
	if len(expired) > 0 {
		next = now
	}
	p.expiry.Set(next)
	return changes
}

// register updates the registered endpoints after a change of the store.
func (p *pushes) register(is stored) {
	now := time.Now()
	for _, u := range is.updates {
		if u.Key.Type == Endpoints {
			p.registered.Set(u.Key.Name, u.Raw, u.Assignment, now)
		}
	}
	for _, e := range is.renewals {
		if e.Raw == nil || e.Key == registration.Joined {
			continue
		}
		if err := p.registered.Hear(e.Raw, now); err != nil {
			p.Logger.Warn("what another daemon has written has no effect", "daemon", e.Key.Name, "error", err)
		}
	}
}

// internal reports whether a store's entry is no xDS resource.
func internal(key resource.Key) bool {
	return key.Type == hostedType || key.Type == securedType || key.Type == changelog.Type || key.Type == overlay.Type || key.Type == registration.Type
}

// markAll marks the stored Clusters that are in use with TLS: an older lbd left no
// marks.
func (p *pushes) markAll(ctx context.Context, st store.Store, stored []resource.Update) {
	get := st.Snapshot().Get
	stored = slices.DeleteFunc(stored, func(u resource.Update) bool {
		return u.Cluster == nil || u.Cluster.Security == nil || isSecured(get, u.Key, u.Raw)
	})
	if len(stored) == 0 {
		return
	}
	_, err := st.Update(ctx, func(tx *store.Tx) error {
		for _, u := range stored {
			if err := markSecured(tx, u.Key.Name, u.Raw, u.Cluster); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		p.Logger.Error("stored Clusters with TLS cannot be marked: without a bootstrap, their connections would be plain", "error", err)
	}
}

// MaxWaitingPushes limits how many pushes wait for their turn.
const MaxWaitingPushes = 64

// begin waits for the turn of a caller to decode a body.
func (p *pushes) begin(ctx context.Context, caller string, body []byte) (*overload.Turn, error) {
	defer p.waiting.Add(-1)
	if p.waiting.Add(1) > MaxWaitingPushes && len(body) > overload.SmallWork {
		return nil, fault.Errorf(fault.RateLimited, "limit of waiting pushes reached (%d)", MaxWaitingPushes).Retry(time.Second)
	}
	turn, err := p.Turns.BeginSized(ctx, overload.PushWork, caller, len(body))
	if err != nil {
		return nil, fault.FromContext(err)
	}
	return turn, nil
}
