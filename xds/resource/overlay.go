package resource

import (
	"cmp"
	"time"
)

// OverlayKind is what an [Overlay] changes.
type OverlayKind string

// The kinds of overlays.
const (
	// OverlayDrain gives endpoints the health DRAINING: they get no new picks.
	OverlayDrain OverlayKind = "drain"
	// OverlayDisable gives endpoints the health UNHEALTHY.
	OverlayDisable OverlayKind = "disable"
	// OverlayWeight multiplies the weight of an endpoint or of a locality.
	OverlayWeight OverlayKind = "weight"
	// OverlayForcePriority takes the priorities before one out of use.
	OverlayForcePriority OverlayKind = "force_priority"
	// OverlayForbidPriority takes one priority out of use.
	OverlayForbidPriority OverlayKind = "forbid_priority"
	// OverlayDrop replaces the rate of one drop category, or of all.
	OverlayDrop OverlayKind = "drop"
	// OverlayMaxRequests replaces the limit of the circuit breaker.
	OverlayMaxRequests OverlayKind = "max_requests"
	// OverlayHoldEjections stops outlier detection: it ejects no endpoint, and those that are ejected
	// return.
	OverlayHoldEjections OverlayKind = "hold_ejections"
)

// OverlayKinds are all kinds of overlays.
var OverlayKinds = []OverlayKind{
	OverlayDrain, OverlayDisable, OverlayWeight, OverlayForcePriority, OverlayForbidPriority, OverlayDrop, OverlayMaxRequests,
	OverlayHoldEjections,
}

// Overlay changes what the sources of a cluster say, until it is removed or expires. It is
// immutable.
type Overlay struct {
	// Cluster and ID name the overlay.
	Cluster string `json:"-"`
	ID      string `json:"-"`

	Kind OverlayKind `json:"kind"`
	// Endpoint is an address or a hostname, of drain, disable and weight.
	Endpoint string `json:"endpoint,omitempty"`
	// Locality is that of drain, disable and weight without Endpoint.
	Locality *LocalityPattern `json:"locality,omitempty"`
	// Factor is that of weight, 0 to 10. With 0, the endpoints get no picks.
	Factor float64 `json:"factor,omitempty"`
	// Priority is that of force_priority and forbid_priority.
	Priority uint32 `json:"priority,omitempty"`
	// Category is that of drop; empty for all categories together.
	Category string `json:"category,omitempty"`
	// PerMillion is the rate of drop.
	PerMillion uint64 `json:"per_million,omitempty"`
	// MaxRequests is that of max_requests.
	MaxRequests uint32 `json:"max_requests,omitempty"`

	// Reason is why there is the overlay, and Author who put it.
	Reason  string    `json:"reason,omitempty"`
	Author  string    `json:"author,omitempty"`
	Created time.Time `json:"created"`
	// Expires is when the overlay ends by itself; zero if it does not.
	Expires time.Time `json:"expires,omitzero"`
}

// LocalityPattern names localities. An empty field matches any.
type LocalityPattern struct {
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
}

// Matches reports whether the pattern names a locality.
func (p *LocalityPattern) Matches(l Locality) bool {
	return (p.Region == "" || p.Region == l.Region) && (p.Zone == "" || p.Zone == l.Zone) && (p.SubZone == "" || p.SubZone == l.SubZone)
}

// String returns "region/zone/sub_zone", with * for any.
func (p *LocalityPattern) String() string {
	return cmp.Or(p.Region, "*") + "/" + cmp.Or(p.Zone, "*") + "/" + cmp.Or(p.SubZone, "*")
}

// Names reports whether an overlay of an endpoint or a locality is about an endpoint.
func (o *Overlay) Names(e *Endpoint) bool {
	if o.Locality != nil {
		return o.Locality.Matches(e.Locality)
	}
	return o.Endpoint != "" && (o.Endpoint == e.Hostname || e.Has(o.Endpoint))
}

// Expired reports whether the overlay has ended by itself.
func (o *Overlay) Expired(now time.Time) bool { return !o.Expires.IsZero() && !now.Before(o.Expires) }

// Overlaid is what the sources of a cluster say, where overlays change it.
type Overlaid struct {
	// Overlays are those in effect, the oldest first.
	Overlays []*Overlay
	// Cluster and Assignment are those of the sources.
	Cluster    *Cluster
	Assignment *Assignment
}

// Of reports whether a Cluster and an Assignment are those of the sources.
func (o *Overlaid) Of(c *Cluster, a *Assignment) bool {
	return o != nil && o.Cluster == c && o.Assignment == a
}
