package sources

import (
	"fmt"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/resolver"
)

const (
	// maxListedTargets is how many targets an event names.
	maxListedTargets = 10
	// unknownMoveInterval is the least time between two events that say that nothing
	// but unknown names moved from one management server to another: any caller can
	// cause them.
	unknownMoveInterval = time.Minute
)

// move follows that targets go from one management server to another, and publishes
// the event. It reports false, and publishes nothing, if all of them are unknown names
// and there was such an event not long ago.
func (s *Sources) move(e observe.Event, targets []string) bool {
	s.targets.Freshen(targets)
	var listed []string
	n := 0
	h := s.targets.Hosted()
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
		if now := time.Now(); now.Sub(s.followed.moved[way]) < unknownMoveInterval {
			return false
		} else {
			s.followed.moved[way] = now
		}
		e.Says += " for names that are not known"
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
	s.events.Add(e)
	return true
}

// shortTarget is how an event's sentence names a target.
func shortTarget(name string) string {
	if cluster, ok := resolver.Cluster(name); ok {
		return "cluster " + cluster
	}
	return name
}
