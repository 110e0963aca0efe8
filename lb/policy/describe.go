package policy

import (
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Describer is a policy that can say what it does, for the state dump.
type Describer interface {
	// Describe is called by the owner.
	Describe() Node
}

// ClusterDescriber is a Describer that can describe one of its clusters alone.
type ClusterDescriber interface {
	// DescribeCluster is called by the owner. A cluster that is not there has a
	// zero Node.
	DescribeCluster(cluster string) Node
}

// Node is one policy's description, its children's in it. A policy fills the
// part that is its own; the rest is zero.
type Node struct {
	Policy string
	State  connectivity.State
	// Err is what its picker answers where it answers an error.
	Err error

	// Clusters is cluster_manager's part, by cluster.
	Clusters map[string]Node
	// Breaker is cluster_impl's.
	Breaker *BreakerNode
	// Priorities is priority's, from the highest on: priorities, or the leaves of
	// an AGGREGATE.
	Priorities []PriorityNode
	// Localities is weighted_target's.
	Localities []LocalityNode
	// Endpoints is an endpoint policy's. Shares tells whether it knows which part
	// of its picks each of them gets.
	Endpoints []EndpointNode
	Shares    bool
	// Child is the child of a policy with just one.
	Child *Node
}

// BreakerNode describes drops and circuit breaking.
type BreakerNode struct {
	Service     ServiceKey
	MaxRequests uint32
	InFlight    int64
	Drops       []resource.Drop
}

// PriorityNode describes one priority, or one leaf of an AGGREGATE.
type PriorityNode struct {
	Name string
	// Number is the priority's, or that of the first priority of a leaf.
	Number int
	// Leaf is true for a leaf, whose cluster Name is.
	Leaf bool
	// Skipped is why a leaf is skipped; nil where it is not.
	Skipped error
	InUse   bool
	// InUseSince is when picks began to go to the priority of this number, or to
	// the leaf; zero where they do not.
	InUseSince time.Time
	// Why says why it is in use or is not.
	Why     string
	Started bool
	// Size is how many endpoints it has that picks may reach.
	Size int
	// FailoverAt is when its init timer ends; zero where none runs.
	FailoverAt time.Time
	// ForgetAt is when a deactivated priority is closed; zero where it is not
	// deactivated.
	ForgetAt time.Time
	// Child is zero where the priority was never started.
	Child Node
}

// LocalityNode describes one locality of a priority.
type LocalityNode struct {
	Locality resource.Locality
	Weight   uint32
	Child    Node
}

// EndpointNode describes one endpoint.
type EndpointNode struct {
	Endpoint *resource.Endpoint
	State    connectivity.State
	// Address is the connected one, or empty.
	Address string
	// InRotation reports whether the policy's picker can choose it.
	InRotation bool
	// Share is the part of the policy's picks that the endpoint gets now, 0 to 1.
	// Of ring_hash it is the part of the hashes that lead to it; of least_request
	// what it is while all are as busy.
	Share float64
	// LastErr is the last connection error since it was READY.
	LastErr error
}

// DescribeOf describes b, or names it where it cannot describe itself.
func DescribeOf(b balancer.Balancer, policy string, state connectivity.State) Node {
	if d, ok := b.(Describer); ok {
		return d.Describe()
	}
	return Node{Policy: policy, State: state}
}

// Census counts endpoints by the state of their connection.
type Census struct {
	Ready, Connecting, Idle, TransientFailure int
	// Ejected are those that outlier_detection has ejected, whatever their
	// connections do.
	Ejected int
}

// Add sums two counts.
func (c Census) Add(o Census) Census {
	return Census{
		c.Ready + o.Ready, c.Connecting + o.Connecting,
		c.Idle + o.Idle, c.TransientFailure + o.TransientFailure, c.Ejected + o.Ejected,
	}
}

// Eject counts n of the endpoints that failed as ejected. A policy that does not
// count its endpoints has none that failed.
func (c Census) Eject(n int) Census {
	n = min(n, c.TransientFailure)
	c.TransientFailure -= n
	c.Ejected += n
	return c
}

// Total is how many endpoints were counted.
func (c Census) Total() int {
	return c.Ready + c.Connecting + c.Idle + c.TransientFailure + c.Ejected
}

// Summary is the short form of a description, cheap enough to be published
// with every batch: without endpoints.
type Summary struct {
	State connectivity.State
	// Clusters is cluster_manager's part, by cluster.
	Clusters map[string]Summary
	// Revision is another one, of a cluster in Clusters, whenever something may be
	// another in its Node.
	Revision uint64
	// Priority is the priority in use, -1 without one; Priorities counts
	// each's endpoints.
	Priority   int
	Priorities []Census
	// Census counts the endpoints below an endpoint or locality policy.
	Census Census
}

// Summarizer is a policy that counts what is below it.
type Summarizer interface {
	// Summarize is called by the owner, at the end of a batch, if the policy
	// or one below it has marked itself since the last time: that is what
	// changes it.
	Summarize() Summary
}

// SummaryOf summarizes b; a policy that does not count gives its state alone.
func SummaryOf(b balancer.Balancer, state connectivity.State) Summary {
	if s, ok := b.(Summarizer); ok {
		return s.Summarize()
	}
	return Summary{State: state, Priority: -1}
}
