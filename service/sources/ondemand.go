package sources

import (
	"cmp"
	queue "container/list"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/quota"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Limits of clusters on demand.
const (
	// DefaultOnDemand limits the known clusters that picks subscribe to.
	DefaultOnDemand = 1000
	// DefaultOnDemandUnknown limits the names that picks subscribe to and that no
	// management server has confirmed.
	DefaultOnDemandUnknown = 1000
	// DefaultOnDemandIdle is the idle time after which a known cluster is released.
	DefaultOnDemandIdle = 10 * time.Minute
	// UnknownIdle is the idle time after which an unknown name is released: longer than a
	// management server has to send the cluster.
	UnknownIdle = 30 * time.Second
	// UnknownTenure is how long an unknown name has a place at least. After that, a new
	// name can evict the oldest: a server that answers has answered.
	UnknownTenure = time.Second
)

// onDemand are the clusters that are hosted because picks named them. A cluster that a
// management server confirmed, or of which a version is kept, has a place that no unknown
// name can take: any caller can invent names.
type onDemand struct {
	*publisher
	maxKnown, maxUnknown int
	idle                 time.Duration

	// Counts of refused and evicted names.
	refusedKnown, refusedUnknown, evicted atomic.Uint64

	mu      sync.Mutex // locked before the publisher's
	started bool       // there is a management server
	closed  bool
	known   map[string]*demanded      // by cluster
	unknown map[string]*queue.Element // of *demanded, by cluster
	oldest  *queue.List               // the unknown ones, in the order in which they came
	// Those of each account, in the same order: it pays for them, so that no caller can take the places of all.
	paid map[*quota.Account]*queue.List

	// Fixed after start.
	stop   context.CancelFunc // of the sweeps
	sweeps sync.WaitGroup
}

type demanded struct {
	cluster string
	account *quota.Account // nil without one, and once it is not charged any more
	place   *queue.Element // in paid
	since   time.Time
	used    time.Time // when a sweep last saw it used
	// refused is true for an unknown name that was confirmed when the limit of known
	// clusters was reached. It is not hosted; its picks are refused.
	refused bool
}

func newOnDemand(p *publisher) *onDemand {
	return &onDemand{
		publisher: p, known: make(map[string]*demanded), unknown: make(map[string]*queue.Element), oldest: queue.New(), paid: make(map[*quota.Account]*queue.List),
		maxKnown: cmp.Or(p.OnDemand, DefaultOnDemand), maxUnknown: cmp.Or(p.OnDemandUnknown, DefaultOnDemandUnknown),
		idle: cmp.Or(p.OnDemandIdle, DefaultOnDemandIdle),
	}
}

// start begins to release idle clusters. evictSpare is called as often as a known cluster
// can become idle.
func (d *onDemand) start(evictSpare func()) {
	ctx, stop := context.WithCancel(context.Background())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.started, d.stop = true, stop
	d.sweeps.Go(func() {
		ticker := time.NewTicker(min(UnknownIdle, d.idle) / 3)
		defer ticker.Stop()
		evict := time.NewTicker(d.idle)
		defer evict.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-ticker.C:
				d.sweep(now)
			case <-evict.C:
				evictSpare()
			}
		}
	})
}

// close stops the sweeps. No cluster is demanded after it.
func (d *onDemand) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	if d.stop != nil {
		d.stop()
		d.sweeps.Wait()
	}
}

// Demand returns the target of a cluster, and subscribes to the cluster if there is
// none yet: its picks wait for the answer. Without a management server it returns nil. The account, which
// may be nil, is charged for the name while it is unknown.
func (d *onDemand) Demand(cluster string, by *quota.Account) (*ledger.Target, error) {
	d.mu.Lock()
	t, ended, err := d.demand(cluster, by)
	d.mu.Unlock()
	ended.Close()
	return t, err
}

// demand is Demand for a caller that holds d.mu, and closes the ended targets afterwards.
func (d *onDemand) demand(cluster string, by *quota.Account) (_ *ledger.Target, ended ledger.Ended, err error) {
	if !d.started {
		return nil, ended, nil
	}
	if t := d.Ledger.Hosted().Own(cluster); t != nil { // by a concurrent pick
		t.MarkUsed()
		return t, ended, nil
	}
	if d.closed {
		return nil, ended, d.Ledger.Gone(cluster, "")
	}
	cluster = strings.Clone(cluster) // it may be a part of a URL, which is much longer
	evicted, err := d.reserve(cluster, by)
	if err != nil {
		if evicted != "" {
			ended = d.release([]string{evicted})
		}
		return nil, ended, err
	}
	_, ended = d.update(func(r *resolver.Resolver) []resolver.TargetConfig {
		return append(r.Unhost(resolver.Target(evicted)), r.Host(resolver.Target(cluster))...)
	})
	return d.Ledger.Hosted().Own(cluster), ended, nil
}

// reserve gives a cluster a place among the known or the unknown ones. It returns the
// unknown name that it evicts for that, if any.
func (d *onDemand) reserve(cluster string, by *quota.Account) (evicted string, err error) {
	c := &demanded{cluster: cluster, since: time.Now()}
	c.used = c.since
	if d.confirmed(cluster) {
		if len(d.known) >= d.maxKnown {
			d.refusedKnown.Add(1)
			return "", limitReached(cluster, UnknownIdle, "limit of clusters on demand reached (%d, --on-demand)", d.maxKnown)
		}
		d.removeUnknown(cluster)
		d.known[cluster] = c
		return "", nil
	}
	if evicted, err = d.charge(c, by); err == nil && len(d.unknown) >= d.maxUnknown {
		evicted, err = d.evict(d.oldest, c.since)
		if err != nil {
			err = fmt.Errorf("the limit of unknown names is reached (%d, --on-demand-unknown)", d.maxUnknown)
		}
	}
	if err != nil {
		d.refusedUnknown.Add(1)
		d.uncharge(c)
		return evicted, limitReached(cluster, UnknownTenure, "the cluster is not known, and %v", err)
	}
	d.addUnknown(c)
	return evicted, nil
}

// charge charges an account for an unknown name. If it has as many as it may, its oldest is evicted.
func (d *onDemand) charge(c *demanded, by *quota.Account) (evicted string, err error) {
	if by == nil {
		return "", nil
	}
	if err = by.TryAcquire(quota.UnknownNames, 1); err != nil {
		own := d.paid[by]
		if own == nil {
			return "", err
		}
		if evicted, _ = d.evict(own, c.since); evicted == "" || by.TryAcquire(quota.UnknownNames, 1) != nil {
			return evicted, err
		}
	}
	if d.paid[by] == nil {
		d.paid[by] = queue.New()
	}
	c.account, c.place = by, d.paid[by].PushBack(c)
	return evicted, nil
}

// uncharge reverts charge.
func (d *onDemand) uncharge(c *demanded) {
	if c.account == nil {
		return
	}
	own := d.paid[c.account]
	if own.Remove(c.place); own.Len() == 0 {
		delete(d.paid, c.account)
	}
	c.account.Release(quota.UnknownNames, 1)
	c.account, c.place = nil, nil
}

// errTenure says that the oldest name keeps its place for UnknownTenure.
var errTenure = errors.New("the oldest name is not old enough")

// evict removes the first of the names in a list, unless it is younger than UnknownTenure, and returns it.
func (d *onDemand) evict(names *queue.List, now time.Time) (string, error) {
	oldest := of(names.Front())
	if now.Sub(oldest.since) < UnknownTenure {
		return "", errTenure
	}
	d.evicted.Add(1)
	d.removeUnknown(oldest.cluster)
	return oldest.cluster, nil
}

// confirmed reports whether a management server is known to have a cluster that is not
// hosted.
func (d *onDemand) confirmed(cluster string) bool {
	confirmed := d.unknown[cluster] != nil && of(d.unknown[cluster]).refused
	d.withResolver(func(r *resolver.Resolver) {
		_, kept := r.Kept(resource.Key{Type: resource.TypeCluster, Name: cluster})
		confirmed = confirmed || kept
	})
	return confirmed
}

// of returns an element of the list of unknown names.
func of(e *queue.Element) *demanded {
	return e.Value.(*demanded) //nolint:errcheck,forcetypeassert // the list holds nothing else
}

// limitReached is the error of a pick whose name has no place; it may have one later.
func limitReached(cluster string, after time.Duration, format string, args ...any) *fault.Error {
	return fault.Errorf(fault.RateLimited, "cluster %q: "+format, append([]any{cluster}, args...)...).Of(cluster, "").Retry(after)
}

func (d *onDemand) addUnknown(c *demanded) { d.unknown[c.cluster] = d.oldest.PushBack(c) }

func (d *onDemand) removeUnknown(cluster string) {
	if e := d.unknown[cluster]; e != nil {
		d.oldest.Remove(e)
		delete(d.unknown, cluster)
		d.uncharge(of(e))
	}
}

// confirm gives unknown names that turn out to be known a place among the known clusters, and adopted ones a place
// among the unknown. If a limit is reached, the cluster is released: its next pick is refused, or asks again.
func (d *onDemand) confirm(changes []resolver.TargetConfig) {
	var refused []string
	d.mu.Lock()
	for _, c := range changes {
		cluster, ok := resolver.Cluster(c.Target)
		e := d.unknown[cluster]
		if c.Adopted && len(d.unknown) < d.maxUnknown && !d.closed {
			d.unknown[cluster] = d.oldest.PushFront(&demanded{cluster: cluster, used: time.Now()}) // no tenure: many may be deleted at once
			continue
		}
		if c.Adopted {
			refused = append(refused, cluster)
		}
		if !ok || e == nil || !d.isKnown(cluster) {
			continue
		}
		if len(d.known) < d.maxKnown {
			d.removeUnknown(cluster)
			d.known[cluster] = of(e)
			continue
		}
		of(e).refused = true
		refused = append(refused, cluster)
	}
	ended := d.release(refused)
	d.mu.Unlock()
	ended.Close()
}

func (d *onDemand) release(clusters []string) (ended ledger.Ended) {
	if len(clusters) == 0 {
		return ended
	}
	_, ended = d.update(func(r *resolver.Resolver) (changes []resolver.TargetConfig) {
		for _, cluster := range clusters {
			changes = append(changes, r.Unhost(resolver.Target(cluster))...)
		}
		return changes
	})
	return ended
}

// isKnown reports whether a cluster's own target is hosted and known.
func (d *onDemand) isKnown(cluster string) bool {
	t := d.Ledger.Hosted().Own(cluster)
	return t != nil && t.View().Only.Known()
}

func (d *onDemand) sweep(now time.Time) {
	d.mu.Lock()
	var idle []string
	for cluster, c := range d.known {
		switch known := d.isKnown(cluster); {
		case d.expired(c, now, known):
			idle = append(idle, cluster)
			delete(d.known, cluster)
		case !known && len(d.unknown) < d.maxUnknown: // the server has removed it
			delete(d.known, cluster)
			d.addUnknown(c)
		}
	}
	for cluster, e := range d.unknown {
		if d.expired(of(e), now, false) {
			idle = append(idle, cluster)
			d.removeUnknown(cluster)
		}
	}
	ended := d.release(idle)
	d.mu.Unlock()
	ended.Close()
}

// expired reports whether a cluster was idle for so long that it is released.
func (d *onDemand) expired(c *demanded, now time.Time, known bool) bool {
	if t := d.Ledger.Hosted().Own(c.cluster); t != nil && t.TakeUsed() {
		c.used = now
		return false
	}
	idle := d.idle
	if !known {
		idle = min(idle, UnknownIdle)
	}
	return now.Sub(c.used) >= idle
}

// OnDemandState counts clusters on demand.
type OnDemandState struct {
	// Clusters is the sum of known and unknown.
	Clusters int `json:"clusters"`
	// Known are those that a management server confirmed, or of which a version is kept;
	// Max is their limit (--on-demand).
	Known int `json:"known"`
	Max   int `json:"max"`
	// Unknown are names that no management server has confirmed; MaxUnknown is their
	// limit (--on-demand-unknown).
	Unknown    int `json:"unknown"`
	MaxUnknown int `json:"max_unknown"`
}

func (d *onDemand) state() OnDemandState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return OnDemandState{
		Clusters: len(d.known) + len(d.unknown), Max: d.maxKnown,
		Known: len(d.known), Unknown: len(d.unknown), MaxUnknown: d.maxUnknown,
	}
}
