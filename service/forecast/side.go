package forecast

import (
	"context"
	"math"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/resource"
)

// side is a cluster before or after a change.
type side struct {
	ClusterOutcome

	node     policy.Node
	places   []place
	policies []resource.PolicyName
	// known is true if the shares are.
	known     bool
	detection bool // there is outlier detection
}

// key identifies an endpoint; leaf is that of an AGGREGATE.
type key struct{ leaf, address string }

// place is an endpoint with its share of the picks that are not dropped.
type place struct {
	key

	priority int
	locality observe.Locality
	share    *float64
}

// side gives a config to the tree, and returns what the cluster is then.
func (r *rehearsal) side(ctx context.Context, config *resource.Config, name string) (*side, error) {
	out := &side{ClusterOutcome: ClusterOutcome{Priority: -1}, known: true}
	cc := configOf(config, name)
	if out.Error = unusable(cc); out.Error != "" {
		return out, nil
	}
	node, err := r.play(ctx, config)
	if err != nil {
		return nil, err
	}
	out.node = node
	leaf := name
	for _, p := range observe.Priorities(config, name, node) {
		if p.InUse {
			out.Priority, leaf = p.Priority, p.Cluster
		}
		for i := range p.Localities {
			l := &p.Localities[i]
			for j := range l.Endpoints {
				out.add(&p, l, &l.Endpoints[j])
			}
		}
	}
	switch {
	case node.State == connectivity.Ready:
	case node.Err != nil:
		out.Error = node.Err.Error()
	default:
		out.Error = "the cluster is " + node.State.String()
	}
	for of, part := range config.Leaves(name) {
		if part.Cluster != nil {
			out.policies = append(out.policies, part.Cluster.Policy.Endpoint())
			out.detection = out.detection || part.Cluster.OutlierDetection != nil
		}
		if (of == leaf || of == name) && part.Assignment != nil {
			out.Dropped = dropped(part.Assignment.Drops)
		}
	}
	if len(cc.Leaves) == 0 {
		out.MaxRequests = &cc.Cluster.MaxRequests
	}
	return out, nil
}

// unusable returns why a config has no tree; empty if it has one.
func unusable(cc *resource.ClusterConfig) string {
	switch {
	case cc == nil:
		return "the cluster does not exist"
	case cc.Err != nil:
		return cc.Err.Error()
	}
	return ""
}

func (s *side) add(p *observe.PriorityState, l *observe.LocalityState, e *observe.EndpointState) {
	s.places = append(s.places, place{key: key{p.Cluster, e.Address}, priority: p.Priority, locality: l.Locality, share: e.Share})
	s.known = s.known && e.Share != nil
}

// dropped returns the part of the picks that one of several categories drops: each gets what the ones
// before have left.
func dropped(drops []resource.Drop) float64 {
	kept := 1.0
	for _, d := range drops {
		kept *= 1 - float64(d.PerMillion)/1e6
	}
	return 1 - max(0, kept)
}

// movedKeys returns the part of all request hashes that get another endpoint. ok is false unless one
// policy chooses by the hash before, and one after.
func movedKeys(before, after policy.Node) (moved float64, ok bool) {
	was, is := arcsOf(before), arcsOf(after)
	if len(was) == 0 || len(is) == 0 {
		return 0, false
	}
	// From one end of an arc to the next, in both rings at once.
	at := func(arcs []policy.Arc, i int) (end uint64, e *resource.Endpoint) {
		if i == len(arcs) {
			return math.MaxUint64, arcs[0].Endpoint
		}
		return arcs[i].End, arcs[i].Endpoint
	}
	last := -1.0
	for i, j := 0, 0; i <= len(was) && j <= len(is); {
		ends, from := at(was, i)
		endsToo, to := at(is, j)
		end := min(ends, endsToo)
		if from != nil && from != to && (to == nil || !policy.SameAddresses(from.Addresses, to.Addresses)) {
			moved += max(0, float64(end)-last)
		}
		last = float64(end)
		if ends == end {
			i++
		}
		if endsToo == end {
			j++
		}
	}
	return moved / (1 << 64), true
}

// arcsOf returns the arcs of the only policy in use that chooses by the hash.
func arcsOf(n policy.Node) []policy.Arc {
	var all []policy.Node
	hashing(n, func(n policy.Node) { all = append(all, n) })
	if len(all) != 1 {
		return nil
	}
	return all[0].Arcs()
}
