package service

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/lastgood"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// ManagementServer is what the service asks of the xDS client.
type ManagementServer interface {
	// Want says which resources are wanted from now on, and which no longer are.
	// It never waits.
	Want(add, drop []resource.Key)
	// Away reports whether no server that a resource is asked of speaks now.
	Away(name string) bool
	// Server returns the server that a resource is asked of; nil before anything
	// was.
	Server(name string) *bootstrap.Server
	// Status tells of servers and resources.
	Status() client.Status
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
	// away are the servers that were told to be, with the reason; the client's
	// goroutine only.
	away map[string]string
}

// Follow lets targets be served by a management server, beginning with what it
// said last. It is called once, before Start.
func (s *Service) Follow(server ManagementServer, kept LastGood, to LoadReports) {
	s.followed = &followed{server: server, kept: kept, reports: to, away: make(map[string]string)}
	s.targets.away = server.Away
	s.targets.reports = &reports{to: to, server: server.Server}
	ctx, stop := context.WithCancel(context.Background())
	s.onDemand.stop = stop
	s.onDemand.quiet.Go(func() { s.sweepDemanded(ctx) })
	var updates []resolver.Update
	for e := range kept.All() {
		updates = append(updates, resolver.Update{Item: resource.Item{Key: e.Key, Raw: e.Raw}, Updated: e.Updated, Version: e.Version})
	}
	s.resolve(resource.SourceCache, updates, nil)
}

// absorbTimeout bounds how long a management server's next response waits for
// the trees to take the last.
const absorbTimeout = 30 * time.Second

// ServerSaid lets the trees follow what a management server says, and returns
// once they do. The xDS client calls it; its next response waits meanwhile.
func (s *Service) ServerSaid(updates []client.Update) {
	said := make([]resolver.Update, len(updates))
	for i, u := range updates {
		said[i] = resolver.Update{Item: u.Item, Updated: u.Updated, Version: u.Version, Err: u.Err, Ambient: u.Ambient}
	}
	concerned := s.follows(func() []resolver.Change {
		return append(s.resolver.Apply(resource.SourceADS, said), s.keep(said)...)
	})
	ctx, cancel := context.WithTimeout(s.draining, absorbTimeout)
	defer cancel()
	_ = s.targets.settle(ctx, concerned) // a tree that takes longer holds nobody up
}

// keep keeps what a management server said for when it is away, of what is needed
// now. It is called under s.resolving.
func (s *Service) keep(said []resolver.Update) []resolver.Change {
	kept := make([]resolver.Update, 0, len(said))
	var entries []lastgood.Entry
	var gone []resource.Key
	for _, u := range said {
		_, notFound := errors.AsType[*client.NotFoundError](u.Err)
		switch {
		case notFound:
			gone = append(gone, u.Key)
			kept = append(kept, resolver.Update{Item: resource.Item{Key: u.Key}})
		case u.Err == nil && s.resolver.Needs(u.Key): // else it was told of what was let go of meanwhile
			entries = append(entries, lastgood.Entry{Key: u.Key, Raw: u.Raw, Version: u.Version, Updated: u.Updated})
			kept = append(kept, u)
		}
	}
	s.followed.kept.Put(entries)
	s.followed.kept.Remove(gone)
	return s.resolver.Apply(resource.SourceCache, kept)
}

// ask tells the management server what is needed now. It is called under
// s.resolving.
func (s *Service) ask() {
	if s.followed == nil { // not yet, or never
		return
	}
	add, drop := s.resolver.Wanted()
	if len(add)+len(drop) == 0 {
		return
	}
	// What is needed all the same, push or file have: what the server said serves
	// again after them. Whether it is away is asked before it is told to let go.
	spare := slices.DeleteFunc(slices.Clone(drop), func(key resource.Key) bool {
		return s.resolver.Needs(key) || s.followed.server.Away(key.Name)
	})
	s.followed.server.Want(add, drop)
	s.forget(spare)
}

// forget forgets what was kept of resources that nobody needs: no target changes.
// It is called under s.resolving.
func (s *Service) forget(keys []resource.Key) {
	updates := make([]resolver.Update, len(keys))
	for i, key := range keys {
		updates[i].Key = key
	}
	s.resolver.Apply(resource.SourceCache, updates)
	s.followed.kept.Remove(keys)
}

// forgetSpare forgets all that is kept and nobody needs: what a daemon before had
// asked for on demand, for one. While a server is away what it said is kept: nobody
// can ask for it again.
func (s *Service) forgetSpare() {
	s.resolving.Lock()
	defer s.resolving.Unlock()
	s.forget(slices.DeleteFunc(s.resolver.Spare(resource.SourceCache), func(key resource.Key) bool {
		return s.followed.server.Away(key.Name)
	}))
}

// ServerEvent takes what happens between the xDS client and its servers. The
// client calls it, and waits.
func (s *Service) ServerEvent(e client.Event) {
	log := s.options.Logger
	switch e := e.(type) {
	case client.Connected:
		delete(s.followed.away, e.Server)
		s.events.add(Event{Type: EventXDSConnected, Server: e.Server, Says: "the management server answers"})
		log.Info("management server answers", "server", e.Server)
		s.targets.freshen()
	case client.Disconnected:
		why, known := text(e.Err), s.followed.away[e.Server]
		if s.followed.away[e.Server] = why; known == why && !e.Answered {
			log.Debug("management server is still away", "server", e.Server, "error", e.Err)
			return
		}
		event := Event{Type: EventXDSDisconnected, Server: e.Server, Says: "the management server cannot be reached", Error: why}
		if e.Answered {
			event.Says = "the stream to the management server has ended"
		}
		s.events.add(event)
		log.Warn("management server is away", "server", e.Server, "error", e.Err)
		s.targets.freshen()
	case client.Rejected:
		s.events.add(Event{
			Type: EventXDSRejected, Server: e.Server, Resource: e.Key.String(), Cluster: clusterOf(e.Key), Version: e.Version,
			Says: "what the management server sent breaks a rule (NACK)", Error: text(e.Err),
		})
		log.Warn("resource of the management server refused", "server", e.Server, "resource", e.Key.String(), "version", e.Version, "error", e.Err)
	case client.FellBack:
		s.events.add(Event{
			Type: EventXDSFellBack, Server: e.To, From: e.From, To: e.To, Reason: text(e.Err),
			Says: "the next management server is asked",
		})
		log.Warn("fell back to the next management server", "authority", e.Authority, "from", e.From, "to", e.To, "error", e.Err)
		s.targets.freshen()
	case client.Returned:
		s.events.add(Event{Type: EventXDSReturned, Server: e.To, From: e.From, To: e.To, Says: "a preferred management server answers again"})
		log.Info("returned to a preferred management server", "authority", e.Authority, "from", e.From, "to", e.To)
		s.targets.freshen()
	case client.DeletionIgnored:
		log.Warn("deletion by the management server ignored, as its features say", "server", e.Server, "resource", e.Key.String())
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
