package resource

import "time"

// Locality names where endpoints run (envoy.config.core.v3.Locality). The
// empty locality is a valid one.
type Locality struct {
	Region  string
	Zone    string
	SubZone string
}

// String returns "region/zone/sub_zone".
func (l Locality) String() string { return l.Region + "/" + l.Zone + "/" + l.SubZone }

// Health is an endpoint's health_status (envoy.config.core.v3.HealthStatus).
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

// HealthUnrecognized is any number that is not in lbd's version of the enum. Such an
// endpoint is not usable.
const HealthUnrecognized Health = 255

// String returns the proto enum's name, or "UNRECOGNIZED" for a number without
// one.
func (h Health) String() string {
	if names := [...]string{"UNKNOWN", "HEALTHY", "UNHEALTHY", "DRAINING", "TIMEOUT", "DEGRADED"}; int(h) < len(names) {
		return names[h]
	}
	return "UNRECOGNIZED"
}

// Endpoint is one upstream (envoy.config.endpoint.v3.LbEndpoint). It is immutable, and
// [Assignment.Reuse] keeps the pointer of an endpoint that an update does not change: equal
// pointers mean equal endpoints.
type Endpoint struct {
	// Addresses has at least one "host:port"; the first is the endpoint's own, the others
	// are its additional_addresses, in order.
	Addresses []string
	Hostname  string
	Health    Health
	Weight    uint32 // load_balancing_weight within the locality, by default 1
	HashKey   string // metadata envoy.lb hash_key (gRFC A76), or empty
	Locality  Locality
	// TTL is metadata lbd ttl of a resource that is written by hand: a pushed endpoint is
	// removed unless it is renewed. 0 is an endpoint that stays.
	TTL time.Duration
}

// Usable reports whether picks may use the endpoint: as in gRPC, if it is HEALTHY or
// UNKNOWN.
func (e *Endpoint) Usable() bool {
	return e.Health == HealthHealthy || e.Health == HealthUnknown
}

// MaxLocalities is the most localities of an Assignment that is written by hand.
const MaxLocalities = 10_000

// LocalityEndpoints is one locality of one priority
// (envoy.config.endpoint.v3.LocalityLbEndpoints).
type LocalityEndpoints struct {
	ID        Locality
	Priority  uint32
	Weight    uint32 // load_balancing_weight within the priority, at least 1
	Endpoints []*Endpoint
}

// Usable counts the endpoints that picks may use.
func (l *LocalityEndpoints) Usable() int {
	n := 0
	for _, e := range l.Endpoints {
		if e.Usable() {
			n++
		}
	}
	return n
}

// Drop is one drop_overloads category of an assignment's policy.
type Drop struct {
	Category   string
	PerMillion uint64 // the probability of a drop in parts per million, 0 to 1,000,000
}

// Assignment is a ClusterLoadAssignment (EDS).
type Assignment struct {
	Name  string // cluster_name: the cluster's, or its EDS service name
	Drops []Drop
	// Localities all have a weight; their priorities have no gap from 0 to the highest.
	// None is valid, and means no endpoint.
	Localities []*LocalityEndpoints
	// LeftOut is how many localities are not in Localities, because their weight is 0 or absent.
	LeftOut int
}

// Usable counts the endpoints that picks may use: none of a nil Assignment.
func (a *Assignment) Usable() (n int) {
	if a == nil {
		return 0
	}
	for _, l := range a.Localities {
		n += l.Usable()
	}
	return n
}
