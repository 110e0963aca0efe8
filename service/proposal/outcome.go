package proposal

import (
	"errors"
	"iter"
	"slices"

	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Outcome is what a proposal changes. It must not be changed.
type Outcome struct {
	Proposal *resolver.Proposal
	// Targets are the targets that it touches, by name.
	Targets []resolver.Preview
}

// Evaluate returns what a proposal changes, after earlier proposals that the resolver does not have yet.
func Evaluate(r *resolver.Resolver, p *resolver.Proposal, earlier ...*resolver.Proposal) *Outcome {
	return &Outcome{Proposal: p, Targets: r.Preview(p, earlier...)}
}

// Needs returns the resources on which the outcome depends.
func (o *Outcome) Needs() map[resource.Key]bool {
	out := map[resource.Key]bool{}
	for i := range o.Targets {
		for _, x := range o.Targets[i].Touched {
			for _, key := range x.Needs {
				out[key] = true
			}
		}
	}
	return out
}

// assignments returns those that the proposal sets, by name.
func (o *Outcome) assignments() map[string]*resource.Assignment {
	out := map[string]*resource.Assignment{}
	for i := range o.Proposal.Updates {
		if u := &o.Proposal.Updates[i]; u.Assignment != nil {
			out[u.Key.Name] = u.Assignment
		}
	}
	return out
}

// transition is what a proposal makes of a cluster of one target.
type transition struct {
	cluster string
	was, is side
	needs   []resource.Key // that the cluster depends on
}

// side is a cluster before or after a proposal, with its leaves: itself, unless it is an AGGREGATE. The zero side is
// a cluster that does not exist.
type side struct {
	config *resource.ClusterConfig
	leaves []*resource.ClusterConfig
}

func sideOf(config *resource.ClusterConfig, leaves []*resource.ClusterConfig) side {
	switch {
	case config == nil || errors.As(config.Err, new(*resolver.NotFoundError)):
		return side{}
	case len(config.Leaves) == 0:
		leaves = []*resource.ClusterConfig{config}
	}
	return side{config, leaves}
}

// transitions yields what the proposal makes of each cluster that it touches, also of the leaves of an AGGREGATE: as
// picks use it now, and as soon as its target waits for nothing.
func (o *Outcome) transitions(yield func(transition) bool) {
	for i := range o.Targets {
		p := &o.Targets[i]
		before := p.Before
		if before == nil {
			before = &resource.Config{}
		}
		for _, x := range p.Touched {
			t := transition{cluster: x.Cluster, is: sideOf(x.Next, x.Leaves), needs: x.Needs}
			if _, ok := slices.BinarySearch(before.Roots, x.Cluster); ok {
				t.was = sideOf(before.Clusters.Get(x.Cluster), slices.Collect(values(before.Leaves(x.Cluster))))
			}
			if !yield(t) {
				return
			}
			for i, leaf := range x.Leaves {
				name := x.Next.Leaves[i]
				if !yield(transition{name, sideOf(before.Clusters.Get(name), nil), sideOf(leaf, nil), x.Needs}) {
					return
				}
			}
		}
	}
}

func values[K, V any](of iter.Seq2[K, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		of(func(_ K, v V) bool { return yield(v) })
	}
}

// usable counts the endpoints that picks may reach. Those of an AGGREGATE are those of its leaves (gRFC A37).
func (s side) usable() (n int) {
	for _, leaf := range s.leaves {
		n += leaf.Assignment.Usable()
	}
	return n
}

// none reports whether the cluster exists and certainly has no usable endpoint: not if its endpoints come from
// DNS, or a management server may have them.
func (s side) none() bool {
	return s.config != nil && s.usable() == 0 && !slices.ContainsFunc(s.leaves, func(leaf *resource.ClusterConfig) bool {
		return leaf.Pending || leaf.Cluster != nil && leaf.Cluster.Type == resource.ClusterLogicalDNS
	})
}
