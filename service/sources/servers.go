package sources

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/lrs"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// ManagementServer is the xDS client.
type ManagementServer interface {
	ledger.Servers

	// Want changes which resources a target subscribes to. It never waits.
	Want(target string, add, drop []resource.Key)
	// Status returns the state of servers, targets and resources.
	Status() client.Status
}

// LoadReports are the load reports to management servers.
type LoadReports interface {
	ledger.LoadReports

	// Status returns the state of the reports to each server.
	Status() []lrs.ServerStatus
}

// LastGood keeps the last good versions of a management server's resources.
type LastGood interface {
	// All yields what is kept.
	All() iter.Seq[resource.Update]
	// Put keeps versions, and removes those without Raw. It never waits for a disk.
	Put(updates []resource.Update)
}

// servers owns what lbd has to do with management servers: subscriptions, updates, and
// the last good versions of resources.
type servers struct {
	*publisher
	demand *onDemand
	recent recentStatus
	serverEvents

	// Fixed after Follow; nil without a management server.
	client  ManagementServer
	kept    LastGood
	reports LoadReports
}

// Follow subscribes targets at management servers, beginning with the last good
// versions. It is called once, before Start.
func (s *servers) Follow(c ManagementServer, kept LastGood, reports LoadReports) {
	s.client, s.kept, s.reports = c, kept, reports
	s.serverEvents = serverEvents{unreachable: make(map[string]string), moved: make(map[[2]string]time.Time)}
	s.Ledger.Follow(c, reports)
	s.demand.start(s.evictSpare)
	s.publish(resource.SourceCache, slices.Collect(kept.All()), nil)
}

// Loads returns the load of the picks of all trees, for load reports.
func (s *servers) Loads() lrs.Loads { return s.Ledger.Loads() }

// absorbTimeout bounds how long a management server's next response waits until the
// trees have the configs of the last one.
const absorbTimeout = 30 * time.Second

// ServerUpdate publishes what a management server sent, and returns when the trees have
// it. The xDS client calls it; its next response waits for that.
func (s *servers) ServerUpdate(updates []resource.Update) {
	affected, vs := s.publish(resource.SourceADS, updates, func(r *resolver.Resolver) []resolver.Change {
		return s.keep(r, updates)
	})
	s.addChanges(observe.Event{Type: observe.EventXDSChanged}, vs)
	ctx, cancel := context.WithTimeout(s.Draining, absorbTimeout)
	defer cancel()
	_ = s.Ledger.Settle(ctx, affected) // a tree that takes longer blocks nothing
}

// keep keeps the last good versions of needed resources for when the management servers
// cannot be reached. An update of a fallback server neither replaces nor removes the one of
// a preferred server (gRFC A71). Only a final error removes a version (gRFC A88).
func (s *servers) keep(r *resolver.Resolver, updates []resource.Update) []resolver.Change {
	updates = s.keepable(r, updates)
	s.kept.Put(updates)
	return r.Apply(resource.SourceCache, updates)
}

// keepable returns the updates to keep, without Raw to remove. Each resource is in them
// once, whichever targets subscribed to it: the last update of its most preferred server.
func (s *servers) keepable(r *resolver.Resolver, updates []resource.Update) []resource.Update {
	out := make([]resource.Update, 0, len(updates))
	places := make(map[resource.Key]int, len(updates)) // in out
	for _, u := range updates {
		if !u.Final && (u.Err != nil || !r.Needs(u.Key)) {
			continue
		}
		rank := s.rank(u.Key.Name, u.Server)
		if from, ok := r.Kept(u.Key); ok && rank > s.rank(u.Key.Name, from) {
			continue
		}
		if u.Target = ""; u.Final {
			u = resource.Update{Item: resource.Item{Key: u.Key}, Server: u.Server}
		}
		place, twice := places[u.Key]
		switch {
		case !twice:
			places[u.Key] = len(out)
			out = append(out, u)
		case rank <= s.rank(u.Key.Name, out[place].Server):
			out[place] = u
		}
	}
	return out
}

// rank returns the place of a management server in the order of preference for a
// resource. An unknown one ranks first, one that the bootstrap no longer has ranks last.
func (s *servers) rank(name, server string) int {
	if server == "" {
		return 0
	}
	all, _ := s.Bootstrap.ServersFor(name)
	for i := range all {
		if all[i].URI == server {
			return i
		}
	}
	return len(all)
}

// subscribeNeeded subscribes to the resources that the targets need now, and unsubscribes from
// the others.
func (s *servers) subscribeNeeded(r *resolver.Resolver) {
	if s.client == nil { // not yet, or never
		return
	}
	wants := r.Wanted()
	var spare []resource.Key
	for _, w := range wants {
		for _, key := range w.Drop {
			// A dropped resource may still be needed, if a push or file has it: the kept
			// version is used again after these. Whether its server is connected is
			// asked before the unsubscription.
			if !r.Needs(key) && s.replaceable(r, key) {
				spare = append(spare, key)
			}
		}
	}
	for _, w := range wants { // before unsubscribing: a stream without subscriptions ends
		if len(w.Add) > 0 {
			s.client.Want(w.Target, w.Add, w.Drop)
		}
	}
	for _, w := range wants {
		if len(w.Add) == 0 {
			s.client.Want(w.Target, nil, w.Drop)
		}
	}
	s.evict(r, spare)
}

// replaceable reports whether the kept version of a resource can be received again: its
// server, or a preferred one, is connected.
func (s *servers) replaceable(r *resolver.Resolver, key resource.Key) bool {
	from, _ := r.Kept(key)
	all, _ := s.Bootstrap.ServersFor(key.Name)
	for i := range all {
		if i <= s.rank(key.Name, from) && s.client.Connected(all[i]) {
			return true
		}
	}
	return false
}

// evict removes the kept versions of resources that no target needs: no config changes.
func (s *servers) evict(r *resolver.Resolver, keys []resource.Key) {
	if len(keys) == 0 {
		return
	}
	updates := make([]resource.Update, len(keys))
	for i, key := range keys {
		updates[i].Key = key
	}
	s.kept.Put(updates)
	r.Apply(resource.SourceCache, updates)
}

// evictSpare removes all kept versions that no target needs, such as those of clusters
// that were demanded before a restart, unless they cannot be received again.
func (s *servers) evictSpare() {
	s.withResolver(func(r *resolver.Resolver) {
		s.evict(r, slices.DeleteFunc(r.Spare(resource.SourceCache), func(key resource.Key) bool {
			return !s.replaceable(r, key)
		}))
	})
}
