package decode

import (
	"encoding/json"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Origin tells who wrote a resource, and with it which rules judge it.
type Origin uint8

const (
	// ByHand is what is pushed over HTTP or read from a file. It meets
	// kindness where a person leaves out what can be told, and is refused for
	// addresses that can never connect and for what would silently do nothing.
	ByHand Origin = iota
	// FromServer is what a management server sends: gRPC's rules to the
	// letter.
	FromServer
)

// Format is how a resource is written.
type Format uint8

// The formats of resources.
const (
	// FormatJSON is proto3 JSON; field names in snake_case or lowerCamelCase.
	FormatJSON Format = iota
	// FormatYAML is proto3 JSON written as one YAML document.
	FormatYAML
	// FormatProtobuf is binary protobuf.
	FormatProtobuf
)

// String returns "JSON", "YAML" or "protobuf".
func (f Format) String() string {
	switch f {
	case FormatYAML:
		return "YAML"
	case FormatProtobuf:
		return "protobuf"
	default:
		return "JSON"
	}
}

// Options tell a decoder what it reads.
type Options struct {
	Origin Origin
	Format Format
	// Lenient accepts fields that no message has, with a warning. Without it a
	// resource in JSON or YAML that has one is refused. Unknown fields of protobuf,
	// and of what a management server sends, are never a reason to refuse.
	Lenient bool
	// Stored says that the resource was accepted earlier, perhaps by an older lbd:
	// rules that were added since then cause a warning instead of a refusal.
	Stored bool
	// Secured says of a Stored Cluster that its connections were secured by TLS: they do
	// not become plain because there is no bootstrap any more. Without it the Cluster may
	// be one that an older lbd accepted without a bootstrap, with plain connections.
	Secured bool
	// Places fills in Line and Column of warnings and notes, for which the body is
	// read once more. Those of problems are always filled in.
	Places bool
	// Name is, for ByHand, the name that the resource must bear, or takes if
	// it bears none. Empty means no expectation. All uses it only for a
	// ClusterLoadAssignment or a Cluster without an envelope (Bare) that has no name.
	Name string
	// Policies knows the load balancing policies and judges their configs. A list of
	// policies skips what is not available, and is rejected if the config of the first
	// one that is available is invalid (gRFC A52). Nil means that no policy is available
	// by its gRPC name, and that configs are not judged.
	Policies Policies
	// Certificates describes the bootstrap's certificate providers, which a Cluster
	// may name. Nil means that there is no bootstrap.
	Certificates CertificateProviders
	// Bare lets All take a single resource without an envelope.
	Bare bool
}

// CertificateProviders reports whether the bootstrap has a certificate provider
// instance of a name, and if so whether it has roots (ca_certificate_file) and a
// client's certificate (certificate_file). It may be called from any goroutine.
type CertificateProviders func(instance string) (roots, identity, ok bool)

// Policies reports whether clusters can choose the policy of a gRPC name, and returns
// what judges its config, or nil. Both may be called from any goroutine.
type Policies func(name string) (judge ConfigJudge, available bool)

// ConfigJudge judges a policy's JSON config, which has gRPC's service-config form. It
// returns the config as the policy applies it, and what it found.
type ConfigJudge = func(config json.RawMessage) (applied string, findings []resource.ConfigFinding)

// Decoded is one accepted resource.
type Decoded[V any] struct {
	Value V
	// Raw is the resource as it was written, its name filled in, as
	// deterministic binary protobuf: equal content gives equal bytes,
	// whatever the format. Decoding it again, with the same Origin and Policies,
	// gives an equal Value.
	Raw []byte
	// Warnings are what probably does not do what its author expects: unknown
	// fields, fields that lbd does not apply, values that it changes.
	Warnings []Problem
	// Notes are what the decoder filled in because it is absent in a resource that
	// is written by hand: its name, localities, weights.
	Notes []Problem
}

// ReservedName cannot name a resource that is written by hand: metrics count
// under it the clusters that have no series of their own.
const ReservedName = "_other"

// Limits of a resource that is written by hand. What a management server sends
// has none but gRPC's.
const (
	// MaxNameBytes is the longest name of a resource.
	MaxNameBytes = 512
	// MaxEndpoints is the most endpoints of an Assignment.
	MaxEndpoints = 100_000
	// MaxAdditionalAddresses is the most additional_addresses of an endpoint.
	MaxAdditionalAddresses = 16
	// MaxHostnameBytes is the longest hostname of an endpoint.
	MaxHostnameBytes = 255
	// MaxLocalityBytes is the longest region, zone or sub_zone of a locality.
	MaxLocalityBytes = 256
	// MaxDrops is the most drop categories of an Assignment.
	MaxDrops = 100
	// MaxCategoryBytes is the longest name of a drop category.
	MaxCategoryBytes = 256
	// MaxVirtualHosts is the most virtual hosts of a RouteConfiguration.
	MaxVirtualHosts = 10_000
	// MaxDomains is the most domains of a RouteConfiguration, those of all its
	// virtual hosts.
	MaxDomains = 100_000
	// MaxRoutes is the most routes of a RouteConfiguration, those of all its
	// virtual hosts.
	MaxRoutes = 100_000
	// MaxHeaderMatchers is the most headers that a route looks at.
	MaxHeaderMatchers = 100
	// MaxWeightedClusters is the most clusters of a route.
	MaxWeightedClusters = 1000
	// MaxHashPolicies is the most hash policies of a route.
	MaxHashPolicies = 100
	// MaxRegexBytes is the longest regular expression.
	MaxRegexBytes = 4096
	// MaxRegexInstructions is how large the regular expressions of a resource may
	// be once they are compiled, all together: a letter is one instruction, and
	// a{1000} a thousand.
	MaxRegexInstructions = 1 << 20
	// MaxResources is the most resources of a bundle.
	MaxResources = 100_000
	// MaxJSONEntries is the most of , [ and { in a body as JSON, strings aside:
	// about as many as it has values. An endpoint with a hostname, health and two
	// keys of metadata has 16; one key more is one more. A bundle as a whole may
	// have twice as many.
	MaxJSONEntries = 1 << 21
	// MaxProtobufEntries is the most fields that are written out in a body as
	// protobuf, in all its messages and what its Anys carry; also in the Raw
	// of what was read in another format. Such an endpoint has 24, and 4 for one
	// key of metadata more. A bundle as a whole may have twice as many.
	MaxProtobufEntries = 1 << 22
	// MaxProblems is how many problems, and how many warnings, are listed;
	// one more then tells how many were left out.
	MaxProblems = 100
)
