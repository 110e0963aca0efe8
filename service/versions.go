package service

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// maxSentence is the maximum length of an event's sentence about changes.
const maxSentence = 2000

// version is a resource before and after a change. Its values are immutable, so it
// may be described at any time.
type version struct{ before, after resource.Item }

type versions []version

// applied is resolver.Apply that also returns what it changed. It is called under
// s.resolving.
func (s *Service) applied(from resource.Source, updates []resolver.Update) ([]resolver.Change, versions) {
	vs := make(versions, len(updates))
	for i, u := range updates {
		vs[i].before = s.resolver.Value(from, u.Target, u.Key)
	}
	changes := s.resolver.Apply(from, updates)
	for i, u := range updates {
		vs[i].after = s.resolver.Value(from, u.Target, u.Key)
	}
	return changes, vs
}

// changes lists the versions that differ: the first few of them with words. A
// management server tells each of several targets.
func (vs versions) changes() []Change {
	var out []Change
	listed := make(map[resource.Key]bool)
	for _, v := range vs {
		change, same := v.change()
		if same || listed[v.after.Key] {
			continue
		}
		listed[v.after.Key] = true
		switch {
		case len(out) < maxListedChanges:
			if change.Difference = difference.Describe(v.before, v.after); change.Difference != "" {
				out = append(out, change)
			}
		default:
			out = append(out, change)
		}
	}
	return out
}

// change is what happened to the resource, without words.
func (v version) change() (c Change, same bool) {
	was, is := v.before, v.after
	c = Change{Resource: is.Key.String(), Change: "modified"}
	switch absent := (resource.Item{Key: is.Key}); {
	case was.Same(is):
		return c, true
	case was.Same(absent):
		c.Change = "added"
	case is.Same(absent):
		c.Change = "removed"
	}
	return c, false
}

// describeChanges adds words to the changes of a push: to the first few.
func (s *Service) describeChanges(c *change) {
	listed := c.res.Changes[:min(len(c.res.Changes), maxListedChanges)]
	if len(listed) == 0 {
		return
	}
	byKey := make(map[string]version, len(listed))
	if c.dryRun {
		s.resolving.Lock()
		for _, change := range listed {
			kind, name, _ := strings.Cut(change.Resource, "/")
			key := resource.Key{Type: resource.Type(kind), Name: name}
			after, ok := c.pushed[key]
			if !ok {
				after.Key = key
			}
			byKey[change.Resource] = version{s.resolver.Value(resource.SourcePush, "", key), after}
		}
		s.resolving.Unlock()
	} else {
		for _, v := range c.versions {
			byKey[v.after.Key.String()] = v
		}
	}
	for i := range listed {
		if v, ok := byKey[listed[i].Resource]; ok {
			listed[i].Difference = difference.Describe(v.before, v.after)
		}
	}
}

// sentence says how many resources changed, and how.
func sentence(changes []Change) string {
	var b strings.Builder
	if len(changes) == 1 {
		b.WriteString("1 resource changed")
	} else {
		fmt.Fprintf(&b, "%d resources changed", len(changes))
	}
	separator := ": "
	for i, c := range changes[:min(len(changes), maxListedChanges)] {
		if c.Difference == "" {
			continue
		}
		part := separator + strings.TrimPrefix(c.Resource, string(Endpoints)+"/") + ": " + c.Difference
		if b.Len()+len(part) > maxSentence {
			fmt.Fprintf(&b, "; and %d more", len(changes)-i)
			break
		}
		b.WriteString(part)
		separator = "; "
	}
	return b.String()
}

// withoutWords are the first few changes, as an event lists them: its sentence has the
// words.
func withoutWords(changes []Change) []Change {
	listed := slices.Clone(changes[:min(len(changes), maxListedChanges)])
	for i := range listed {
		listed[i].Difference = ""
	}
	return listed
}

// sourceChanged adds an event about what a source other than a push changed.
func (s *Service) sourceChanged(e Event, vs versions) {
	changes := vs.changes()
	if len(changes) == 0 {
		return
	}
	e.Says, e.Changes = sentence(changes), withoutWords(changes)
	if len(changes) == 1 {
		if kind, name, _ := strings.Cut(changes[0].Resource, "/"); kind == string(Config) || kind == string(Endpoints) {
			e.Cluster = name
		}
	}
	s.events.add(e)
}

// addressesChanged adds an event about what a DNS name resolves to.
func (s *Service) addressesChanged(host string, before, after []string) {
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
	s.events.add(Event{Type: EventDNSChanged, Resource: host, Says: difference.Clip(
		fmt.Sprintf("%s resolves to %d addresses: %s", host, len(after), strings.Join(parts, "; ")), maxSentence)})
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
