package picks

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks/handover"
	"github.com/lbd-dev/lbd/xds/resource"
)

// LeaseFilter selects held leases.
type LeaseFilter struct {
	// Cluster and Owner select the leases of a cluster, also those that an AGGREGATE has sent there, and of
	// callers that gave themselves a name; empty means any.
	Cluster, Owner string
	// Identity selects the leases of an identity; nil means any.
	Identity *string
	// OlderThan selects leases that were granted at least so long ago.
	OlderThan time.Duration
	// MaySee selects leases by their cluster, or by their leaf; nil means any.
	MaySee func(cluster string) bool
	// After selects leases whose ID sorts after it: the text of an ID, or any other. Limit is the
	// maximum number of leases of a list.
	After string
	Limit int
}

// matches returns the function of a filter, except for its After. It calls MaySee once for each
// cluster: a shard is locked meanwhile, and a caller may have many patterns.
func (f *LeaseFilter) matches(ls *leases) func(*leaseSlot) bool {
	before := ls.clock.now().elapsed - f.OlderThan
	known := make(map[string]bool)
	maySee := func(cluster string) bool {
		may, ok := known[cluster]
		if !ok {
			may = f.MaySee(cluster)
			known[cluster] = may
		}
		return may
	}
	return func(s *leaseSlot) bool {
		o := s.owner
		return (f.Cluster == "" || s.isOf(f.Cluster)) && (f.Owner == "" || o.Name == f.Owner) &&
			(f.Identity == nil || o.Identity == *f.Identity) && s.granted.elapsed <= before &&
			(f.MaySee == nil || maySee(o.Cluster) || s.leaf != nil && maySee(s.leaf.Cluster))
	}
}

// counted returns the counter, with its cluster, that a lease which matches counts in for the caller.
func (f *LeaseFilter) counted(h *holding) *ledger.OwnerLeases {
	if h.leaf != nil && (h.leaf.Cluster == f.Cluster || f.MaySee != nil && !f.MaySee(h.owner.Cluster)) {
		return h.leaf
	}
	return h.owner
}

// visitAtOnce is the maximum number of slots that are looked at under one lock.
const visitAtOnce = 1024

// visit calls f with the held leases that match, in the order of their IDs, beginning with the place
// of first, until f returns false. The shard is locked meanwhile. After each part of a shard, it calls
// unlocked.
func (ls *leases) visit(first LeaseID, matches func(*leaseSlot) bool, f func(*leaseShard, uint32, *leaseSlot) bool, unlocked func()) {
	from := first.slot
	for i := int(first.shard); i < leaseShards; i++ {
		sh := &ls.shards[i]
		ended := false
		for more := true; more && !ended; {
			sh.mu.Lock()
			from, more = sh.slots.Visit(from, visitAtOnce, func(number uint32, s *leaseSlot) bool {
				if s.outcome == 0 && matches(s) {
					ended = !f(sh, number, s)
				}
				return !ended
			})
			sh.mu.Unlock()
			unlocked()
		}
		if ended {
			return
		}
		from = 0
	}
}

// Leases returns the held leases that match a filter, in the order of their IDs, and reports
// whether there are more than its limit.
func (s *Picker) Leases(f LeaseFilter) (list []LeaseState, more bool) {
	list = make([]LeaseState, 0)
	first, ok := ParseLeaseID(f.After)
	after := func(id LeaseID) bool { return id.Compare(first) > 0 }
	if !ok { // a text of another form
		after = func(id LeaseID) bool { return id.String() > f.After }
	}
	s.leases.visit(first, f.matches(s.leases), func(sh *leaseShard, number uint32, slot *leaseSlot) bool {
		switch {
		case !after(sh.id(number, slot)):
			return true
		case len(list) == f.Limit:
			more = true
			return false
		}
		list = append(list, LeaseState{})
		sh.describe(&list[len(list)-1], number, slot)
		return true
	}, func() {})
	return list, more
}

// LeasesByAddress counts the held leases of a cluster by the address of their endpoint.
func (s *Picker) LeasesByAddress(cluster string) map[string]int64 {
	out := make(map[string]int64)
	s.leases.visit(LeaseID{}, func(slot *leaseSlot) bool { return slot.isOf(cluster) }, func(_ *leaseShard, _ uint32, slot *leaseSlot) bool {
		out[slot.address]++
		return true
	}, func() {})
	return out
}

// leave hands the held leases over to the next process: no other one is granted any more. Those of limits of
// the fleet count there.
func (ls *leases) leave() {
	var list []handedLease
	others := make(map[resource.ServiceKey]handover.Leaf)
	now := ls.clock.now().elapsed
	mine := func(s *leaseSlot) bool { return s.held.Counters() != nil && s.held.Shared() == nil }
	ls.visit(LeaseID{}, mine, func(sh *leaseShard, number uint32, s *leaseSlot) bool {
		key, left := s.held.Counters().Key(), time.Duration(s.end)-now
		if len(list) == MaxHandedOver {
			o := others[key]
			others[key] = handover.LeafOf(key, o.Requests+1, max(o.TTL, left))
			return true
		}
		list = append(list, handedLease{Leaf: handover.LeafOf(key, 1, left)})
		sh.describe(&list[len(list)-1].LeaseState, number, s)
		return true
	}, func() {})
	ls.handover.Close(list, slices.Collect(maps.Values(others)), ls.leaveWait)
}

// EndedLeases is a cluster and an owner whose leases were ended.
type EndedLeases struct {
	Cluster string `json:"cluster"`
	ledger.Owner
}

// String returns the form in events.
func (e EndedLeases) String() string { return fmt.Sprintf("%s of %v", e.Cluster, e.Owner) }

// EndLeases ends the held leases that match a filter, except for its Limit and After, as
// canceled, for a caller (by), and reports that as an event. It returns how many of each cluster
// and owner.
func (s *Picker) EndLeases(f LeaseFilter, by string) map[EndedLeases]int {
	ended := s.leases.endAll(&f, Cancelled)
	n := 0
	var largest EndedLeases
	for of, leases := range ended {
		n += leases
		if leases > ended[largest] || leases == ended[largest] && of.String() < largest.String() {
			largest = of
		}
	}
	if n > 0 {
		s.options.Events.Add(observe.Event{
			Type: observe.EventLeasesEnded, Cluster: f.Cluster, By: by,
			Says: fmt.Sprintf("%d leases were ended, among them %d of %v", n, ended[largest], largest),
		})
	}
	return ended
}

// endAll ends the leases that match a filter, and returns how many of each cluster and owner. It looks
// once at each slot.
func (ls *leases) endAll(f *LeaseFilter, o Outcome) map[EndedLeases]int {
	ended := make(map[EndedLeases]int)
	batch := make([]holding, 0, visitAtOnce)
	number := outcomeNumber(o)
	ls.visit(LeaseID{}, f.matches(ls), func(sh *leaseShard, slot uint32, s *leaseSlot) bool {
		batch = append(batch, holding{})
		sh.end(slot, s, number, ls.clock.now(), &batch[len(batch)-1])
		return true
	}, func() {
		for i := range batch {
			of := f.counted(&batch[i])
			ended[EndedLeases{of.Cluster, of.Owner}]++
		}
		ls.releaseAll(batch, o)
		batch = batch[:0]
	})
	return ended
}
