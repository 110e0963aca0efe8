package sources

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Covers returns the resources of a cluster that cover those of another source: its Cluster, and its
// ClusterLoadAssignment.
func (s *Sources) Covers(c *resource.ClusterConfig, name string) []observe.Cover {
	keys := []resource.Key{{Type: Config, Name: name}}
	if source, _ := c.Source(); source != nil && source.Type == resource.ClusterEDS {
		keys = append(keys, resource.Key{Type: Endpoints, Name: source.AssignmentName()})
	}
	var covers []resolver.Covered
	s.pushes.withResolver(func(r *resolver.Resolver) {
		for _, key := range keys {
			if is, ok := r.Covered(key); ok {
				covers = append(covers, is)
			}
		}
	})
	var out []observe.Cover
	for _, c := range covers {
		cover := observe.Cover{
			Resource: c.Item.Key.String(), Source: c.From.Source.String(), UpdatedAt: c.From.Updated.UTC(),
			By: c.InUseFrom.Source.String(), Since: c.InUseFrom.Updated.UTC(), Differs: difference.Describe(c.Item, c.InUse),
		}
		if c.InUseFrom.Source == resource.SourcePush {
			cover.Author = s.author(c.Item.Key)
		}
		out = append(out, cover)
	}
	return out
}

// Covered is a resource of a source that is not in use.
type Covered struct {
	Resource string
	// Source is the source that is covered, By that of the resource in use.
	Source, By resource.Source
}

// AllCovered returns the covered resources in a scope, in order.
func (s *Sources) AllCovered(in *ledger.Scope) []Covered {
	var out []Covered
	s.pushes.withResolver(func(r *resolver.Resolver) {
		for _, key := range r.AllCovered() {
			if c, ok := r.Covered(key); ok && in.Resource(key) {
				out = append(out, Covered{Resource: key.String(), Source: c.From.Source, By: c.InUseFrom.Source})
			}
		}
	})
	return out
}

// author returns who pushed a resource last, as the history has it; empty if that is not known.
func (s *Sources) author(key resource.Key) string {
	now, err := s.contents()
	if err != nil {
		return ""
	}
	name := key.String()
	for _, e := range changelog.Records(now.Of(changelog.Type)) {
		r, err := changelog.Decode(e)
		if err != nil {
			continue
		}
		for _, c := range r.Changes {
			if c.Resource == name {
				return r.Author()
			}
		}
	}
	return ""
}

// coveredFamily counts what is covered.
var coveredFamily = observe.Gauge("lbd_covered_resources",
	"Resources of a source that are not in use because a push or a file covers them, by their source: file, ads, cache.", "source")

func (s *Sources) collectCovered(out chan<- prometheus.Metric) {
	counts := map[resource.Source]int{}
	for _, source := range resource.Sources[1:] { // nothing covers the first one
		counts[source] = 0
	}
	for _, c := range s.AllCovered(nil) {
		counts[c.Source]++
	}
	for source, n := range counts {
		out <- coveredFamily.Metric(float64(n), source.String())
	}
}
