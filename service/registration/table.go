package registration

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/wake"
)

// Interval is the time between two calls of Tick while there are registered endpoints.
const Interval = 250 * time.Millisecond

// maxGap is the time between two calls of Tick after which renewals may have been missed. With less,
// an endpoint that is renewed three times in each ttl is not yet due.
const maxGap = 2 * Interval

// Options configure a Table.
type Options struct {
	// MaxExpired is the part of the endpoints of a cluster, at least 1 of them, that is removed within
	// one ttl.
	MaxExpired float64
	// Shared is true if other daemons receive renewals, too.
	Shared bool
}

// Table has the registered endpoints of all clusters. Its methods may be called from any goroutine.
type Table struct {
	options Options
	wake    wake.One // there may be something to do

	mu       sync.Mutex
	clusters map[string]*cluster
	count    int
	last     time.Time // of the last Tick
	heard    time.Time // of the last renewal or registration, also at another daemon
	classes  [classes]class
	written  uint64 // the number of News
}

// cluster has the registered endpoints of an assignment.
type cluster struct {
	raw       []byte // the assignment
	hash      string // of raw; empty if it was not asked for
	total     int    // its endpoints
	usable    int
	endpoints map[string]*endpoint // by the Canonical of the first address
	more      map[string]*endpoint // by the Canonical of each further address; nil without
	removed   []removal            // in the order of their times
	next      time.Time            // no endpoint is due before
	held      int
}

type endpoint struct {
	is       *resource.Endpoint
	priority uint32
	deadline time.Time
	renewed  time.Time // by a request to this daemon; zero if it was not
	kept     time.Time // until when daemons keep it that know only what is in the store
}

type removal struct {
	at time.Time
	n  int
}

// New returns an empty table.
func New(o Options) *Table {
	return &Table{options: o, wake: wake.NewOne(), clusters: make(map[string]*cluster)}
}

// Wake returns a channel that has a value when there are registered endpoints again.
func (t *Table) Wake() <-chan struct{} { return t.wake }

// patience is how long an endpoint stays without a renewal. Other daemons write what they
// receive after up to a third of the ttl.
func (t *Table) patience(ttl time.Duration) time.Duration {
	if t.options.Shared {
		return 2 * ttl
	}
	return ttl
}

// Set replaces the assignment of a name, nil for none, and its Raw. Neither may be changed afterwards. New
// endpoints, and those with another ttl, have a full ttl.
func (t *Table) Set(name string, raw []byte, a *resource.Assignment, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clusters[name]
	if c == nil && Registered(a) == 0 {
		return
	}
	if c == nil {
		c = &cluster{}
		t.clusters[name] = c
	}
	before := len(c.endpoints)
	t.set(c, raw, a, now)
	if t.count == 0 && len(c.endpoints) > 0 {
		t.last = now
		t.wake.Wake()
	}
	if t.count += len(c.endpoints) - before; len(c.endpoints) == 0 {
		delete(t.clusters, name)
	}
}

// Registered returns the number of registered endpoints of an assignment, which may be nil.
func Registered(a *resource.Assignment) int {
	n := 0
	if a != nil {
		for _, l := range a.Localities {
			for _, e := range l.Endpoints {
				if e.TTL > 0 {
					n++
				}
			}
		}
	}
	return n
}

func (t *Table) set(c *cluster, raw []byte, a *resource.Assignment, now time.Time) {
	gone, window := c.endpoints, time.Duration(0)
	c.raw, c.hash, c.total, c.usable = raw, "", 0, 0
	c.endpoints, c.more = make(map[string]*endpoint, len(gone)), nil
	if a != nil {
		c.usable = a.Usable()
		for _, l := range a.Localities {
			c.total += len(l.Endpoints)
			for _, e := range l.Endpoints {
				key := resource.CanonicalAddress(e.Addresses[0])
				was := gone[key]
				delete(gone, key)
				if e.TTL > 0 {
					due := now.Add(t.patience(e.TTL))
					t.add(c, key, &endpoint{is: e, priority: l.Priority, deadline: due, kept: due}, was, now)
					window = max(window, t.patience(e.TTL))
				}
			}
		}
	}
	c.remove(len(gone), now, window)
	c.next = now
}

// remove counts removals, and forgets those that no window has any more.
func (c *cluster) remove(n int, now time.Time, window time.Duration) {
	c.removedSince(now.Add(-window))
	switch last := len(c.removed) - 1; {
	case n == 0:
	case last >= 0 && now.Sub(c.removed[last].at) < Interval: // few, also if one is removed after the other
		c.removed[last].n += n
	default:
		c.removed = append(c.removed, removal{now, n})
	}
}

// add adds an endpoint, which keeps the deadline that it had with the same ttl.
func (t *Table) add(c *cluster, key string, e, was *endpoint, now time.Time) {
	if was != nil && was.is.TTL == e.is.TTL {
		e.deadline, e.renewed, e.kept = was.deadline, was.renewed, was.kept
	} else {
		t.heard = now
	}
	c.endpoints[key] = e
	for _, address := range e.is.Addresses[1:] {
		if c.more == nil {
			c.more = make(map[string]*endpoint)
		}
		c.more[resource.CanonicalAddress(address)] = e
	}
}

// Len returns the number of registered endpoints.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// find is called under mu.
func (t *Table) find(name, address string) *endpoint {
	c := t.clusters[name]
	if c == nil {
		return nil
	}
	if e := c.endpoints[address]; e != nil {
		return e
	}
	address = resource.CanonicalAddress(address)
	if e := c.endpoints[address]; e != nil {
		return e
	}
	return c.more[address]
}

// Endpoint is a registered endpoint.
type Endpoint struct {
	*resource.Endpoint

	Priority uint32
	// Due is when it is removed without another renewal.
	Due time.Time
}

// Get returns a registered endpoint, and whether there is one.
func (t *Table) Get(name, address string) (Endpoint, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.find(name, address); e != nil {
		return Endpoint{e.is, e.priority, e.deadline}, true
	}
	return Endpoint{}, false
}

// Hash returns the hash of an assignment that has registered endpoints, which is computed once; empty for
// another one.
func (t *Table) Hash(name string, of func(raw []byte) string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clusters[name]
	if c == nil {
		return ""
	}
	if c.hash == "" {
		c.hash = of(c.raw)
	}
	return c.hash
}

// Renew renews a registered endpoint, and returns when it is due without another renewal. It reports
// false if there is none. kept is false if other daemons may have removed it, because no renewal was written for
// too long: this one counts once it is.
func (t *Table) Renew(name, address string, now time.Time) (due time.Time, kept, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.find(name, address)
	if e == nil {
		return time.Time{}, false, false
	}
	e.extend(now.Add(t.patience(e.is.TTL)))
	e.renewed, t.heard = now, now
	if t.options.Shared {
		t.classes[classOf(e.is.TTL)].renewed(e.is.TTL)
	}
	return e.deadline, !t.options.Shared || now.Before(e.kept), true
}

func (e *endpoint) extend(to time.Time) { e.deadline = later(e.deadline, to) }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Count is the number of registered endpoints of a cluster, and of those that are held back.
type Count struct {
	Cluster          string
	Registered, Held int
}

// Counts returns those of all clusters, in the order of their names.
func (t *Table) Counts() []Count {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []Count
	for _, name := range slices.Sorted(maps.Keys(t.clusters)) {
		c := t.clusters[name]
		list = append(list, Count{name, len(c.endpoints), c.held})
	}
	return list
}
