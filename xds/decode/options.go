package decode

import (
	"github.com/lbd-dev/lbd/xds/resource"
)

// Origin is who wrote a resource. It selects the rules.
type Origin uint8

const (
	// ByHand is for resources that are pushed over HTTP or read from a file. They may
	// leave out what can be inferred, and are rejected for addresses that can never
	// connect and for fields without the effect that their author expects.
	ByHand Origin = iota
	// FromServer is for resources of a management server: exactly gRPC's rules.
	FromServer
)

// Format is the encoding of a resource.
type Format uint8

const (
	// FormatJSON is proto3 JSON; field names in snake_case or lowerCamelCase.
	FormatJSON Format = iota
	// FormatYAML is proto3 JSON written as one YAML document.
	FormatYAML
	// FormatProtobuf is binary protobuf.
	FormatProtobuf
	// FormatText is a list of endpoints, one in each line: of One, and of All with Options.Bare.
	FormatText
)

// String returns "JSON", "YAML", "protobuf" or "text".
func (f Format) String() string { return [...]string{"JSON", "YAML", "protobuf", "text"}[f] }

// Options select the rules and the format.
type Options struct {
	Origin Origin
	Format Format
	// Lenient accepts unknown fields with a warning. Without it a resource in JSON or
	// YAML with one is rejected. Unknown fields of protobuf, and of a management
	// server, are always accepted.
	Lenient bool
	// Stored is true for a resource that was accepted earlier, perhaps by an older lbd or
	// with another bootstrap: rules that it did not break then only cause a warning.
	Stored bool
	// Places fills in Line and Column of warnings and notes, for which the body is
	// read once more. Those of problems are always filled in.
	Places bool
	// Name is, for ByHand, the name that the resource must have, or gets if it has none.
	// Empty means no expectation. All uses it only for a ClusterLoadAssignment or a
	// Cluster without an envelope (Bare) that has no name.
	Name string
	// Policies knows the load balancing policies and validates their configs. A list of
	// policies skips those that are not available, and is rejected if the config of the
	// first available one is invalid (gRFC A52). Nil means that no policy is available
	// by its gRPC name, and that configs are not validated.
	Policies Policies
	// Certificates describes the bootstrap's certificate providers, which a Cluster
	// may name. Nil means that there is no bootstrap.
	Certificates CertificateProviders
	// Fleet is true for a daemon that shares its store with others, and limits with limit_scope fleet.
	Fleet bool
	// Previous returns an earlier version of a resource, if there is one, that was decoded
	// with the same Origin. An Assignment shares with it what is equal, where that is easily
	// found. It may be nil.
	Previous func(resource.Key) resource.Item
	// Pause is called in long loops, about every 100 µs, where others may run. An error ends the decoding,
	// with a *StoppedError. It may be nil.
	Pause func() error
	// Bare lets All take a single resource without an envelope, or the list of the endpoints of a cluster.
	Bare bool

	reflective bool // use the reflective decoder only, for tests
}

// pauseEndpoints is the number of endpoints between two calls of Pause.
const pauseEndpoints = 256

// pause calls Pause, and panics with a *StoppedError, which rejectPanic returns.
func (o *Options) pause() {
	if o.Pause == nil {
		return
	}
	if err := o.Pause(); err != nil {
		panic(&StoppedError{err})
	}
}

// policy returns what is known of a policy, or nil.
func (o *Options) policy(name resource.PolicyName) *resource.PolicyTraits {
	if o.Policies == nil {
		return nil
	}
	return o.Policies(string(name))
}

// CertificateProviders reports whether the bootstrap has a certificate provider
// instance of a name, and if so whether it has roots (ca_certificate_file) and a
// client's certificate (certificate_file). It may be called from any goroutine.
type CertificateProviders func(instance string) (roots, identity, ok bool)

// Policies returns what is known of the policy of a gRPC name; nil if clusters cannot
// choose it. It may be called from any goroutine.
type Policies func(name string) *resource.PolicyTraits

// Decoded is one accepted resource.
type Decoded struct {
	// Item has the Key, the value and Raw: the resource as it was written, its name filled
	// in, as deterministic binary protobuf. Equal content gives equal bytes, whatever the
	// format, and decoding them again with the same Origin and Policies an equal value.
	resource.Item
	// Warnings are about what probably does not do what its author expects: unknown
	// fields, fields that lbd does not apply, values that it changes.
	Warnings []Problem
	// Notes are about absent fields of a resource that is written by hand which the
	// decoder filled in: its name, localities, weights.
	Notes []Problem
}

// ReservedName cannot name a resource that is written by hand: metrics use it for the
// clusters without series of their own.
const ReservedName = "_other"

// Limits of a resource that is written by hand. Those of a management server have no
// limits but gRPC's.
const (
	MaxNameBytes           = 512     // of a resource
	MaxEndpoints           = 100_000 // of an Assignment
	MaxAdditionalAddresses = 16      // of an endpoint
	MaxHostnameBytes       = 255     // of an endpoint
	MaxLocalityBytes       = 256     // of a region, zone or sub_zone
	MaxDrops               = 100     // categories of an Assignment
	MaxCategoryBytes       = 256     // of the name of a drop category
	MaxVirtualHosts        = 10_000  // of a RouteConfiguration
	MaxDomains             = 100_000 // of all virtual hosts of a RouteConfiguration
	MaxRoutes              = 100_000 // of all virtual hosts of a RouteConfiguration
	MaxHeaderMatchers      = 100     // of a route
	MaxWeightedClusters    = 1000    // of a route
	MaxHashPolicies        = 100     // of a route
	MaxRegexBytes          = 4096    // of a regular expression
	// MaxRegexInstructions limits the compiled regular expressions of a resource, all
	// together: a letter is one instruction, and a{1000} a thousand.
	MaxRegexInstructions = 1 << 20
	MaxResources         = 100_000 // of a bundle
	// MaxJSONEntries limits the number of , [ and { in a body as JSON, strings aside:
	// about the number of its values. An endpoint with a hostname, health and two
	// keys of metadata has 16; one key more is one more. A bundle as a whole may
	// have twice as many.
	MaxJSONEntries = 1 << 21
	// MaxProtobufEntries limits the fields of a body as protobuf, in all its messages
	// and the contents of its Anys; also in the Raw of a body in another format. Such an
	// endpoint has 24, and 4 for one key of metadata more. A bundle as a whole may have
	// twice as many.
	MaxProtobufEntries = 1 << 22
	// MaxExtensionEntries limits the entries of one message of an extension that lbd does
	// not apply, as JSON or as protobuf: it takes four times as much memory as others.
	MaxExtensionEntries = 1 << 19
	// MaxProblems limits the problems, and the warnings, that are listed; one more then
	// has the number of the others.
	MaxProblems = 100
)
