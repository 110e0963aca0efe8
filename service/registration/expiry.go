package registration

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Extend gives every endpoint a full ttl, because renewals may have been missed.
func (t *Table) Extend(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.extend(now)
}

func (t *Table) extend(now time.Time) {
	for _, c := range t.clusters {
		for _, e := range c.endpoints {
			e.extend(now.Add(t.patience(e.is.TTL)))
		}
		c.held = 0
	}
}

// Due is what a Tick returns.
type Due struct {
	// Expired are the endpoints to remove, by cluster.
	Expired []Expired
	// Held are the clusters of which endpoints are held back since this Tick.
	Held []Held
	// Pause is the time that the process was paused, if renewals may have been missed, and Extended
	// the number of endpoints that got a full ttl for that.
	Pause    time.Duration
	Extended int
	// News are the classes of which News is to be written.
	News []Class
}

// Expired are the endpoints of a cluster that are to be removed.
type Expired struct {
	Cluster string
	// Raw is the assignment for which that was decided.
	Raw       []byte
	Addresses []string
}

// Held are endpoints of a cluster that are due, and stay.
type Held struct {
	Cluster string
	Count   int
	// Last is true if the last usable endpoint is one of them.
	Last bool
	// Silence is the time since the last renewal of any endpoint, if they stay because of that; else 0.
	Silence time.Duration
	// Window is the time within which a part of the endpoints is removed.
	Window time.Duration
}

// Tick returns what is to be done. It is called in every Interval while there are registered endpoints,
// and returns the same again until Set has what was removed.
func (t *Table) Tick(now time.Time) Due {
	t.mu.Lock()
	defer t.mu.Unlock()
	var due Due
	if gap := now.Sub(t.last); gap > maxGap {
		due.Pause, due.Extended = gap, t.count
		t.extend(now)
	}
	t.last = now
	for i := range t.classes {
		if t.classes[i].due(now) {
			due.News = append(due.News, Class(i))
		}
	}
	var names []string
	for name, c := range t.clusters {
		if !c.next.After(now) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		c := t.clusters[name]
		wasHeld := c.held > 0
		expired, held := t.expired(c, now)
		if c.held = held.Count; c.held > 0 && !wasHeld {
			held.Cluster = name
			due.Held = append(due.Held, held)
		}
		if len(expired) > 0 {
			due.Expired = append(due.Expired, Expired{Cluster: name, Raw: c.raw, Addresses: expired})
		}
	}
	return due
}

// minHeard is the number of registered endpoints from which on it is suspicious that none is renewed.
const minHeard = 10

// silent reports whether no endpoint at all was renewed for so long that each of many should have been:
// it is more likely that renewals do not arrive than that all are gone.
func (t *Table) silent(e *endpoint, now time.Time) bool {
	if t.options.MaxExpired >= 1 || now.Sub(t.heard) < t.patience(e.is.TTL)/2 {
		return false
	}
	n := 0
	for _, c := range t.clusters {
		for _, other := range c.endpoints {
			if other.is.TTL <= e.is.TTL {
				n++
			}
		}
		if n >= minHeard {
			return true
		}
	}
	return false
}

// expired chooses the endpoints of a cluster that may be removed now, those that are due for longest.
func (t *Table) expired(c *cluster, now time.Time) (addresses []string, held Held) {
	var due []*endpoint
	c.next = time.Time{}
	for _, e := range c.endpoints {
		held.Window = max(held.Window, t.patience(e.is.TTL))
		if !e.deadline.After(now) {
			due = append(due, e)
		} else if c.next.IsZero() || e.deadline.Before(c.next) {
			c.next = e.deadline
		}
	}
	if len(due) == 0 {
		return nil, held
	}
	c.next = now // until they are removed
	slices.SortFunc(due, func(a, b *endpoint) int {
		return cmp.Or(a.deadline.Compare(b.deadline), strings.Compare(a.is.Addresses[0], b.is.Addresses[0]))
	})
	removed := c.removedSince(now.Add(-held.Window))
	allowed := max(1, int(t.options.MaxExpired*float64(c.total+removed))) - removed
	usable := c.usable
	for _, e := range due {
		switch {
		case t.silent(e, now):
			held.Silence = now.Sub(t.heard)
			held.Count++
		case e.is.Usable() && usable == 1:
			held.Last = true
			held.Count++
		case len(addresses) >= allowed:
			held.Count++
		default:
			if e.is.Usable() {
				usable--
			}
			addresses = append(addresses, e.is.Addresses[0])
		}
	}
	return addresses, held
}

// removedSince returns how many endpoints were removed after a time, and forgets those before.
func (c *cluster) removedSince(since time.Time) (n int) {
	c.removed = slices.DeleteFunc(c.removed, func(r removal) bool { return !r.at.After(since) })
	for _, r := range c.removed {
		n += r.n
	}
	return n
}

// StillDue reports whether none of the endpoints was renewed since Tick returned them.
func (t *Table) StillDue(x Expired, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !slices.ContainsFunc(x.Addresses, func(address string) bool {
		e := t.find(x.Cluster, address)
		return e == nil || e.deadline.After(now)
	})
}
