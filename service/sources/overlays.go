package sources

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// overlayChanges changes the overlays in the store, and removes those that have expired.
type overlayChanges struct {
	pushes *pushes
	// unremoved is set while the store refuses to remove what has expired. Only expire uses it.
	unremoved bool
}

// OverlayRequest puts an overlay.
type OverlayRequest struct {
	Options     ChangeOptions
	Overlay     overlays.NewOverlay
	Cluster, ID string
	// MustName rejects an overlay of endpoints that names none of those that the cluster has now.
	MustName bool
}

// PutOverlay puts an overlay. When it returns, the overlay is durable and picks see it. The same overlay
// again changes nothing. It fails with UnknownCluster, with UnknownEndpoint if it must name an endpoint, and with
// Blocked if nothing usable would be left.
func (c *overlayChanges) PutOverlay(ctx context.Context, r *OverlayRequest) (*PushResult, error) {
	key := overlay.Key(r.Cluster, r.ID)
	ch := c.change(key, observe.EventOverlaySet, r.Options)
	o, err := r.Overlay.At(time.Now())
	if err == nil {
		err = overlays.CheckID(r.ID)
	}
	if err != nil {
		return nil, err
	}
	o.Cluster, o.ID, o.Author = r.Cluster, r.ID, cmp.Or(r.Options.Name, r.Options.Address)
	ch.run = func(tx *store.Tx) error {
		if err := c.named(r, o); err != nil {
			return err
		}
		before, exists := tx.Get(key)
		if exists {
			if was, err := overlays.Decode(before); err == nil && sameOverlay(was, o) {
				ch.res.Hash = hash(before.Raw)
				return nil
			}
		}
		ch.res.New = !exists
		if err := c.check(tx, r, o, ch.res); err != nil {
			return err
		}
		raw, err := overlays.Encode(o)
		if err != nil {
			return err
		}
		ch.res.Hash = hash(raw)
		return c.pushes.put(tx, ch, resource.Item{Key: key, Raw: raw})
	}
	return c.pushes.apply(ctx, ch)
}

// named returns an error for an overlay that must name an endpoint of its cluster, and names none. What must not be put
// at all is for check.
func (c *overlayChanges) named(r *OverlayRequest, o *resource.Overlay) error {
	cc := c.Config(r.Cluster)
	if !r.MustName || cc == nil || len(cc.Leaves) > 0 || !overlays.NamesNone(o, cc) {
		return nil
	}
	if _, a := cc.Source(); a == nil {
		return fault.Errorf(fault.Blocked, "the endpoints of cluster %s are not known now", r.Cluster).Of(r.Cluster, "")
	}
	return fault.Errorf(fault.UnknownEndpoint, "the overlay %s, and cluster %s has no such endpoint", overlay.Describe(o), r.Cluster).Of(r.Cluster, "")
}

// sameOverlay reports whether two overlays do the same.
func sameOverlay(a, b *resource.Overlay) bool {
	was, is := *a, *b
	was.Created, was.Author, is.Created, is.Author = time.Time{}, "", time.Time{}, ""
	if a.Locality != nil && b.Locality != nil && *a.Locality == *b.Locality {
		was.Locality, is.Locality = nil, nil
	}
	return was == is
}

// check returns an error for an overlay that must not be put, and adds warnings to res. It makes the
// overlay newer than the others of the cluster, whatever the clocks of the daemons say that put them.
// The overlays that it reads are part of the transaction, so two that are put at once are compared, too.
// What they change is that of the sources now.
func (c *overlayChanges) check(tx *store.Tx, r *OverlayRequest, o *resource.Overlay, res *PushResult) error {
	if err := c.pushes.Unread(); err != nil {
		return err
	}
	cc := c.Config(r.Cluster)
	if cc == nil {
		return ledger.UnknownCluster(r.Cluster)
	}
	if cc.Cluster != nil && cc.Cluster.Type == resource.ClusterAggregate {
		return fault.Errorf(fault.InvalidArgument, "%q is an AGGREGATE: put the overlay on one of its clusters: %s",
			r.Cluster, difference.Few(cc.Leaves, maxListedNames)).Of(r.Cluster, "")
	}
	entries := tx.Of(overlay.Type)
	others := slices.DeleteFunc(overlays.Of(entries, r.Cluster, time.Now()), func(other *resource.Overlay) bool { return other.ID == o.ID })
	if len(others) > 0 {
		if newest := others[len(others)-1].Created; !o.Created.After(newest) {
			o.Created = newest.Add(time.Millisecond)
		}
	}
	if all, of := overlays.Count(entries, r.Cluster); res.New && (all >= overlays.MaxOverlays || of >= overlays.MaxOfCluster) {
		return fault.Errorf(fault.RateLimited, "limit of overlays reached: there are %d, %d of them of %q (at most %d and %d)",
			all, of, r.Cluster, overlays.MaxOverlays, overlays.MaxOfCluster).Of(r.Cluster, "")
	}
	for _, w := range overlays.Warnings(o, others, cc) {
		res.Warnings = append(res.Warnings, fault.Problem{Resource: overlay.Key(r.Cluster, r.ID).String(), Reason: w})
	}
	return nil
}

// Config returns the config of a cluster in the first target that has it, also as a leaf of an
// AGGREGATE; nil if none has it.
func (c *overlayChanges) Config(cluster string) *resource.ClusterConfig {
	hosted := c.pushes.Ledger.Hosted()
	if m := hosted.Cluster(cluster); m != nil {
		return m.ClusterConfig()
	}
	for t := range hosted.All() {
		if v := t.View(); v != nil && v.Config != nil && v.Config.Err == nil {
			if cc := v.Config.Clusters.Get(cluster); cc != nil && cc.Err == nil && (t.Label != "" || v.Only != nil && v.Only.Known()) {
				return cc
			}
		}
	}
	return nil
}

// DeleteOverlay removes an overlay. It fails with UnknownOverlay if there is none.
func (c *overlayChanges) DeleteOverlay(ctx context.Context, cluster, id string, o ChangeOptions) (*PushResult, error) {
	key := overlay.Key(cluster, id)
	o.AllowEmpty = true
	ch := c.change(key, observe.EventOverlayEnded, o)
	ch.run = func(tx *store.Tx) error {
		if !c.pushes.remove(tx, ch, key) {
			return c.UnknownOverlay(cluster, id)
		}
		return nil
	}
	return c.pushes.apply(ctx, ch)
}

// OverlayTag returns the hash of an overlay, for a precondition.
func (*overlayChanges) OverlayTag(o *resource.Overlay) string {
	raw, err := overlays.Encode(o) // as it is stored
	if err != nil {
		return ""
	}
	return hash(raw)
}

// UnknownOverlay returns the error of an overlay that does not exist: it says which do.
func (c *overlayChanges) UnknownOverlay(cluster, id string) error {
	var ids []string
	if now, err := c.pushes.contents(); err == nil {
		for _, o := range overlays.Of(now.Of(overlay.Type), cluster, time.Now()) {
			ids = append(ids, o.ID)
		}
	}
	exist := "it has none"
	if ids != nil {
		exist = "it has " + difference.Few(ids, maxListedNames)
	}
	return fault.Errorf(fault.UnknownOverlay, "cluster %q has no overlay %q; %s", cluster, id, exist).Of(cluster, "")
}

// change returns a change of one overlay, without run.
func (c *overlayChanges) change(key resource.Key, event observe.EventType, o ChangeOptions) *change {
	return &change{options: o, cluster: overlay.ClusterOf(key), current: keyed(key), event: event, res: &PushResult{}}
}

// Overlays returns the overlays of a cluster, or of all for an empty name: by cluster, and the oldest
// first.
func (c *overlayChanges) Overlays(cluster string) ([]*resource.Overlay, error) {
	now, err := c.pushes.contents()
	if err != nil {
		return nil, err
	}
	return overlays.Of(now.Of(overlay.Type), cluster, time.Now()), nil
}

const (
	// expireTimeout limits how long the removal of what has expired may take.
	expireTimeout = 10 * time.Second
	// expireRetry is the time after which a removal that failed is tried again.
	expireRetry = 5 * time.Second
)

// expire ends the effect of the overlays that have expired, and removes them from the store. All daemons
// of a store do: the first one removes the entry, and if the store cannot be reached, the overlay ends
// all the same.
func (c *overlayChanges) expire() {
	p := c.pushes
	st, err := p.open()
	if err != nil {
		p.expiry.Set(time.Now().Add(expireRetry))
		return
	}
	expired := c.endExpired(st)
	ctx, cancel := context.WithTimeout(context.Background(), expireTimeout)
	defer cancel()
	defer context.AfterFunc(p.Draining, cancel)()
	for _, key := range expired {
		ch := c.change(key, observe.EventOverlayEnded, ChangeOptions{From: "lbd", Message: "the overlay has expired", AllowEmpty: true})
		ch.own = true
		ch.run = func(tx *store.Tx) error {
			e, exists := tx.Get(key)
			if o, err := overlays.Decode(e); exists && err == nil && o.Expired(time.Now()) { // it may have been put again
				p.remove(tx, ch, key)
			}
			return nil
		}
		if err := p.make(ctx, ch); err != nil {
			if !c.unremoved { // once for all retries
				p.Logger.Warn("an expired overlay has no effect any more, and cannot be removed from the store yet", "overlay", key.Name, "error", err)
			}
			c.unremoved = true
			p.expiry.Set(time.Now().Add(expireRetry))
			return
		}
		p.report(ch, nil)
	}
	c.unremoved = false
}

// endExpired ends the effect of the overlays that have expired, and returns them.
func (c *overlayChanges) endExpired(st store.Store) []resource.Key {
	p := c.pushes
	p.deciding.Lock()
	defer p.deciding.Unlock()
	s := st.Snapshot()
	expired, next := overlays.Expired(s, time.Now())
	p.publish(&p.propose(s, expired).Proposal)
	p.expiry.Set(next)
	return slices.SortedFunc(slices.Values(expired), store.CompareKeys)
}

// The metrics of overlays.
var (
	overlayCount  = observe.Gauge("lbd_overlays", "Overlays that operators have put on what the sources of a cluster say.", "cluster", "kind")
	overlayOldest = observe.Gauge("lbd_overlay_oldest_timestamp_seconds",
		"Unix time at which the oldest of lbd_overlays was put. An old one was perhaps forgotten.", "cluster", "kind")
)

func (c *overlayChanges) collect(out chan<- prometheus.Metric) {
	list, err := c.Overlays("")
	if err != nil {
		return
	}
	type series struct {
		cluster string
		kind    resource.OverlayKind
	}
	counts, oldest := map[series]int{}, map[series]time.Time{}
	for _, o := range list { // the oldest first
		key := series{o.Cluster, o.Kind}
		if counts[key]++; counts[key] == 1 {
			oldest[key] = o.Created
		}
	}
	for key, n := range counts {
		out <- overlayCount.Metric(float64(n), key.cluster, string(key.kind))
		out <- overlayOldest.Metric(float64(oldest[key].UnixMilli())/1000, key.cluster, string(key.kind))
	}
}
