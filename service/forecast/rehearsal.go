package forecast

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

// rehearsal is a tree of one cluster that makes no connections. Its configs have no drops, no limit of
// requests and no outlier detection: these do not choose endpoints.
type rehearsal struct {
	cluster   string
	channel   *lb.Channel
	connector connector
	stripped  map[any]any // clusters and assignments, so that equal ones stay the same
}

// newRehearsal returns a rehearsal of a cluster. fails returns why the endpoint with some addresses
// cannot be connected to, and nil if it can. mode is the daemon's default connect mode. Close it.
func newRehearsal(cluster string, mode resource.ConnectMode, fails func(addresses []string) error) *rehearsal {
	r := &rehearsal{cluster: cluster, stripped: make(map[any]any)}
	r.connector.fails = fails
	connectors := map[resource.ConnectMode]lb.Connector{
		resource.ConnectTCP: &r.connector, resource.ConnectTCPHold: &r.connector, resource.ConnectTLS: &r.connector, resource.ConnectNone: nil,
	}
	connectors[resource.ConnectDefault] = connectors[mode]
	r.channel = lb.NewChannel(lb.Options{
		Registry: lb.Policies(), Counters: policy.NewCounters(), Draw: rand.Uint64, Connectors: connectors,
	})
	return r
}

// maxRounds limits how often endpoints are woken. A round follows only if there was a new attempt to
// connect.
const maxRounds = 10_000

// play gives the tree a config, and returns its description when nothing happens any more.
func (r *rehearsal) play(ctx context.Context, config *resource.Config) (policy.Node, error) {
	if err := r.channel.Offer(r.strip(config)).Wait(ctx); err != nil {
		return policy.Node{}, fmt.Errorf("rehearse: %w", err)
	}
	begun := int64(-1)
	for range maxRounds {
		node, err := r.describe(ctx)
		now := r.connector.begun.Load()
		if err != nil || now == begun {
			return node, err
		}
		begun = now
		r.wake(ctx, node)
	}
	return r.describe(ctx)
}

// describe returns the description of the tree at rest: all attempts to connect have ended, because they
// report at once.
func (r *rehearsal) describe(ctx context.Context) (policy.Node, error) {
	err := r.channel.Rest(ctx)
	if err != nil {
		return policy.Node{}, fmt.Errorf("rehearse: %w", err)
	}
	node, err := r.channel.DescribeCluster(ctx, r.cluster)
	if err != nil {
		return node, fmt.Errorf("rehearse: %w", err)
	}
	return node, nil
}

// wake picks, so that endpoints that only picks connect are connected.
func (r *rehearsal) wake(ctx context.Context, n policy.Node) {
	pick := func(hash uint64, has bool) {
		_ = r.channel.Pick(&policy.Call{Context: ctx, Cluster: r.cluster, Hash: hash, HasHash: has}, 0) // only to connect
	}
	if n.State != connectivity.Ready {
		pick(0, false)
	}
	hashing(n, func(n policy.Node) {
		waiting := make(map[string]bool)
		for _, e := range n.Endpoints {
			if e.State == connectivity.Idle {
				waiting[e.Endpoint.Addresses[0]] = true
			}
		}
		if len(waiting) == 0 {
			return
		}
		for _, arc := range n.Arcs() {
			if arc.Endpoint != nil && waiting[arc.Endpoint.Addresses[0]] {
				delete(waiting, arc.Endpoint.Addresses[0])
				pick(arc.End, true)
			}
		}
	})
}

// hashing calls f with the policies in use that choose by the request hash.
func hashing(n policy.Node, f func(policy.Node)) {
	if n.Arcs != nil {
		f(n)
	}
	if n.Child != nil {
		hashing(*n.Child, f)
	}
	for _, p := range n.Priorities {
		if p.InUse {
			hashing(p.Child, f)
		}
	}
	for _, l := range n.Localities {
		hashing(l.Child, f)
	}
}

// strip returns a config with the cluster only, without what does not choose endpoints.
func (r *rehearsal) strip(config *resource.Config) *resource.Config {
	out := &resource.Config{Target: "cluster:" + r.cluster, Roots: []string{r.cluster}, Clusters: few.Map[string, *resource.ClusterConfig]{}}
	root := config.Clusters.Get(r.cluster)
	out.Clusters.Set(r.cluster, r.stripCluster(root))
	for _, leaf := range root.Leaves {
		out.Clusters.Set(leaf, r.stripCluster(config.Clusters.Get(leaf)))
	}
	return out
}

func (r *rehearsal) stripCluster(cc *resource.ClusterConfig) *resource.ClusterConfig {
	out := *cc
	out.Overlaid = nil
	if cc.Cluster != nil {
		out.Cluster = once(r, cc.Cluster, func(c *resource.Cluster) { c.MaxRequests, c.OutlierDetection = math.MaxUint32, nil })
	}
	if cc.Assignment != nil {
		out.Assignment = once(r, cc.Assignment, func(a *resource.Assignment) { a.Drops = nil })
	}
	return &out
}

// once returns a changed copy of a value, the same for the same value.
func once[T any](r *rehearsal, of *T, change func(*T)) *T {
	if is, ok := r.stripped[of].(*T); ok {
		return is
	}
	is := new(T)
	*is = *of
	change(is)
	r.stripped[of] = is
	return is
}

// connector pretends to connect.
type connector struct {
	fails func(addresses []string) error

	begun, opened, closed atomic.Int64
}

// Start reports at once.
func (c *connector) Start(addresses []string, report func(lb.Connection)) (stop func()) {
	c.begun.Add(1)
	if err := c.fails(addresses); err != nil {
		report(lb.Connection{Address: addresses[len(addresses)-1], Err: err})
		return func() {}
	}
	c.opened.Add(1)
	report(lb.Connection{Address: addresses[0]})
	return sync.OnceFunc(func() { c.closed.Add(1) })
}
