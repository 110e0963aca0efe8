package sources

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/service/registration"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// maxStoredWarnings limits the warnings about stored resources that are logged at
// startup. An older lbd may have accepted these resources without them.
const maxStoredWarnings = 100

// pushes owns what callers change: pushed resources, and targets that are hosted by
// name. All of it is in the store.
type pushes struct {
	*publisher
	files   *resourceFiles
	results *prometheus.CounterVec
	// unreadable returns the number of records in the store that cannot be read; nil if that is always none.
	unreadable func() int
	waiting    atomic.Int64 // pushes that wait for their turn

	storeHealth
	inFlight inFlight
	rendered renderedSnapshots
	served   *served
	expiry   overlays.Expiry
	// registered has the endpoints with a ttl of all that is pushed.
	registered *registration.Table
	store      atomic.Pointer[store.Store] // nil before Start has loaded it
	trimmer    changelog.Trimmer           // of the functions of Updates, which the store runs one by one

	// Guarded by deciding, which orders Start's snapshot among the commits that are published. permitted are the
	// changes that the store may be about to commit.
	permitted  map[*change]*resolver.Proposal
	loaded     bool
	unloaded   *proposed // before that: what unloadedOf has
	unloadedOf *store.Snapshot
}

func newPushes(p *publisher, files *resourceFiles) *pushes {
	return &pushes{
		publisher: p, files: files, results: newResults(p.Registry),
		storeHealth: storeHealth{logger: p.Logger, events: p.Events},
		inFlight:    inFlight{changes: make(map[*change]landed)},
		permitted:   make(map[*change]*resolver.Proposal),
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
	index := p.load(st)
	var names []string // those of files, too
	for _, t := range p.Ledger.Hosted().Sorted() {
		names = append(names, t.Name)
	}
	err := p.Ledger.Settle(ctx, names)
	p.served.start(index, p.Ledger.Settle)
	p.store.Store(&st)
	return err
}

// load publishes what the store has, and returns its index. A commit that it reports before is
// in the snapshot; a later one is published afterwards.
func (p *pushes) load(st store.Store) (index uint64) {
	p.deciding.Lock()
	defer p.deciding.Unlock()
	is, stored := p.loading(st)
	for _, w := range is.warnings[:min(len(is.warnings), maxStoredWarnings)] {
		p.Logger.Warn("stored resource", "resource", w.Resource, "warning", w)
	}
	if more := len(is.warnings) - maxStoredWarnings; more > 0 {
		p.Logger.Warn("stored resources have more warnings: PUT what GET /v1/snapshot returns with dry_run=true to list them", "more", more)
	}
	for _, name := range p.Targets {
		is.Hosted[name] = true
	}
	p.register(is)
	p.updateAndClose(func(r *resolver.Resolver) []resolver.TargetConfig {
		changes := r.Accept(&is.Proposal)
		p.served.hold(r.Waiting(), stored, is.Updates)
		return changes
	})
	p.expireOverlays(stored, is)
	p.loaded, p.unloaded, p.unloadedOf = true, nil, nil
	return stored.Index()
}

// unpublished returns what the resolver does not have yet: what st has, before that is loaded, and the changes that
// the store may be about to commit. The caller holds p.deciding.
func (p *pushes) unpublished(st store.Store) []*resolver.Proposal {
	all := slices.Collect(maps.Values(p.permitted))
	if !p.loaded {
		is, _ := p.loading(st)
		all = slices.Insert(all, 0, &is.Proposal)
	}
	return all
}

// loading returns what st has now, before it is loaded. The caller holds p.deciding.
func (p *pushes) loading(st store.Store) (*proposed, *store.Snapshot) {
	now := st.Snapshot()
	if p.unloaded == nil || p.unloadedOf != now {
		keys := make([]resource.Key, 0, now.Len())
		for e := range now.All() {
			keys = append(keys, e.Key)
		}
		p.unloaded, p.unloadedOf = p.propose(now, keys), now
	}
	return p.unloaded, now
}

// committed is Commit of Inbound.
func (p *pushes) committed(c store.Commit) {
	p.deciding.Lock()
	defer p.deciding.Unlock()
	is := p.propose(c.After, c.Changed)
	p.register(is)
	var done landed
	done.affected, _ = p.publish(&is.Proposal, func(r *resolver.Resolver) []resolver.TargetConfig {
		done.waits = p.served.hold(r.Waiting(), c.After, is.Updates)
		return nil
	})
	p.expireOverlays(c.After, is)
	p.served.published(c.After.Index(), done.affected)
	p.inFlight.committed(done)
}

// expireOverlays sets the time at which the next overlay of a snapshot expires, if overlays have changed.
func (p *pushes) expireOverlays(s *store.Snapshot, is *proposed) {
	if len(is.Overlays) == 0 {
		return
	}
	expired, next := overlays.Expired(s, time.Now())
	if len(expired) > 0 {
		next = time.Now()
	}
	p.expiry.Set(next)
}

// register updates the registered endpoints after a change of the store.
func (p *pushes) register(is *proposed) {
	now := time.Now()
	for _, u := range is.Updates {
		if u.Key.Type == Endpoints {
			p.registered.Set(u.Key.Name, u.Raw, u.Assignment, now)
		}
	}
	for _, e := range is.renewals {
		if err := p.registered.Hear(e.Raw, now); err != nil {
			p.Logger.Warn("what another daemon has written has no effect", "daemon", e.Key.Name, "error", err)
		}
	}
}

// MaxWaitingPushes limits how many pushes wait for their turn.
const MaxWaitingPushes = 64

// denseFactor is about how many times its size a body takes when it is decoded, if it has neither the names of fields
// nor white space.
const denseFactor = 8

// begin waits for the turn of a caller to decode a body.
func (p *pushes) begin(ctx context.Context, caller string, body []byte, f Format) (*overload.Turn, error) {
	defer p.waiting.Add(-1)
	if p.waiting.Add(1) > MaxWaitingPushes && len(body) > overload.SmallWork {
		return nil, fault.Errorf(fault.RateLimited, "limit of waiting pushes reached (%d)", MaxWaitingPushes).Retry(time.Second)
	}
	turn, err := p.Turns.BeginSized(ctx, overload.PushWork, caller, len(body))
	if err == nil && f != JSON && f != YAML {
		err = overload.Reserve(ctx, denseFactor*len(body))
	}
	if err != nil {
		turn.End()
		return nil, fault.FromContext(err)
	}
	return turn, nil
}
