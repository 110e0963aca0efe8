package policy

import (
	"cmp"
	"slices"
	"sync/atomic"
	"unique"

	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Counts by category and by locality are kept while a config names them, and after
// that while they have something to report, so that names that change every minute do
// not accumulate.
const (
	// maxSettled is how many are kept beyond that: an older picker may still count.
	maxSettled = 16
	// maxRetired limits those that no config names. The load of the oldest is lost if
	// reports are not acknowledged for long.
	maxRetired = 1000
)

// naming records whether a config names a count.
type naming struct {
	names   int    // how many configs do
	retired uint64 // the number of the retirement since which none does
}

type dropCount struct {
	count atomic.Uint64

	// Guarded by the ClusterCounters' mu.
	naming
	reported uint64 // what the reader's last acknowledged reading came to
	read     uint64 // what its last reading came to
}

// Name keeps these categories and localities until [ClusterCounters.Unname].
func (c *ClusterCounters) Name(drops []resource.Drop, localities []*resource.LocalityEndpoints) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range drops {
		c.drop(d.Category).names++
	}
	for _, l := range localities {
		c.locality(l.ID).names++
	}
}

// Unname reverts [ClusterCounters.Name].
func (c *ClusterCounters) Unname(drops []resource.Drop, localities []*resource.LocalityEndpoints) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range drops {
		c.unname(&c.drops.Get(d.Category).naming)
	}
	for _, l := range localities {
		c.unname(&c.localities.Get(unique.Make(l.ID)).naming)
	}
	prune(&c.drops, func(d *dropCount) (naming, bool) {
		return d.naming, c.reader == nil || d.count.Load() == d.reported
	}, func(d *dropCount) { c.forgotten += d.count.Load() })
	prune(&c.localities, func(l *LocalityLoad) (naming, bool) {
		n := l.Counts()
		return l.naming, n.InProgress == 0 && (c.reader == nil || n.Since(l.reported) == resource.LoadCounts{})
	}, func(l *LocalityLoad) {
		l.owner.Store(nil) // an endpoint that is kept finds the next one
		c.forgotten += l.Counts().Issued
	})
}

func (c *ClusterCounters) unname(n *naming) {
	if n.names--; n.names == 0 {
		*n = c.retire()
	}
}

// retire returns the naming of what no config names.
func (c *ClusterCounters) retire() naming {
	c.retired++
	return naming{retired: c.retired}
}

// drop is Drop with mu held.
func (c *ClusterCounters) drop(category string) *dropCount {
	d := c.drops.Get(category)
	if d == nil {
		d = &dropCount{naming: c.retire()}
		c.drops.Set(category, d)
	}
	return d
}

// locality is Locality with mu held.
func (c *ClusterCounters) locality(id resource.Locality) *LocalityLoad {
	key := unique.Make(id)
	l := c.localities.Get(key)
	if l == nil {
		l = &LocalityLoad{naming: c.retire()}
		l.owner.Store(c)
		c.localities.Set(key, l)
	}
	return l
}

// prune deletes entries of m that no config names and that are not worth keeping, the
// oldest first. of returns an entry's naming, and whether it has nothing left to
// report; forget is called for those deleted.
func prune[K comparable, V any](m *few.Map[K, V], of func(V) (naming, bool), forget func(V)) {
	if m.Len() <= maxSettled {
		return
	}
	type entry struct {
		key     K
		settled int // 0 if it is
		retired uint64
	}
	var all []entry
	settled := 0
	for k, v := range m.All() {
		switch n, done := of(v); {
		case n.names > 0:
		case done:
			all = append(all, entry{k, 0, n.retired})
			settled++
		default:
			all = append(all, entry{k, 1, n.retired})
		}
	}
	surplus := max(settled-maxSettled, len(all)-maxRetired)
	if surplus <= 0 {
		return
	}
	slices.SortFunc(all, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.settled, b.settled), cmp.Compare(a.retired, b.retired))
	})
	for _, e := range all[:surplus] {
		forget(m.Get(e.key))
		m.Delete(e.key)
	}
}
