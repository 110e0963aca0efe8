package sources

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/bootstrap"
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

	// Fixed after Start; nil without a management server.
	client  ManagementServer
	kept    LastGood
	reports LoadReports

	// Of the client's goroutine only, which calls event.

	// unreachable are the servers that were last reported as unreachable, with the error.
	unreachable map[string]string
	// moved is when an event last said that unknown names moved from one server to another.
	moved map[[2]string]time.Time
}

// follow subscribes targets at management servers, beginning with the last good versions.
func (s *servers) follow(c ManagementServer, kept LastGood, reports LoadReports) {
	s.client, s.kept, s.reports = c, kept, reports
	s.unreachable, s.moved = make(map[string]string), make(map[[2]string]time.Time)
	s.Ledger.Follow(c, reports)
	s.demand.start(s.evictSpare)
	s.publish(&resolver.Proposal{From: resource.SourceCache, Updates: slices.Collect(kept.All())})
}

// absorbTimeout bounds how long a management server's next response waits until the
// trees have the configs of the last one.
const absorbTimeout = 30 * time.Second

// update is ServerUpdate of Inbound. It keeps the last good versions of needed resources for when the
// management servers cannot be reached.
func (s *servers) update(updates []resource.Update) {
	affected, vs := s.publish(&resolver.Proposal{From: resource.SourceADS, Updates: updates}, func(r *resolver.Resolver) []resolver.TargetConfig {
		kept := s.keepable(r, updates)
		s.kept.Put(kept)
		return r.Apply(resource.SourceCache, kept)
	})
	s.addChanges(changelog.FromServer, observe.Event{Type: observe.EventXDSChanged}, vs)
	ctx, cancel := context.WithTimeout(s.Draining, absorbTimeout)
	defer cancel()
	_ = s.Ledger.Settle(ctx, affected) // a tree that takes longer blocks nothing
}

// keepable returns the updates to keep, without Raw to remove. Each resource is in them
// once, whichever targets subscribed to it: the last update of its most preferred server. An
// update of a fallback server neither replaces nor removes the one of a preferred server (gRFC
// A71). Only a final error removes a version (gRFC A88).
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
	if i := slices.IndexFunc(all, func(s bootstrap.Server) bool { return s.URI == server }); i >= 0 {
		return i
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
	return slices.ContainsFunc(all[:min(len(all), s.rank(key.Name, from)+1)], s.client.Connected)
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

const (
	// maxListedTargets limits how many targets an event names.
	maxListedTargets = 10
	// unknownMoveInterval is the minimum time between two events about unknown names that
	// moved from one management server to another: any caller can cause them.
	unknownMoveInterval = time.Minute
)

// event is ServerEvent of Inbound.
func (s *servers) event(e client.Event) {
	log := s.Logger
	switch e := e.(type) {
	case client.Connected:
		delete(s.unreachable, e.Server)
		s.Events.Add(observe.Event{Type: observe.EventXDSConnected, Server: e.Server, Says: "the management server answers"})
		log.Info("management server answers", "server", e.Server)
		s.Ledger.ServersChanged(nil)
	case client.Disconnected:
		why, known := fault.Text(e.Err), s.unreachable[e.Server]
		if s.unreachable[e.Server] = why; known == why && !e.Answered {
			log.Debug("management server is still unreachable", "server", e.Server, "error", e.Err)
			return
		}
		event := observe.Event{Type: observe.EventXDSDisconnected, Server: e.Server, Says: "the management server cannot be reached", Error: why}
		if e.Answered {
			event.Says = "the stream to the management server has ended"
		}
		s.Events.Add(event)
		log.Warn("management server is unreachable", "server", e.Server, "error", e.Err)
		s.Ledger.ServersChanged(nil)
	case client.Rejected:
		event := resourcesEvent(observe.EventXDSRejected, e.Server, e.Resources, e.Err)
		event.Version, event.Says = e.Version, "the management server sent "+difference.Count(e.Count, "invalid resource")+" (NACK)"+listed(e.Resources)
		s.Events.Add(event)
		log.Warn("rejected resources of the management server", "server", e.Server, "resources", e.Count, "first", event.Resource, "version", e.Version, "error", e.Err)
	case client.FellBack:
		if s.reportMove(observe.Event{
			Type: observe.EventXDSFellBack, Server: e.To, From: e.From, To: e.To, Reason: fault.Text(e.Err),
			Says: "fell back to the next management server",
		}, e.Targets) {
			log.Warn("fell back to the next management server", "authority", e.Authority, "from", e.From, "to", e.To, "targets", len(e.Targets), "first", e.Targets[0], "error", e.Err)
		}
	case client.Returned:
		if s.reportMove(observe.Event{Type: observe.EventXDSReturned, Server: e.To, From: e.From, To: e.To, Says: "a preferred management server answers again"}, e.Targets) {
			log.Info("returned to a preferred management server", "authority", e.Authority, "from", e.From, "to", e.To, "targets", len(e.Targets), "first", e.Targets[0])
		}
	case client.DataError:
		event := resourcesEvent(observe.EventXDSResourceError, e.Server, e.Resources, e.Err)
		event.Says = "the management server deleted " + difference.Count(e.Count, "resource") + ", or reports an error" + listed(e.Resources)
		if e.Cached > 0 {
			event.Says += fmt.Sprintf("; the last good version of %d stays in use", e.Cached)
		}
		s.Events.Add(event)
		log.Warn("management server deleted resources, or reports an error for them", "server", e.Server, "resources", e.Count, "first", event.Resource, "cached", e.Cached, "error", e.Err)
	}
}

// resourcesEvent returns an event with the first of its resources and the error of that.
// It belongs to a cluster only if it has one resource.
func resourcesEvent(t observe.EventType, server string, r client.Resources, err error) observe.Event {
	e := observe.Event{Type: t, Server: server, Resource: r.Keys[0].String(), Error: fault.Text(err)}
	if r.Count == 1 {
		e.Cluster = clusterOf(r.Keys[0])
	}
	return e
}

func listed(r client.Resources) string {
	names := make([]string, 0, len(r.Keys)+1)
	for _, key := range r.Keys {
		names = append(names, key.String())
	}
	if r.Count > len(names) {
		names = append(names, "…")
	}
	return ": " + strings.Join(names, ", ")
}

// reportMove adds an event about targets that moved from one management server to
// another. It reports false, and adds nothing, if all of them are unknown names and there
// was such an event recently.
func (s *servers) reportMove(e observe.Event, targets []string) bool {
	s.Ledger.ServersChanged(targets)
	var listed []string
	n := 0
	h := s.Ledger.Hosted()
	for _, name := range targets {
		t := h.Named(name)
		if t == nil || t.Label == "" && !t.View().Only.Known() {
			continue
		}
		if n++; n <= maxListedTargets {
			listed = append(listed, shortTarget(name))
		}
	}
	switch {
	case n == 0:
		way := [2]string{e.From, e.To}
		now := time.Now()
		if now.Sub(s.moved[way]) < unknownMoveInterval {
			return false
		}
		s.moved[way] = now
		e.Says += " for unknown names"
	case n == 1:
		if cluster, ok := resolver.Cluster(targets[0]); ok && len(targets) == 1 {
			e.Cluster = cluster
		} else if len(targets) == 1 {
			e.Target = targets[0]
		}
		e.Says += " for " + listed[0]
	default:
		e.Says += fmt.Sprintf(" for %d targets: %s", n, strings.Join(listed, ", "))
		if n > maxListedTargets {
			e.Says += " and more"
		}
	}
	s.Events.Add(e)
	return true
}

// shortTarget is a target's name in the sentence of an event.
func shortTarget(name string) string {
	if cluster, ok := resolver.Cluster(name); ok {
		return "cluster " + cluster
	}
	return name
}

// The xDS client may be busy with a large response for seconds.
const (
	// probePatience is how long a health probe waits for the xDS client.
	probePatience = 100 * time.Millisecond
	// scrapePatience is how long a scrape of /metrics does.
	scrapePatience = time.Second
)

// recentStatus is the status of the xDS client for those who must not wait for it.
type recentStatus struct {
	asking singleflight.Group
	last   atomic.Pointer[client.Status] // nil before the first answer
}

// get asks the client, and returns its answer, or the last one if it does not answer
// within patience. However many ask, one goroutine waits for the client; it ends when the client
// answers or is closed.
func (r *recentStatus) get(ask func() client.Status, patience time.Duration) client.Status {
	answered := r.asking.DoChan("", func() (any, error) {
		status := ask()
		r.last.Store(&status)
		return nil, nil
	})
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-answered:
	case <-timer.C:
	}
	if last := r.last.Load(); last != nil {
		return *last
	}
	return client.Status{}
}
