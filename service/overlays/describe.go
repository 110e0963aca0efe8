package overlays

import (
	"fmt"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Overlay is an overlay, and what it does now.
type Overlay struct {
	Cluster string               `json:"cluster" example:"orders"`
	ID      string               `json:"id" example:"deploy-7"`
	Kind    resource.OverlayKind `json:"kind" swaggertype:"string" enums:"drain,disable,weight,force_priority,forbid_priority,drop,max_requests,hold_ejections"`
	// Endpoint, Locality, Factor, Priority, Category, Percent and MaxRequests are as they were requested.
	Endpoint    string           `json:"endpoint,omitempty"`
	Locality    *LocalityPattern `json:"locality,omitempty"`
	Factor      *float64         `json:"factor,omitempty"`
	Priority    *uint32          `json:"priority,omitempty"`
	Category    string           `json:"category,omitempty"`
	Percent     *float64         `json:"percent,omitempty"`
	MaxRequests *uint32          `json:"max_requests,omitempty"`
	// Says is what the overlay does, in words.
	Says   string `json:"says" example:"drains endpoint 10.0.0.7:8080"`
	Reason string `json:"reason,omitempty"`
	// Author is the name of the identity that put the overlay, or its address.
	Author  string    `json:"author,omitempty"`
	Created time.Time `json:"created"`
	// Expires is when the overlay ends by itself; absent if it does not.
	Expires *time.Time `json:"expires,omitempty"`
	// SupersededBy is the newer overlay that contradicts this one, which has no effect then.
	SupersededBy string `json:"superseded_by,omitempty"`
	// Endpoints is how many endpoints of the cluster the overlay names now; absent for the kinds that name
	// none.
	Endpoints *int `json:"endpoints,omitempty"`
	// InFlight is how many leases of these endpoints this daemon holds, of drain and disable.
	InFlight *int64 `json:"in_flight,omitempty"`
	// ETag is for If-Match; absent in the state of a cluster.
	ETag string `json:"etag,omitempty"`
}

// Describe returns the states of the overlays of a cluster, the oldest first. cc is its config; nil if
// it is not known.
func Describe(list []*resource.Overlay, cc *resource.ClusterConfig) []Overlay {
	superseded := overlay.Superseded(list)
	out := make([]Overlay, len(list))
	for i, o := range list {
		s := Overlay{
			Cluster: o.Cluster, ID: o.ID, Kind: o.Kind, Endpoint: o.Endpoint, Locality: (*LocalityPattern)(o.Locality), Category: o.Category,
			Says: overlay.Describe(o), Reason: o.Reason, Author: o.Author, Created: o.Created,
		}
		switch o.Kind { //nolint:exhaustive // the others have no numbers
		case resource.OverlayWeight:
			s.Factor = &o.Factor
		case resource.OverlayForcePriority, resource.OverlayForbidPriority:
			s.Priority = &o.Priority
		case resource.OverlayDrop:
			s.Percent = new(float64(o.PerMillion) / 10_000)
		case resource.OverlayMaxRequests:
			s.MaxRequests = &o.MaxRequests
		}
		if !o.Expires.IsZero() {
			s.Expires = &o.Expires
		}
		if by := superseded[o]; by != nil {
			s.SupersededBy = by.ID
		}
		if names(o) {
			s.Endpoints = new(len(Endpoints(o, cc)))
		}
		out[i] = s
	}
	return out
}

// names reports whether an overlay is of endpoints.
func names(o *resource.Overlay) bool {
	return slices.Contains([]resource.OverlayKind{
		resource.OverlayDrain, resource.OverlayDisable, resource.OverlayWeight, resource.OverlayForcePriority, resource.OverlayForbidPriority,
	}, o.Kind)
}

// Drains reports whether an overlay has a progress: the requests in flight of its endpoints.
func Drains(o *resource.Overlay) bool {
	return o.Kind == resource.OverlayDrain || o.Kind == resource.OverlayDisable
}

// Endpoints returns the endpoints of a cluster, as its sources have it, that an overlay names.
func Endpoints(o *resource.Overlay, cc *resource.ClusterConfig) []*resource.Endpoint {
	if cc == nil {
		return nil
	}
	_, a := cc.Source()
	if a == nil {
		return nil
	}
	var out []*resource.Endpoint
	for _, l := range a.Localities {
		for _, e := range l.Endpoints {
			switch {
			case o.Kind == resource.OverlayForcePriority && l.Priority < o.Priority,
				o.Kind == resource.OverlayForbidPriority && l.Priority == o.Priority,
				o.Names(e):
				out = append(out, e)
			}
		}
	}
	return out
}

// NamesNone reports whether an overlay is of endpoints, and names none of those that a cluster has now.
func NamesNone(o *resource.Overlay, cc *resource.ClusterConfig) bool {
	return names(o) && len(Endpoints(o, cc)) == 0
}

// Warnings returns what may not have the effect that the author of an overlay expects. others are the
// overlays of the cluster without it.
func Warnings(o *resource.Overlay, others []*resource.Overlay, cc *resource.ClusterConfig) []string {
	var out []string
	if NamesNone(o, cc) {
		out = append(out, "it names no endpoint of the cluster now, and takes effect when one appears")
	}
	c, a := cc.Source()
	switch o.Kind { //nolint:exhaustive // the others always have an effect
	case resource.OverlayWeight:
		if o.Endpoint == "" || o.Factor == 0 || c == nil {
			break
		}
		name := c.Policy.Endpoint()
		if traits := lb.PolicyTraits(string(name)); traits != nil && traits.IgnoresWeights {
			out = append(out, fmt.Sprintf("the policy %s ignores the weights of endpoints: only a factor of 0 has an effect", name))
		}
	case resource.OverlayDrop:
		if a != nil && o.Category != "" && !slices.ContainsFunc(a.Drops, func(d resource.Drop) bool { return d.Category == o.Category }) {
			out = append(out, fmt.Sprintf("the cluster has no drop category %q: the overlay adds it", o.Category))
		}
	case resource.OverlayHoldEjections:
		if c != nil && c.OutlierDetection == nil {
			out = append(out, "the cluster has no outlier detection")
		}
	}
	all := append(slices.Clone(others), o)
	for older, newer := range overlay.Superseded(all) {
		if newer == o {
			out = append(out, fmt.Sprintf("it contradicts the overlay %s (%s), which has no effect while this one is there", older.ID, overlay.Describe(older)))
		}
	}
	slices.Sort(out)
	return out
}
