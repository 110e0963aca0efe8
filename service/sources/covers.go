package sources

import (
	"cmp"
	"fmt"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// coverWarning returns a warning about a pushed resource that covers one of another source; ok is
// false if it covers none.
func coverWarning(r *resolver.Resolver, i resource.Item) (w fault.Problem, ok bool) {
	below, from, ok := r.Below(i.Key)
	if !ok {
		return w, false
	}
	differs := cmp.Or(difference.Describe(below, i), "they do not differ")
	return fault.Problem{Resource: i.Key.String(), Reason: fmt.Sprintf("covers that of %s until it is deleted: %s", from.Source.Phrase(), differs)}, true
}

// coveredChanges returns those versions that a push or a file covers: they are not in use.
func coveredChanges(r *resolver.Resolver, from resource.Source, vs difference.Versions) difference.Versions {
	var out difference.Versions
	for _, v := range vs {
		c, ok := r.Covered(v.After.Key)
		if ok && c.InUseFrom.Source != from && c.From.Source == from && v.Before.Value != v.After.Value && v.Before.Value != (resource.Value{}) {
			out = append(out, v)
		}
	}
	return out
}

// coveredEvent returns an event about changes of what is covered; ok is false if there are none.
func coveredEvent(vs difference.Versions) (e observe.Event, ok bool) {
	changes := vs.Changes()
	if len(changes) == 0 {
		return e, false
	}
	e = observe.Event{
		Type: observe.EventCoveredChanged, Says: "not in use, because it is covered: " + difference.Summary(changes),
		Changes: difference.WithoutWords(changes),
	}
	if len(changes) == 1 {
		e.Cluster = clusterOf(changes[0].Key())
	}
	return e, true
}
