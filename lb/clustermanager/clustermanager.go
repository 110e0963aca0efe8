// Package clustermanager is gRPC's xds_cluster_manager: one child per cluster,
// chosen by the cluster that a pick's route named.
package clustermanager

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/few"
)

// Builder returns the builder of cluster_manager policies, whose config is a
// *[policy.ClusterManagerConfig].
func Builder() policy.Builder {
	return policy.NewBuilder(policy.ClusterManager, func(conn *policy.Conn) policy.Policy {
		b := new(clusterManager)
		b.Init(conn, policy.ClusterManager, b, func(c *child, _ connectivity.State) {
			c.Own.summarized = 0
			b.MarkStale()
		})
		return b
	})
}

// clusterManager belongs to the owner.
type clusterManager struct {
	policy.Children[string, cluster]

	// summaries are the children's, as published; nil if one was closed since.
	summaries *few.Map[string, *policy.Summary]
}

type child = policy.ChildPolicy[string, cluster]

// cluster is what the policy keeps for each cluster.
type cluster struct {
	below    *policy.Conn
	reported connectivity.State // in the last event; CONNECTING before the first
	since    time.Time          // of reported

	summary    *policy.Summary // never changed
	summarized uint64          // when below was touched last; 0 if the summary is out of date
}

func (b *clusterManager) Update(given policy.Child) error {
	cfg, ok := given.Config.(*policy.ClusterManagerConfig)
	if !ok {
		return fmt.Errorf("%s: config is a %T", policy.ClusterManager, given.Config)
	}
	kept := make([]*child, 0, len(cfg.Children))
	for _, c := range b.Order {
		if _, ok := cfg.Children[c.Key]; ok {
			kept = append(kept, c)
		}
	}
	if b.Keep(kept) {
		b.summaries = nil
		b.MarkStale()
	}
	for name, part := range cfg.Children {
		c := b.Child(name)
		if c == nil {
			c = b.add(name)
		}
		_ = c.Update(part) // the Switch reports the error as the child's failure
	}
	if b.Reported == connectivity.Shutdown {
		b.MarkStale()
	}
	return nil
}

func (b *clusterManager) add(name string) *child {
	var below *policy.Conn
	c := b.Add(name, func(cc policy.ClientConn) *policy.Conn {
		below = b.RootChild(cc, name)
		return below
	})
	c.Own = cluster{below: below, reported: connectivity.Connecting, since: time.Now()}
	b.MarkStale()
	return c
}

// Report sends the aggregate state and a picker of all children, and an event for each
// cluster whose state has changed.
func (b *clusterManager) Report() {
	if b.Closed() {
		return
	}
	var changed []*child
	for _, c := range b.Order {
		if c.Own.reported != c.State.ConnectivityState {
			changed = append(changed, c)
		}
	}
	slices.SortFunc(changed, func(a, b *child) int { return strings.Compare(a.Key, b.Key) })
	for _, c := range changed {
		b.Event(policy.StateChanged{Cluster: c.Key, From: c.Own.reported, To: c.State.ConnectivityState})
		c.Own.reported, c.Own.since = c.State.ConnectivityState, time.Now()
	}
	b.Send(b.Aggregate(), b.Picker)
}

func (b *clusterManager) Picker(connectivity.State) balancer.Picker {
	if len(b.Order) == 1 {
		return &picker{name: b.Order[0].Key, only: b.Order[0].State.Picker}
	}
	p := &picker{children: make(map[string]balancer.Picker, len(b.Order))}
	for _, c := range b.Order {
		p.children[c.Key] = c.State.Picker
	}
	return p
}

func (b *clusterManager) Describe() policy.Node {
	n := policy.Node{Policy: policy.ClusterManager, State: b.Aggregate(), Clusters: make(map[string]policy.Node, len(b.Order))}
	for _, c := range b.Order {
		n.Clusters[c.Key] = c.Describe()
	}
	return n
}

// DescribeCluster describes one cluster alone. An unknown one has a zero Node.
func (b *clusterManager) DescribeCluster(cluster string) policy.Node {
	if c := b.Child(cluster); c != nil {
		return c.Describe()
	}
	return policy.Node{}
}

// Summarize summarizes again only the clusters that have changed, because there may be
// a thousand.
func (b *clusterManager) Summarize() policy.Summary {
	changed := b.summaries == nil
	for _, c := range b.Order {
		own := &c.Own
		if touched := own.below.Touched(); own.summarized == 0 || own.summarized != touched {
			sum := c.Summarize()
			sum.Revision, sum.Since, sum.Err = touched, own.since, policy.FailureOf(c.State)
			own.summary, own.summarized = &sum, touched
			changed = true
		}
	}
	if changed {
		b.summaries = new(few.Map[string, *policy.Summary])
		for _, c := range b.Order {
			b.summaries.Set(c.Key, c.Own.summary)
		}
	}
	return policy.Summary{State: b.Aggregate(), Priority: -1, Clusters: b.summaries}
}

// UseCluster gives reports to one cluster.
func (b *clusterManager) UseCluster(cluster string, list []*policy.Usage) {
	if c := b.Child(cluster); c != nil {
		c.Use(list)
	}
}

// picker holds every cluster's picker, ready or not.
type picker struct {
	name     string
	only     balancer.Picker // of the cluster name, if there is one cluster
	children map[string]balancer.Picker
}

func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	call := policy.CallOf(info.Ctx)
	child, found := p.only, call.Cluster == p.name
	if child == nil {
		child, found = p.children[call.Cluster]
	}
	if call.Trace != nil {
		call.Trace.Steps = append(call.Trace.Steps, policy.ClusterStep{Cluster: call.Cluster, Found: found})
	}
	if !found {
		return balancer.PickResult{}, policy.NewRefusal(policy.KindUnknownCluster, "",
			fmt.Sprintf("unknown cluster selected for RPC: %q", call.Cluster))
	}
	return child.Pick(info)
}
