package sources

import (
	"fmt"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/resolver"
)

const (
	// maxListedTargets limits how many targets an event names.
	maxListedTargets = 10
	// unknownMoveInterval is the minimum time between two events about unknown names that
	// moved from one management server to another: any caller can cause them.
	unknownMoveInterval = time.Minute
)

// serverEvents turns what happens between the xDS client and its servers into events and
// log messages. Only the client's goroutine uses it.
type serverEvents struct {
	// unreachable are the servers that were last reported as unreachable, with the error.
	unreachable map[string]string
	// moved is when an event last said that unknown names moved from one server to another.
	moved map[[2]string]time.Time
}

// ServerEvent reports what happens between the xDS client and its servers. The client
// calls it, and waits.
func (s *servers) ServerEvent(e client.Event) {
	log := s.Logger
	switch e := e.(type) {
	case client.Connected:
		delete(s.unreachable, e.Server)
		s.Events.Add(observe.Event{Type: observe.EventXDSConnected, Server: e.Server, Says: "the management server answers"})
		log.Info("management server answers", "server", e.Server)
		s.Ledger.Freshen(nil)
	case client.Disconnected:
		why, known := text(e.Err), s.unreachable[e.Server]
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
		s.Ledger.Freshen(nil)
	case client.Rejected:
		event := resourcesEvent(observe.EventXDSRejected, e.Server, e.Resources, e.Err)
		event.Version, event.Says = e.Version, "the management server sent "+count(e.Count, "invalid resource")+" (NACK)"+listed(e.Resources)
		s.Events.Add(event)
		log.Warn("rejected resources of the management server", "server", e.Server, "resources", e.Count, "first", event.Resource, "version", e.Version, "error", e.Err)
	case client.FellBack:
		if s.reportMove(observe.Event{
			Type: observe.EventXDSFellBack, Server: e.To, From: e.From, To: e.To, Reason: text(e.Err),
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
		event.Says = "the management server deleted " + count(e.Count, "resource") + ", or reports an error" + listed(e.Resources)
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
	e := observe.Event{Type: t, Server: server, Resource: r.Keys[0].String(), Error: text(err)}
	if r.Count == 1 {
		e.Cluster = clusterOf(r.Keys[0])
	}
	return e
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// listed names the resources of an event.
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
	s.Ledger.Freshen(targets)
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

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
