package sources

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/registration"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// registrations removes the registered endpoints that were not renewed.
type registrations struct {
	pushes    *pushes
	endpoints endpointChanges
	table     *registration.Table
	stillDue  func(registration.Expired, time.Time) bool // that of the table, but in tests
	expired   atomic.Uint64
	working   atomic.Bool // the store is changed: one change at a time

	ctx    context.Context
	end    context.CancelFunc
	ending sync.WaitGroup

	// Of the goroutine that works.
	retry  time.Time                // no removal before
	silent map[resource.Key]written // the renewals of other daemons
}

// written is what a daemon wrote, and when that was first seen.
type written struct {
	index uint64
	since time.Time
}

func newRegistrations(p *pushes, e endpointChanges) *registrations {
	r := &registrations{pushes: p, endpoints: e, table: p.registered, stillDue: p.registered.StillDue, silent: make(map[resource.Key]written)}
	r.ctx, r.end = context.WithCancel(context.Background())
	r.ending.Go(r.run)
	return r
}

// close ends all work.
func (r *registrations) close() {
	r.end()
	r.ending.Wait()
}

// run looks at the deadlines while there are registered endpoints.
func (r *registrations) run() {
	for {
		select {
		case <-r.table.Wake():
		case <-r.ctx.Done():
			return
		}
		ticker := time.NewTicker(registration.Interval)
		for r.table.Len() > 0 && r.ctx.Err() == nil {
			select {
			case <-ticker.C:
				r.tick()
			case <-r.ctx.Done():
			}
		}
		ticker.Stop()
	}
}

// tick does not wait for the store: the time between two ticks shows whether the process was paused.
func (r *registrations) tick() {
	now := time.Now()
	st, err := r.pushes.open()
	usable := err == nil && st.Err() == nil
	if !usable { // nothing can be removed, and renewals of other daemons may be missing
		r.table.Extend(now)
	}
	due := r.table.Tick(now)
	r.reportDeferred(due)
	if !usable || len(due.Expired)+len(due.News) == 0 || !r.working.CompareAndSwap(false, true) {
		return
	}
	seen := st.Snapshot()
	r.ending.Go(func() {
		defer r.working.Store(false)
		if len(due.News) > 0 {
			r.writeNews(st, due.News)
		}
		if now.Before(r.retry) {
			return
		}
		for _, x := range due.Expired {
			if !r.remove(seen, x) {
				r.retry = time.Now().Add(expireRetry)
				return
			}
		}
	})
}

// reportDeferred adds the events of endpoints that stay although they were not renewed.
func (r *registrations) reportDeferred(due registration.Due) {
	if due.Pause >= decode.MinTTL && due.Extended > 0 {
		says := fmt.Sprintf("lbd was paused for %v: %d registered endpoints have a full ttl again", due.Pause.Round(time.Millisecond), due.Extended)
		r.pushes.Logger.Warn("registered endpoints have a full ttl again after a pause of lbd", "pause", due.Pause, "endpoints", due.Extended)
		r.pushes.Events.Add(observe.Event{Type: observe.EventExpiryDeferred, Says: says})
	}
	for _, h := range due.Held {
		why := fmt.Sprintf("at most %v %% of the endpoints of a cluster, at least 1, are removed within %v (--max-expired)", 100*r.maxExpired(), h.Window)
		switch {
		case h.Silence > 0:
			why = fmt.Sprintf("no endpoint at all was renewed for %v: renewals do not reach lbd", h.Silence.Round(time.Millisecond))
		case h.Last && h.Count == 1:
			why = "it is the last usable one"
		}
		says := fmt.Sprintf("endpoints that were not renewed stay: %d: %s", h.Count, why)
		r.pushes.Logger.Warn("endpoints that were not renewed stay", "cluster", h.Cluster, "endpoints", h.Count, "why", why)
		r.pushes.Events.Add(observe.Event{Type: observe.EventExpiryDeferred, Cluster: h.Cluster, Says: says})
	}
}

func (r *registrations) maxExpired() float64 { return cmp.Or(r.pushes.MaxExpired, DefaultMaxExpired) }

// remove removes endpoints that were not renewed, unless they were meanwhile. seen is what the store had
// when that was found. It reports false if the store failed.
func (r *registrations) remove(seen *store.Snapshot, x registration.Expired) (ok bool) {
	p, key := r.pushes, resource.Key{Type: Endpoints, Name: x.Cluster}
	says := fmt.Sprintf("not renewed: %s", difference.Few(x.Addresses, maxListedNames))
	ch := &change{
		// The table keeps the last usable one.
		options: ChangeOptions{From: "lbd", Message: difference.Clip(says, changelog.MaxMessage), AllowEmpty: true},
		cluster: x.Cluster, current: keyed(key), own: true, res: &PushResult{},
	}
	was, _ := seen.Get(key)
	if !bytes.Equal(was.Raw, x.Raw) {
		was = store.Entry{Raw: x.Raw}
	}
	done, err := r.endpoints.edited(&EndpointRequest{Cluster: x.Cluster}, was, func(e store.Entry) (after []byte, added bool, err error) {
		after, _, err = decode.RemoveEndpoints(e.Raw, canonicalHosts(e), x.Addresses...)
		return after, false, err
	}, letOthersRun)
	if err != nil {
		p.Logger.Error("endpoints that were not renewed cannot be removed", "cluster", x.Cluster, "error", err)
		return false
	}
	ch.run = func(tx *store.Tx) error {
		if before, exists := tx.Get(key); !exists || !bytes.Equal(before.Raw, x.Raw) || heardMore(tx, seen) || !r.stillDue(x, time.Now()) {
			return nil // the next tick decides again
		}
		return p.put(tx, ch, done.Item)
	}
	ctx, cancel := context.WithTimeout(r.ctx, expireTimeout)
	defer cancel()
	if err := p.make(ctx, ch); err != nil {
		if r.ctx.Err() == nil {
			p.Logger.Warn("endpoints that were not renewed cannot be removed yet", "cluster", x.Cluster, "error", err)
		}
		return false
	}
	if len(ch.res.Changes) > 0 {
		r.expired.Add(uint64(len(x.Addresses)))
		p.report(ch, nil)
	}
	return true
}

// heardMore reports whether a daemon has written renewals since a snapshot, which this one may not have
// heard of. The transaction depends on that.
func heardMore(tx *store.Tx, seen *store.Snapshot) bool {
	is, _ := tx.Get(registration.Joined)
	if was, _ := seen.Get(registration.Joined); was.Index != is.Index {
		return true
	}
	for e := range seen.Of(registration.Type) {
		if now, exists := tx.Get(e.Key); exists && now.Index != e.Index {
			return true
		}
	}
	return false
}

// writeNews writes the renewals that this daemon has received, for the others, and deletes those of daemons
// that write no more.
func (r *registrations) writeNews(st store.Store, due []registration.Class) {
	now := time.Now()
	news := make(map[resource.Key][]byte, len(due))
	for _, c := range due {
		news[resource.Key{Type: registration.Type, Name: fmt.Sprintf("%s/%d", r.pushes.Replica, c)}] = r.table.News(c, now)
	}
	before := st.Snapshot()
	gone := r.gone(before, now)
	ctx, cancel := context.WithTimeout(r.ctx, expireTimeout)
	defer cancel()
	_, err := st.Update(ctx, func(tx *store.Tx) error {
		for _, key := range gone {
			tx.Discard(key)
		}
		first := false
		for key, raw := range news {
			if _, exists := before.Get(key); !exists {
				first = true
			}
			if err := tx.Put(key, raw); err != nil {
				return err
			}
		}
		if !first {
			return nil
		}
		return tx.Put(registration.Joined, fmt.Appendf(nil, "%s %d", r.pushes.Replica, now.UnixNano()))
	})
	if err != nil {
		for _, c := range due {
			r.table.NotWritten(c, now)
		}
	}
}

// gone returns the keys that daemons have not written for long.
func (r *registrations) gone(s *store.Snapshot, now time.Time) (keys []resource.Key) {
	maps.DeleteFunc(r.silent, func(key resource.Key, _ written) bool { // another daemon has deleted it
		_, exists := s.Get(key)
		return !exists
	})
	for e := range s.Of(registration.Type) {
		last, known := r.silent[e.Key]
		switch {
		case e.Key == registration.Joined:
		case !known || last.index != e.Index:
			r.silent[e.Key] = written{e.Index, now}
		case now.Sub(last.since) > silence(e.Key):
			delete(r.silent, e.Key)
			keys = append(keys, e.Key)
		}
	}
	return keys
}

// silence returns the time after which what a daemon has written is deleted: several times the ttl of what it
// has renewed there.
func silence(key resource.Key) time.Duration {
	_, class, _ := strings.Cut(key.Name, "/")
	n, err := strconv.Atoi(class)
	if longest := registration.Class(n).Bound(); err == nil && longest > 0 {
		return min(4*longest+time.Minute, 4*decode.MaxTTL)
	}
	return 4 * decode.MaxTTL
}

// The metrics of registered endpoints.
var (
	registeredFamily = observe.Gauge("lbd_registered_endpoints",
		"Registered endpoints, which are removed unless they are renewed (limit of all clusters --max-registrations).", "cluster")
	expiredHeldFamily = observe.Gauge("lbd_expired_endpoints_held",
		"Registered endpoints that were not renewed and stay, because too many of their cluster would be removed within a ttl, or the last usable one.", "cluster")
	expiredFamily = observe.Counter("lbd_expired_endpoints_total", "Registered endpoints that were removed because they were not renewed.")
)

func (r *registrations) collect(out chan<- prometheus.Metric) {
	var rest registration.Count
	for i, c := range r.table.Counts() {
		if i >= ledger.MaxClustersWithSeries {
			rest.Registered += c.Registered
			rest.Held += c.Held
			continue
		}
		out <- registeredFamily.Metric(float64(c.Registered), c.Cluster)
		out <- expiredHeldFamily.Metric(float64(c.Held), c.Cluster)
	}
	if rest.Registered > 0 {
		out <- registeredFamily.Metric(float64(rest.Registered), decode.ReservedName)
		out <- expiredHeldFamily.Metric(float64(rest.Held), decode.ReservedName)
	}
	out <- expiredFamily.Metric(float64(r.expired.Load()))
}
