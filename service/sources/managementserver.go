package sources

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/lastgood"
	"github.com/lbd-dev/lbd/xds/lrs"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// ManagementServer is what the service asks of the xDS client.
type ManagementServer interface {
	ledger.Servers

	// Want sets which resources a target wants from now on, and which it no longer
	// wants. It never waits.
	Want(target string, add, drop []resource.Key)
	// Status returns the state of servers, targets and resources.
	Status() client.Status
}

// LoadReports is what the service asks of load reports.
type LoadReports interface {
	ledger.LoadReports

	// Status returns the state of the reports to each server.
	Status() []lrs.ServerStatus
}

// LastGood keeps what a management server said last.
type LastGood interface {
	// All yields what is kept.
	All() iter.Seq[lastgood.Entry]
	// Put and Remove keep and forget. They never wait for a disk.
	Put(entries []lastgood.Entry)
	Remove(keys []resource.Key)
}

// followed is the management server that the service follows.
type followed struct {
	server  ManagementServer
	kept    LastGood
	reports LoadReports
	recent  recentStatus
	// away are the servers that were told to be, with the reason, and moved is when
	// an event last said that unknown names moved from one server to another; the
	// client's goroutine only.
	away  map[string]string
	moved map[[2]string]time.Time
}

// Follow lets targets be served by a management server, beginning with what it
// said last. It is called once, before Start.
func (s *Sources) Follow(server ManagementServer, kept LastGood, to LoadReports) {
	s.followed = &followed{server: server, kept: kept, reports: to, away: make(map[string]string), moved: make(map[[2]string]time.Time)}
	s.targets.Follow(server, to)
	ctx, stop := context.WithCancel(context.Background())
	s.onDemand.stop = stop
	s.onDemand.quiet.Go(func() { s.sweepDemanded(ctx) })
	var updates []resolver.Update
	for e := range kept.All() {
		updates = append(updates, resolver.Update{Item: resource.Item{Key: e.Key, Raw: e.Raw}, Updated: e.Updated, Version: e.Version, Server: e.Server})
	}
	s.resolve(resource.SourceCache, updates, nil)
}

// Loads is what the picks of all trees come to, for load reports.
func (s *Sources) Loads() lrs.Loads { return s.targets.Loads() }

// absorbTimeout bounds how long a management server's next response waits for
// the trees to take the last.
const absorbTimeout = 30 * time.Second

// ServerSaid lets the trees follow what a management server says, and returns
// once they do. The xDS client calls it; its next response waits meanwhile.
func (s *Sources) ServerSaid(updates []client.Update) {
	said := make([]resolver.Update, len(updates))
	for i, u := range updates {
		said[i] = resolver.Update{
			Target: u.Target, Item: u.Item, Updated: u.Updated, Version: u.Version,
			Server: u.Server, Fallback: u.Fallback, Err: u.Err, Ambient: u.Ambient, Final: u.Final,
		}
	}
	var vs difference.Versions
	concerned := s.follows(func() (changes []resolver.Change) {
		changes, vs = s.applied(resource.SourceADS, said)
		return append(changes, s.keep(said)...)
	})
	s.sourceChanged(observe.Event{Type: observe.EventXDSChanged}, vs)
	ctx, cancel := context.WithTimeout(s.draining, absorbTimeout)
	defer cancel()
	_ = s.targets.Settle(ctx, concerned) // a tree that takes longer holds nobody up
}

// keep keeps what management servers said for when they are away, of what is needed
// now. What a fallback server says neither replaces nor removes what a server that is
// preferred to it said (gRFC A71). An error removes what is kept only if it is final
// (gRFC A88). It is called under s.resolving.
func (s *Sources) keep(said []resolver.Update) []resolver.Change {
	kept := s.keepable(said)
	var entries []lastgood.Entry
	var gone []resource.Key
	for _, u := range kept {
		if u.Raw == nil {
			gone = append(gone, u.Key)
		} else {
			entries = append(entries, lastgood.Entry{Key: u.Key, Raw: u.Raw, Version: u.Version, Updated: u.Updated, Server: u.Server})
		}
	}
	s.followed.kept.Put(entries)
	s.followed.kept.Remove(gone)
	return s.resolver.Apply(resource.SourceCache, kept)
}

// keepable returns what of that is to be kept, or without Raw no longer. Each resource
// is there once, however many targets were told of it: as the most preferred server
// said last.
func (s *Sources) keepable(said []resolver.Update) []resolver.Update {
	kept := make([]resolver.Update, 0, len(said))
	places := make(map[resource.Key]int, len(said)) // in kept
	for _, u := range said {
		if !u.Final && (u.Err != nil || !s.resolver.Needs(u.Key)) { // no longer needed
			continue
		}
		rank := s.rank(u.Key.Name, u.Server)
		if from, ok := s.resolver.Kept(u.Key); ok && rank > s.rank(u.Key.Name, from) {
			continue
		}
		if u.Target = ""; u.Final {
			u = resolver.Update{Item: resource.Item{Key: u.Key}, Server: u.Server}
		}
		place, twice := places[u.Key]
		switch {
		case !twice:
			places[u.Key] = len(kept)
			kept = append(kept, u)
		case rank <= s.rank(u.Key.Name, kept[place].Server):
			kept[place] = u
		}
	}
	return kept
}

// rank is the place of a management server in the order in which those that have a
// resource are preferred. One that is not noted ranks first, one that the bootstrap
// does not have any more ranks last.
func (s *Sources) rank(name, server string) int {
	if server == "" {
		return 0
	}
	servers, _ := s.options.Bootstrap.ServersFor(name)
	for i := range servers {
		if servers[i].URI == server {
			return i
		}
	}
	return len(servers)
}

// ask tells the management servers what is needed now. It is called under
// s.resolving.
func (s *Sources) ask() {
	if s.followed == nil { // not yet, or never
		return
	}
	wants := s.resolver.Wanted()
	var spare []resource.Key
	for _, w := range wants {
		for _, key := range w.Drop {
			// What is needed all the same, push or file have: what the server said
			// serves again after them. Whether it answers is asked before it is told
			// to let go.
			if !s.resolver.Needs(key) && s.forgettable(key) {
				spare = append(spare, key)
			}
		}
	}
	for _, w := range wants { // before others are dropped: a stream that nobody needs ends
		if len(w.Add) > 0 {
			s.followed.server.Want(w.Target, w.Add, w.Drop)
		}
	}
	for _, w := range wants {
		if len(w.Add) == 0 {
			s.followed.server.Want(w.Target, nil, w.Drop)
		}
	}
	s.forget(spare)
}

// forgettable reports whether what is kept of a resource can be had again: the server
// that it is from answers, or one that is preferred to it.
func (s *Sources) forgettable(key resource.Key) bool {
	from, _ := s.resolver.Kept(key)
	servers, _ := s.options.Bootstrap.ServersFor(key.Name)
	for i := range servers {
		if i <= s.rank(key.Name, from) && s.followed.server.Connected(servers[i]) {
			return true
		}
	}
	return false
}

// forget forgets what was kept of resources that nobody needs: no target changes.
// It is called under s.resolving.
func (s *Sources) forget(keys []resource.Key) {
	if len(keys) == 0 {
		return
	}
	updates := make([]resolver.Update, len(keys))
	for i, key := range keys {
		updates[i].Key = key
	}
	s.resolver.Apply(resource.SourceCache, updates)
	s.followed.kept.Remove(keys)
}

// forgetSpare forgets all that is kept and nobody needs, such as what a daemon before
// had asked for on demand. While the server that it is from is away it is kept: nobody
// can ask for it again.
func (s *Sources) forgetSpare() {
	s.resolving.Lock()
	defer s.resolving.Unlock()
	s.forget(slices.DeleteFunc(s.resolver.Spare(resource.SourceCache), func(key resource.Key) bool {
		return !s.forgettable(key)
	}))
}

// ServerEvent takes what happens between the xDS client and its servers. The
// client calls it, and waits.
func (s *Sources) ServerEvent(e client.Event) {
	log := s.options.Logger
	switch e := e.(type) {
	case client.Connected:
		delete(s.followed.away, e.Server)
		s.events.Add(observe.Event{Type: observe.EventXDSConnected, Server: e.Server, Says: "the management server answers"})
		log.Info("management server answers", "server", e.Server)
		s.targets.Freshen(nil)
	case client.Disconnected:
		why, known := text(e.Err), s.followed.away[e.Server]
		if s.followed.away[e.Server] = why; known == why && !e.Answered {
			log.Debug("management server is still away", "server", e.Server, "error", e.Err)
			return
		}
		event := observe.Event{Type: observe.EventXDSDisconnected, Server: e.Server, Says: "the management server cannot be reached", Error: why}
		if e.Answered {
			event.Says = "the stream to the management server has ended"
		}
		s.events.Add(event)
		log.Warn("management server is away", "server", e.Server, "error", e.Err)
		s.targets.Freshen(nil)
	case client.Rejected:
		s.events.Add(observe.Event{
			Type: observe.EventXDSRejected, Server: e.Server, Resource: e.Key.String(), Cluster: clusterOf(e.Key), Version: e.Version,
			Says: "what the management server sent breaks a rule (NACK)", Error: text(e.Err),
		})
		log.Warn("resource of the management server refused", "server", e.Server, "resource", e.Key.String(), "version", e.Version, "error", e.Err)
	case client.FellBack:
		if s.move(observe.Event{
			Type: observe.EventXDSFellBack, Server: e.To, From: e.From, To: e.To, Reason: text(e.Err),
			Says: "the next management server is asked",
		}, e.Targets) {
			log.Warn("fell back to the next management server", "authority", e.Authority, "from", e.From, "to", e.To, "targets", len(e.Targets), "first", e.Targets[0], "error", e.Err)
		}
	case client.Returned:
		if s.move(observe.Event{Type: observe.EventXDSReturned, Server: e.To, From: e.From, To: e.To, Says: "a preferred management server answers again"}, e.Targets) {
			log.Info("returned to a preferred management server", "authority", e.Authority, "from", e.From, "to", e.To, "targets", len(e.Targets), "first", e.Targets[0])
		}
	case client.DataError:
		says := "the management server does not have a resource, or reports an error for it"
		if e.Cached {
			says += ": the last good one stays in use"
		}
		s.events.Add(observe.Event{
			Type: observe.EventXDSResourceError, Server: e.Server, Resource: e.Key.String(), Cluster: clusterOf(e.Key),
			Says: says, Error: text(e.Err),
		})
		log.Warn("resource deleted by the management server, or reported with an error", "server", e.Server, "resource", e.Key.String(), "cached", e.Cached, "error", e.Err)
	}
}

// clusterOf is the cluster that an event about a resource is listed with.
func clusterOf(key resource.Key) string {
	if key.Type == resource.TypeCluster || key.Type == resource.TypeAssignment {
		return key.Name
	}
	return ""
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// followAmbientErrors updates the ambient errors of the targets whose config or
// ambient errors changed. Trees and pickers stay as they are. It is called under
// s.resolving, once the targets have their newest configs.
func (s *Sources) followAmbientErrors(changes []resolver.Change) {
	targets := s.resolver.AmbientChanges()
	for _, c := range changes {
		targets = append(targets, c.Target)
	}
	h := s.targets.Hosted()
	for _, name := range targets {
		if t := h.Named(name); t != nil {
			t.SetAmbient(s.resolver.AmbientErrors(name))
		}
	}
}
