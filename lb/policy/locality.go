package policy

import (
	"github.com/lbd-dev/lbd/xds/resource"
)

// Locality is one locality with its usable endpoints. An update that does not change
// it or its share returns the same pointer.
type Locality struct {
	ID        resource.Locality
	Weight    uint32
	Endpoints []*resource.Endpoint

	share   uint32 // of its priority's weights
	weights uint64 // the sum of all its endpoints', of the unusable ones too
}

// NewLocality returns the locality of l, alone in its priority.
func NewLocality(l *resource.LocalityEndpoints) *Locality {
	out := &Locality{ID: l.ID, Weight: l.Weight, share: whole}
	usable := 0
	for _, e := range l.Endpoints {
		out.weights += uint64(e.Weight)
		if e.Usable() {
			usable++
		}
	}
	if usable == len(l.Endpoints) {
		out.Endpoints = l.Endpoints
		return out
	}
	out.Endpoints = make([]*resource.Endpoint, 0, usable)
	for _, e := range l.Endpoints {
		if e.Usable() {
			out.Endpoints = append(out.Endpoints, e)
		}
	}
	return out
}

// Among returns l as part of a priority with this sum of weights.
func (l *Locality) Among(total uint64) *Locality {
	share := fraction(uint64(l.Weight), total)
	if share == l.share {
		return l
	}
	other := *l
	other.share = share
	return &other
}

// whole is 1 in the fixed-point numbers of gRPC's weights, with 31 fractional bits
// (gRFC A113).
const whole = 1 << 31

// fraction returns of / total, rounded down; whole if total is 0.
func fraction(of, total uint64) uint32 {
	if total == 0 {
		return whole
	}
	return uint32(of * whole / total)
}

// weight returns e's part of its priority's requests, in units of 1/whole, at least 1.
// It rounds as gRPC does: rings depend on it.
func (l *Locality) weight(e *resource.Endpoint) uint32 {
	return max(1, uint32(uint64(fraction(uint64(e.Weight), l.weights))*uint64(l.share)/whole))
}

// Weights are those of endpoints across the localities of a priority.
type Weights map[resource.Locality]*Locality

// WeightsOf returns the weights for the endpoints of these localities.
func WeightsOf(localities []*Locality) Weights {
	w := make(Weights, len(localities))
	for _, l := range localities {
		w[l.ID] = l
	}
	return w
}

// Of returns the weight of an endpoint, at least 1: gRPC's product of the locality's
// and the endpoint's own share (gRFC A113), or the endpoint's own weight if the
// locality is unknown.
func (w Weights) Of(e *resource.Endpoint) uint32 {
	if l := w[e.Locality]; l != nil {
		return l.weight(e)
	}
	return max(1, e.Weight)
}
