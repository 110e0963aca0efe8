package service

import "github.com/lbd-dev/lbd/xds/resource"

// Format is how a resource is written.
type Format = resource.Format

// The formats of resources.
const (
	JSON     = resource.FormatJSON
	YAML     = resource.FormatYAML
	Protobuf = resource.FormatProtobuf
)

// Kind tells the two resources of a cluster apart.
type Kind = resource.Type

// The kinds.
const (
	Endpoints Kind = resource.TypeAssignment
	Config    Kind = resource.TypeCluster
)

// Precondition guards a change against the changes of others.
type Precondition struct {
	// IfMatch are content hashes, one of which the resource must have; nil
	// asks nothing. "*" asks only that it exists.
	IfMatch []string
	// IfNoneMatch asks that the resource does not exist.
	IfNoneMatch bool
}

// PushRequest brings one resource of a cluster.
type PushRequest struct {
	Kind    Kind
	Cluster string
	Body    []byte
	Format  Format
	// Strict makes unknown fields errors.
	Strict bool
	// DryRun validates and tells what would change, and changes nothing.
	DryRun bool
	// AllowEmpty lets the push leave the cluster without a usable endpoint.
	AllowEmpty   bool
	Precondition Precondition
	// From says who pushes, for events.
	From string
}

// DeleteRequest takes one resource of a cluster away.
type DeleteRequest struct {
	Kind         Kind
	Cluster      string
	DryRun       bool
	Precondition Precondition
	From         string
}

// PushResult tells what a push or a deletion did.
type PushResult struct {
	// New is true where the resource did not exist.
	New        bool
	Generation int64
	// Hash is the content's; empty after a deletion.
	Hash     string
	Changes  []Change
	Warnings []Problem
}

// Change is what happened to one resource.
type Change struct {
	Resource string `json:"resource"` // "ClusterLoadAssignment/orders"
	Change   string `json:"change" enums:"added,modified,removed"`
}

// Stored is a pushed resource.
type Stored struct {
	Body []byte // in the format asked for
	Hash string
}
