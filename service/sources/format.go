package sources

import (
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Format is how a resource is written.
type Format = decode.Format

// The formats of resources.
const (
	JSON     = decode.FormatJSON
	YAML     = decode.FormatYAML
	Protobuf = decode.FormatProtobuf
)

// Kind is the type of one of the two resources of a cluster.
type Kind = resource.Type

// The kinds.
const (
	Endpoints Kind = resource.TypeAssignment
	Config    Kind = resource.TypeCluster
)
