package policy

import (
	"fmt"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Trace records the steps of one pick that asks for an explanation.
type Trace struct {
	Steps []Step
}

// Step is one of the Step structs of this package.
type Step interface{ step() }

// RouteStep is the choice of a cluster by the target's routes.
type RouteStep struct {
	VirtualHost string
	// RouteTrace has the routes that were tried, with reasons, and the hash policies.
	resource.RouteTrace

	// Route is the one that matched, or nil.
	Route *resource.Route
	// Cluster is the one of Route's that 64 random bits chose; Draw is 0 for a single
	// cluster. It is empty if Route is not supported, or nil.
	Cluster string
	Draw    uint64
	// Hash is the request hash if there is a Cluster.
	Hash     uint64
	HashFrom HashSource
}

// HashSource is where a request hash comes from.
type HashSource string

const (
	// HashFromCaller means that the pick had it.
	HashFromCaller HashSource = "caller"
	// HashFromRoute means that the route's hash policies computed it.
	HashFromRoute HashSource = "route"
	// HashRandom means that no hash policy applied.
	HashRandom HashSource = "random"
)

// ClusterStep is cluster_manager's choice.
type ClusterStep struct {
	Cluster string
	Found   bool
}

// DropStep is one drop category's draw.
type DropStep struct {
	Category string
	// PerMillion is the chance. Draw, below 1,000,000, drops if it is lower.
	PerMillion uint64
	Draw       uint64
	Dropped    bool
}

// BreakerStep is the circuit breaker's answer. InFlight does not include this pick. With Shared, Max is
// the limit of a fleet, Limit is the share of this process, and Spare is what others do not need.
type BreakerStep struct {
	InFlight int64
	Max      uint32
	Limit    uint32
	Shared   bool
	Spare    int64
	Refused  bool
}

// PriorityStep is the priority in use, and the higher ones with reasons.
type PriorityStep struct {
	Priority   int
	State      connectivity.State
	PassedOver []PassedOver
}

// PassedOver is a priority or a leaf that is not in use, and why.
type PassedOver struct {
	// Priority is the number of the priority, or of the leaf's first.
	Priority int
	// Name is that of [PriorityChild].
	Name  string
	State connectivity.State
	Why   string
}

// LeafStep is the leaf of an AGGREGATE in use, and those before it with reasons.
type LeafStep struct {
	Leaf       string
	State      connectivity.State
	PassedOver []PassedOver
}

// LocalityStep is the weighted draw of a locality.
type LocalityStep struct {
	// Candidates are the localities in the draw: the READY ones, or all if all failed;
	// without those whose endpoints are all excluded.
	Candidates []LocalityCandidate
	// Draw is the 64 random bits; 0 for a single candidate.
	Draw uint64
	// Chosen is an index of Candidates.
	Chosen int
}

// LocalityCandidate is one locality of a draw.
type LocalityCandidate struct {
	Locality resource.Locality
	Weight   uint32
}

// EndpointStep is an endpoint policy's choice.
type EndpointStep struct {
	Policy string
	// Rotation is the number of endpoints to choose from; Index is the place of the
	// chosen one.
	Rotation int
	Index    int
	// Excluded is the number of excluded endpoints: of the rotation, or for ring_hash
	// of those that were passed.
	Excluded int
	// InsteadOf is the excluded endpoint whose turn it was, if Endpoint replaces it.
	InsteadOf *resource.Endpoint
	// Endpoint is nil if all are excluded.
	Endpoint *resource.Endpoint
	// Detail is what the policy adds, or nil.
	Detail Detail
}

// Detail is what a policy adds to an [EndpointStep]. The API returns it as JSON.
type Detail interface {
	// Says describes the step in a sentence.
	Says(s EndpointStep) string
}

// Says describes the step in a sentence.
func (s EndpointStep) Says() string {
	switch {
	case s.Detail != nil:
		return s.Detail.Says(s)
	case s.Endpoint == nil:
		return fmt.Sprintf("%s has no endpoint left: all %d READY ones are excluded", s.Policy, s.Rotation)
	default:
		return fmt.Sprintf("%s (%d excluded)", s.Turn(), s.Excluded)
	}
}

// Turn describes the choice of a policy with turns.
func (s EndpointStep) Turn() string {
	place := fmt.Sprintf("number %d of %d in rotation", s.Index, s.Rotation)
	if s.InsteadOf != nil {
		return fmt.Sprintf("%s drew %s instead of %s, whose turn it was: %s", s.Policy, s.Endpoint.Addresses[0], s.InsteadOf.Addresses[0], place)
	}
	return fmt.Sprintf("%s took %s, %s", s.Policy, s.Endpoint.Addresses[0], place)
}

// FailureStep is a picker's error.
type FailureStep struct {
	Err error
}

// QueueStep means that the pick waits for the next picker.
type QueueStep struct{}

// OpaqueStep is the choice of a policy that is not lbd's.
type OpaqueStep struct {
	Policy string
}

func (RouteStep) step()    {}
func (ClusterStep) step()  {}
func (DropStep) step()     {}
func (BreakerStep) step()  {}
func (PriorityStep) step() {}
func (LeafStep) step()     {}
func (LocalityStep) step() {}
func (EndpointStep) step() {}
func (FailureStep) step()  {}
func (QueueStep) step()    {}
func (OpaqueStep) step()   {}
