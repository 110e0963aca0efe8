package resolver

import (
	"slices"

	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resource"
)

// overlays are those of one cluster, in all targets.
type overlays struct {
	list []*resource.Overlay // the oldest first
	last overlaid            // the last result: targets mostly have the same resources
}

// overlaid is what overlays make of a cluster.
type overlaid struct {
	*resource.Overlaid

	cluster    *resource.Cluster
	assignment *resource.Assignment
}

// applyOverlays replaces the overlays of a cluster, the oldest first. The cluster need not exist.
func (r *Resolver) applyOverlays(cluster string, list []*resource.Overlay, b *batch) {
	if len(list) == 0 && r.base == nil {
		delete(r.overlays, cluster)
	} else {
		r.overlays[cluster] = &overlays{list: list}
	}
	r.touch(resource.Key{Type: resource.TypeCluster, Name: cluster}, b)
}

// overlay applies the overlays of a cluster to its config. p has the config before.
func (r *Resolver) overlay(name string, p *part, cc *resource.ClusterConfig) {
	at := r.overlays[name]
	if at == nil && r.base != nil {
		at = r.base.overlays[name]
	}
	if at == nil || len(at.list) == 0 || cc.Err != nil || cc.Cluster.Type == resource.ClusterAggregate {
		return
	}
	if was := p.config; was != nil && was.Overlaid.Of(cc.Cluster, cc.Assignment) && slices.Equal(was.Overlaid.Overlays, at.list) {
		cc.Overlaid, cc.Cluster, cc.Assignment = was.Overlaid, was.Cluster, was.Assignment
		return
	}
	if !at.last.Of(cc.Cluster, cc.Assignment) {
		at.last.Overlaid = &resource.Overlaid{Overlays: at.list, Cluster: cc.Cluster, Assignment: cc.Assignment}
		at.last.cluster, at.last.assignment = overlay.Apply(at.list, cc.Cluster, cc.Assignment)
		if was := p.config; was != nil && at.last.assignment != nil {
			at.last.assignment = at.last.assignment.Reuse(was.Assignment)
		}
	}
	cc.Overlaid, cc.Cluster, cc.Assignment = at.last.Overlaid, at.last.cluster, at.last.assignment
}
