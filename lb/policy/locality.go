package policy

import (
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Locality is one locality with the endpoints that picks may reach. An update
// that leaves it as it was, and its share, brings the same pointer.
type Locality struct {
	ID        resource.Locality
	Weight    uint32
	Endpoints []resolver.Endpoint

	share   uint32 // of its priority's weights
	weights uint64 // the sum of all its endpoints', of the unusable ones too
}

// NewLocality keeps of l the usable endpoints. It is alone in its priority.
func NewLocality(l *resource.LocalityEndpoints) *Locality {
	out := &Locality{
		ID: l.ID, Weight: l.Weight, Endpoints: make([]resolver.Endpoint, 0, len(l.Endpoints)), share: whole,
	}
	for _, e := range l.Endpoints {
		out.weights += uint64(e.Weight)
		if e.Usable() {
			out.Endpoints = append(out.Endpoints, ResolverEndpoint(e))
		}
	}
	return out
}

// Among returns l as one of the localities of a priority whose weights sum up to
// total.
func (l *Locality) Among(total uint64) *Locality {
	share := fraction(uint64(l.Weight), total)
	if share == l.share {
		return l
	}
	other := *l
	other.share = share
	return &other
}

// whole is 1 in the fixed-point numbers in which gRPC reckons weights: 31 bits
// are behind the point (gRFC A113).
const whole = 1 << 31

// fraction is of / total, rounded down; whole where there is nothing to divide.
func fraction(of, total uint64) uint32 {
	if total == 0 {
		return whole
	}
	return uint32(of * whole / total)
}

// weight is which part of its priority's requests an endpoint of l is to get, in
// parts of whole, at least 1. The roundings are gRPC's: a ring shows them.
func (l *Locality) weight(e *resource.Endpoint) uint32 {
	return max(1, uint32(uint64(fraction(uint64(e.Weight), l.weights))*uint64(l.share)/whole))
}

type localitiesKey struct{}

// Weights are endpoints' weights across the localities of a priority.
type Weights map[resource.Locality]*Locality

// WeightsOf returns the weights of s's endpoints, where it is a [Child]'s part
// that has its localities.
func WeightsOf(s resolver.State) Weights {
	localities, _ := s.Attributes.Value(localitiesKey{}).([]*Locality)
	w := make(Weights, len(localities))
	for _, l := range localities {
		w[l.ID] = l
	}
	return w
}

// Of is the weight of one of the endpoints, at least 1: gRPC's product of the
// locality's and the endpoint's own, each as its part of the whole (gRFC A113).
// Of an endpoint whose locality is not known it is its own.
func (w Weights) Of(e *resource.Endpoint) uint32 {
	if l := w[e.Locality]; l != nil {
		return l.weight(e)
	}
	return max(1, e.Weight)
}
