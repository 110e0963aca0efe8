package resource

// Locality names where endpoints run (envoy.config.core.v3.Locality). The
// empty locality is a valid one.
type Locality struct {
	Region  string
	Zone    string
	SubZone string
}

// String returns "region/zone/sub_zone".
func (l Locality) String() string {
	return l.Region + "/" + l.Zone + "/" + l.SubZone
}

// Health is an endpoint's health as its source tells it
// (envoy.config.core.v3.HealthStatus).
type Health uint8

// The health states of EDS, with the numbers of the proto enum.
const (
	HealthUnknown   Health = 0
	HealthHealthy   Health = 1
	HealthUnhealthy Health = 2
	HealthDraining  Health = 3
	HealthTimeout   Health = 4
	HealthDegraded  Health = 5
)

// HealthUnrecognized stands for every number that the enum did not have when lbd
// was built. Such an endpoint is not usable.
const HealthUnrecognized Health = 255

// String returns the proto enum's name, or "UNRECOGNIZED" for a number without
// one.
func (h Health) String() string {
	switch h {
	case HealthUnknown:
		return "UNKNOWN"
	case HealthHealthy:
		return "HEALTHY"
	case HealthUnhealthy:
		return "UNHEALTHY"
	case HealthDraining:
		return "DRAINING"
	case HealthTimeout:
		return "TIMEOUT"
	case HealthDegraded:
		return "DEGRADED"
	default:
		return "UNRECOGNIZED"
	}
}

// Endpoint is one upstream (envoy.config.endpoint.v3.LbEndpoint). A value is
// never changed after decoding, and [Assignment.Reuse] keeps the pointer of an
// endpoint that an update leaves as it was: equal pointers mean equal
// endpoints.
type Endpoint struct {
	// Addresses holds at least one "host:port"; the first is the endpoint's
	// own, the others its additional_addresses, in order.
	Addresses []string
	Hostname  string
	Health    Health
	// Weight is load_balancing_weight within the locality, at least 1; an
	// absent one is 1.
	Weight uint32
	// HashKey is metadata envoy.lb hash_key (gRFC A76), or empty.
	HashKey string
	// Locality is the locality that holds the endpoint.
	Locality Locality
}

// Usable reports whether picks may reach the endpoint: gRPC takes HEALTHY and
// UNKNOWN only.
func (e *Endpoint) Usable() bool {
	return e.Health == HealthHealthy || e.Health == HealthUnknown
}

// MaxLocalities is the most localities of an Assignment that is written by hand.
const MaxLocalities = 10_000

// LocalityEndpoints is one locality of one priority
// (envoy.config.endpoint.v3.LocalityLbEndpoints).
type LocalityEndpoints struct {
	ID       Locality
	Priority uint32
	// Weight is load_balancing_weight within the priority, at least 1.
	Weight    uint32
	Endpoints []*Endpoint
}

// Drop is one drop_overloads category of an assignment's policy.
type Drop struct {
	Category string
	// PerMillion is the chance of a drop in parts per million, 0 to 1,000,000.
	PerMillion uint64
}

// Assignment is a ClusterLoadAssignment (EDS).
type Assignment struct {
	// Name is cluster_name: the cluster's, or its EDS service name.
	Name  string
	Drops []Drop
	// Localities bear a weight, all of them; no priority is left out from 0
	// to the highest. None at all is valid, and means no endpoint.
	Localities []*LocalityEndpoints
}

// Usable counts the endpoints that picks may reach.
func (a *Assignment) Usable() int {
	n := 0
	for _, l := range a.Localities {
		for _, e := range l.Endpoints {
			if e.Usable() {
				n++
			}
		}
	}
	return n
}
