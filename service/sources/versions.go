package sources

import (
	"fmt"
	"strings"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// applied is resolver.Apply that also returns what it changed. It is called under
// s.resolving.
func (s *Sources) applied(from resource.Source, updates []resolver.Update) ([]resolver.Change, difference.Versions) {
	vs := make(difference.Versions, len(updates))
	for i, u := range updates {
		vs[i].Before = s.resolver.Value(from, u.Target, u.Key)
	}
	changes := s.resolver.Apply(from, updates)
	for i, u := range updates {
		vs[i].After = s.resolver.Value(from, u.Target, u.Key)
	}
	return changes, vs
}

// describeChanges adds words to the changes of a push: to the first few.
func (s *Sources) describeChanges(c *change) {
	listed := c.res.Changes[:min(len(c.res.Changes), difference.MaxListed)]
	if len(listed) == 0 {
		return
	}
	byKey := make(map[string]difference.Version, len(listed))
	if c.dryRun {
		s.resolving.Lock()
		for _, change := range listed {
			kind, name, _ := strings.Cut(change.Resource, "/")
			key := resource.Key{Type: resource.Type(kind), Name: name}
			after, ok := c.pushed[key]
			if !ok {
				after.Key = key
			}
			byKey[change.Resource] = difference.Version{Before: s.resolver.Value(resource.SourcePush, "", key), After: after}
		}
		s.resolving.Unlock()
	} else {
		for _, v := range c.versions {
			byKey[v.After.Key.String()] = v
		}
	}
	for i := range listed {
		if v, ok := byKey[listed[i].Resource]; ok {
			listed[i].Difference = difference.Describe(v.Before, v.After)
		}
	}
}

// sourceChanged adds an event about what a source other than a push changed.
func (s *Sources) sourceChanged(e observe.Event, vs difference.Versions) {
	changes := vs.Changes()
	if len(changes) == 0 {
		return
	}
	e.Says, e.Changes = difference.Summary(changes), difference.WithoutWords(changes)
	if len(changes) == 1 {
		if kind, name, _ := strings.Cut(changes[0].Resource, "/"); kind == string(Config) || kind == string(Endpoints) {
			e.Cluster = name
		}
	}
	s.events.Add(e)
}

// addressesChanged adds an event about what a DNS name resolves to.
func (s *Sources) addressesChanged(host string, before, after []string) {
	removed, added := without(before, after), without(after, before)
	if len(removed)+len(added) == 0 {
		return
	}
	var parts []string
	if len(removed) > 0 {
		parts = append(parts, "removed "+few(removed))
	}
	if len(added) > 0 {
		parts = append(parts, "added "+few(added))
	}
	s.events.Add(observe.Event{Type: observe.EventDNSChanged, Resource: host, Says: difference.Clip(
		fmt.Sprintf("%s resolves to %d addresses: %s", host, len(after), strings.Join(parts, "; ")), difference.MaxSentence)})
}

// without returns what a has and b has not.
func without(a, b []string) []string {
	has := make(map[string]bool, len(b))
	for _, s := range b {
		has[s] = true
	}
	var out []string
	for _, s := range a {
		if !has[s] {
			out = append(out, s)
		}
	}
	return out
}

// few joins the first few names.
func few(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
