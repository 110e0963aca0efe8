package policy

import (
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Node describes one policy and its children. Each kind of policy sets its own fields.
type Node struct {
	Policy string
	State  connectivity.State
	// Err is the error of its picks.
	Err error

	// Clusters is set by cluster_manager.
	Clusters map[string]Node
	// Priorities is set by priority: priorities, or the leaves of an AGGREGATE; the
	// highest first.
	Priorities []PriorityNode
	// Localities is set by weighted_target.
	Localities []LocalityNode
	// Endpoints is set by endpoint policies. Shares means that their Share is known.
	Endpoints []EndpointNode
	Shares    bool
	// Arcs returns the endpoint of each request hash, in the order of the hashes; nil for a policy that
	// does not choose by the hash. Any goroutine may call it.
	Arcs func() []Arc
	// Child is set by policies with one child.
	Child *Node
}

// PriorityNode describes one priority, or one leaf of an AGGREGATE.
type PriorityNode struct {
	Name string
	// Skipped is why a leaf is skipped.
	Skipped error
	InUse   bool
	// InUseSince is when picks began to go to this number, or to the leaf; zero if
	// they do not.
	InUseSince time.Time
	// Why explains whether it is in use.
	Why     string
	Started bool
	// FailoverAt is when its init timer ends; zero if none runs.
	FailoverAt time.Time
	// ForgetAt is when a deactivated priority is closed, else zero.
	ForgetAt time.Time
	// Child is zero if the priority was never started.
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
	// Address is the connected address.
	Address string
	// Share is the endpoint's part of the policy's picks, 0 to 1: of hashes for
	// ring_hash; with equal requests in flight for least_request.
	Share float64
	// LastErr is the last connection error since it was READY.
	LastErr error
}

// Arc is a part of all request hashes that have the same endpoint: those after the End of the arc
// before, up to its own End. The first arc also has the hashes after the last End.
type Arc struct {
	End uint64
	// Endpoint is nil if all endpoints have failed.
	Endpoint *resource.Endpoint
}

// Census counts endpoints by the state of their connection.
type Census struct {
	Ready            int `json:"ready"`
	Connecting       int `json:"connecting"`
	Idle             int `json:"idle"`
	TransientFailure int `json:"transient_failure"`
	// Ejected endpoints get no picks because of outlier detection.
	Ejected int `json:"ejected"`
}

// Add adds two counts.
func (c Census) Add(o Census) Census {
	return Census{
		c.Ready + o.Ready, c.Connecting + o.Connecting,
		c.Idle + o.Idle, c.TransientFailure + o.TransientFailure, c.Ejected + o.Ejected,
	}
}

// Eject moves n failed endpoints to Ejected, or as many as there are.
func (c Census) Eject(n int) Census {
	n = min(n, c.TransientFailure)
	c.TransientFailure -= n
	c.Ejected += n
	return c
}

// Total returns the number of endpoints.
func (c Census) Total() int {
	return c.Ready + c.Connecting + c.Idle + c.TransientFailure + c.Ejected
}

// Summary is a description without endpoints, cheap enough for every batch.
type Summary struct {
	State connectivity.State
	// Clusters is set by cluster_manager.
	Clusters *few.Map[string, *Summary]
	// Revision changes whenever the Node of a cluster may have changed.
	Revision uint64
	// Since is when a cluster got its State, and Err is why its picks fail; both are set by
	// cluster_manager.
	Since time.Time
	Err   error
	// Priority is the priority in use; -1 for none. Priorities counts the endpoints of
	// each.
	Priority   int
	Priorities []Census
	// Census is set by endpoint and locality policies.
	Census Census
}
