package policy

import (
	"fmt"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Trace takes down the steps of one pick, in the order in which the pickers
// took them. Only a pick that asks for an explanation has one.
type Trace struct {
	Steps []Step
}

// Step is one step of a pick: one of the Step structs of this package.
type Step interface{ step() }

// RouteStep is the target's routes choosing the cluster.
type RouteStep struct {
	VirtualHost string
	// RouteTrace has the routes that were tried, in order, each with why it did
	// not take the request, and the hash policies that were asked.
	resource.RouteTrace

	// Route is the one that took the request; nil where none did.
	Route *resource.Route
	// Cluster is the one drawn of Route's, by the 64 random bits of Draw; 0 for
	// one cluster alone. It is empty where Route cannot be followed, or is nil.
	Cluster string
	Draw    uint64
	// Hash is the request hash, where there is a Cluster.
	Hash     uint64
	HashFrom HashSource
}

// HashSource tells where a request hash comes from.
type HashSource string

// The sources of a routed pick's request hash.
const (
	// HashFromCaller is one that the pick brought.
	HashFromCaller HashSource = "caller"
	// HashFromRoute is one that the route's hash policies made.
	HashFromRoute HashSource = "route"
	// HashRandom is one drawn because no hash policy made one.
	HashRandom HashSource = "random"
)

// ClusterStep is cluster_manager finding the cluster's picker.
type ClusterStep struct {
	Cluster string
	Found   bool
}

// DropStep is one drop category's draw.
type DropStep struct {
	Category string
	// PerMillion is the chance; Draw is in [0, 1,000,000), and drops where it
	// is below the chance.
	PerMillion uint64
	Draw       uint64
	Dropped    bool
}

// BreakerStep is the circuit breaker's answer. InFlight is what it held before
// this pick.
type BreakerStep struct {
	InFlight int64
	Max      uint32
	Refused  bool
}

// PriorityStep is the priority that serves, and each higher one with why it
// was passed over.
type PriorityStep struct {
	Priority   int
	State      connectivity.State
	PassedOver []PassedOver
}

// PassedOver is a priority that is not in use, and why.
type PassedOver struct {
	Priority int
	State    connectivity.State
	Why      string
}

// LeafStep is the leaf of an AGGREGATE that serves, and each leaf before it with
// why it was passed over.
type LeafStep struct {
	Leaf       string
	State      connectivity.State
	PassedOver []PassedOverLeaf
}

// PassedOverLeaf is a leaf that is not in use, and why.
type PassedOverLeaf struct {
	Leaf  string
	State connectivity.State
	Why   string
}

// LocalityStep is the weighted draw of a locality.
type LocalityStep struct {
	// Candidates are the localities in the draw: the READY ones, or all if every
	// one failed; without those of which the pick excludes every endpoint.
	Candidates []LocalityCandidate
	// Draw is the 64 random bits that chose; 0 for one candidate alone.
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
	// Rotation is how many endpoints take turns; Index is the place of the
	// chosen one.
	Rotation int
	Index    int
	// Excluded is the number of endpoints that were not chosen because the pick
	// excludes them: all of the rotation, for ring_hash those that it passed.
	Excluded int
	// InsteadOf is the excluded endpoint whose turn it was, if Endpoint was drawn
	// in its place; nil otherwise.
	InsteadOf *resource.Endpoint
	// Endpoint is the chosen one; nil where all are excluded.
	Endpoint *resource.Endpoint
	// Detail is what else the policy says; nil for nothing.
	Detail Detail
}

// Detail is what one policy adds to an [EndpointStep]. It is shown as JSON as well.
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

// Turn describes the choice of a policy whose endpoints take turns.
func (s EndpointStep) Turn() string {
	place := fmt.Sprintf("number %d of %d in rotation", s.Index, s.Rotation)
	if s.InsteadOf != nil {
		return fmt.Sprintf("%s drew %s instead of %s, whose turn it was: %s", s.Policy, s.Endpoint.Addresses[0], s.InsteadOf.Addresses[0], place)
	}
	return fmt.Sprintf("%s took %s, %s", s.Policy, s.Endpoint.Addresses[0], place)
}

// FailureStep is a picker that answers with an error: no connection is READY,
// or the config cannot be used.
type FailureStep struct {
	Err error
}

// QueueStep is a picker that has no answer yet: the pick waits for the next.
type QueueStep struct{}

// OpaqueStep is the decision of a policy that does not explain itself.
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
