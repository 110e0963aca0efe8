// Package clustermanager is gRPC's xds_cluster_manager: one child per cluster,
// chosen by the cluster that a pick's route named.
package clustermanager

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

// Builder builds cluster_manager policies, whose config is a
// [policy.ClusterManagerConfig].
type Builder struct{}

// Name returns "xds_cluster_manager_experimental".
func (Builder) Name() string { return policy.ClusterManager }

// Build returns a cluster_manager policy.
func (Builder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return policy.Build(cc, func(conn *policy.Conn) balancer.Balancer {
		return &clusterManager{conn: conn, children: make(map[string]*child)}
	})
}

// clusterManager belongs to the owner, all of it.
type clusterManager struct {
	conn     *policy.Conn
	children map[string]*child
	states   balancer.ConnectivityStateEvaluator
	// summaries are the children's, as published; nil where one went since.
	summaries map[string]policy.Summary

	reported bool
	pending  bool
	closed   bool
}

// child is one cluster. It is the ClientConn that its policy's calls go to.
type child struct {
	*policy.Conn

	parent  *clusterManager
	below   *policy.Conn
	policy  *policy.Switch
	state   balancer.State
	counted connectivity.State // TRANSIENT_FAILURE lasts through CONNECTING
	told    connectivity.State // in the last event, or CONNECTING

	summary    policy.Summary
	summarized uint64 // when below was touched last; 0 where the summary is to be made anew
}

func (b *clusterManager) UpdateClientConnState(s balancer.ClientConnState) error {
	cfg, ok := s.BalancerConfig.(*policy.ClusterManagerConfig)
	if !ok {
		return fmt.Errorf("%s: config is a %T", policy.ClusterManager, s.BalancerConfig)
	}
	for name, c := range b.children {
		if _, ok := cfg.Children[name]; !ok {
			delete(b.children, name)
			b.summaries = nil
			c.close()
			b.conn.Mark(b, &b.pending)
		}
	}
	for name, part := range cfg.Children {
		c := b.children[name]
		if c == nil {
			c = b.add(name)
		}
		_ = c.policy.Update(part) // the Switch has said so: it fails this cluster only
	}
	if !b.reported {
		b.conn.Mark(b, &b.pending)
	}
	return nil
}

func (b *clusterManager) add(name string) *child {
	c := &child{
		Conn: b.conn, parent: b,
		state:   balancer.State{ConnectivityState: connectivity.Connecting, Picker: policy.QueuePicker},
		counted: connectivity.Connecting, told: connectivity.Connecting,
	}
	c.below = b.conn.RootChild(c, name)
	c.policy = policy.NewSwitch(c.below)
	b.children[name] = c
	b.states.RecordTransition(connectivity.Shutdown, c.counted)
	b.conn.Mark(b, &b.pending)
	return c
}

// UpdateState takes the child's state. None comes after close.
func (c *child) UpdateState(s balancer.State) {
	c.state, c.summarized = s, 0
	if c.counted != connectivity.TransientFailure || s.ConnectivityState != connectivity.Connecting {
		c.parent.states.RecordTransition(c.counted, s.ConnectivityState)
		c.counted = s.ConnectivityState
	}
	c.parent.conn.Mark(c.parent, &c.parent.pending)
}

func (c *child) close() {
	c.parent.states.RecordTransition(c.counted, connectivity.Shutdown)
	c.policy.Close()
}

// Report sends the aggregate state and a picker of all children up. It tells of
// the clusters whose state is another now.
func (b *clusterManager) Report() {
	if b.closed {
		return
	}
	b.reported = true
	p := make(picker, len(b.children))
	var changed []string
	for name, c := range b.children {
		p[name] = c.state.Picker
		if c.told != c.state.ConnectivityState {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	for _, name := range changed {
		c := b.children[name]
		b.conn.Event(policy.StateChanged{Cluster: name, From: c.told, To: c.state.ConnectivityState})
		c.told = c.state.ConnectivityState
	}
	b.conn.UpdateState(balancer.State{ConnectivityState: b.states.CurrentState(), Picker: p})
}

// ResolverError goes to every child.
func (b *clusterManager) ResolverError(err error) {
	for _, c := range b.children {
		c.policy.ResolverError(err)
	}
}

// UpdateSubConnState is not called: SubConns have listeners.
func (b *clusterManager) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle goes to every child.
func (b *clusterManager) ExitIdle() {
	for _, c := range b.children {
		c.policy.ExitIdle()
	}
}

func (b *clusterManager) Close() {
	b.closed = true
	for _, c := range b.children {
		c.close()
	}
}

// Describe describes every cluster.
func (b *clusterManager) Describe() policy.Node {
	n := policy.Node{
		Policy: policy.ClusterManager, State: b.states.CurrentState(),
		Clusters: make(map[string]policy.Node, len(b.children)),
	}
	for name, c := range b.children {
		n.Clusters[name] = c.policy.Describe()
	}
	return n
}

// DescribeCluster describes one cluster.
func (b *clusterManager) DescribeCluster(cluster string) policy.Node {
	if c := b.children[cluster]; c != nil {
		return c.policy.Describe()
	}
	return policy.Node{}
}

// Summarize summarizes the clusters in which something happened; with a thousand
// of them that is what a batch costs.
func (b *clusterManager) Summarize() policy.Summary {
	changed := b.summaries == nil
	for _, c := range b.children {
		if touched := c.below.Touched(); c.summarized == 0 || c.summarized != touched {
			c.summary, c.summarized = c.policy.Summarize(), touched
			c.summary.Revision = touched
			changed = true
		}
	}
	if changed {
		b.summaries = make(map[string]policy.Summary, len(b.children))
		for name, c := range b.children {
			b.summaries[name] = c.summary
		}
	}
	return policy.Summary{State: b.states.CurrentState(), Priority: -1, Clusters: b.summaries}
}

// picker holds every cluster's picker, ready or not.
type picker map[string]balancer.Picker

// Pick lets the picker of the call's cluster pick.
func (p picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	var cluster string
	call, ok := policy.CallOf(info.Ctx)
	if ok {
		cluster = call.Cluster
	}
	child, found := p[cluster]
	if ok && call.Trace != nil {
		call.Trace.Steps = append(call.Trace.Steps, policy.ClusterStep{Cluster: cluster, Found: found})
	}
	if !found {
		return balancer.PickResult{}, policy.NewRefusal(policy.KindUnknownCluster, "",
			fmt.Sprintf("unknown cluster selected for RPC: %q", cluster))
	}
	return child.Pick(info)
}
