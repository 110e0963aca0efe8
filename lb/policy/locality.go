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

	values  []*resource.Endpoint // those that Endpoints were made of
	share   uint32               // of its priority's weights
	weights uint64               // the sum of all its endpoints', of the unusable ones too
}

// NewLocality keeps of l the usable endpoints. It is alone in its priority.
func NewLocality(l *resource.LocalityEndpoints) *Locality { return new(Locality).Update(l) }

// Update is NewLocality of what has become of l: endpoints that are the same
// values as before are not made anew.
func (l *Locality) Update(to *resource.LocalityEndpoints) *Locality {
	out := &Locality{ID: to.ID, Weight: to.Weight, values: make([]*resource.Endpoint, 0, len(to.Endpoints)), share: whole}
	for _, e := range to.Endpoints {
		out.weights += uint64(e.Weight)
		if e.Usable() {
			out.values = append(out.values, e)
		}
	}
	out.Endpoints = l.endpoints(out.values)
	return out
}

// endpoints makes grpc's endpoints of values. Few differ from l's, and mostly in
// one place: only what is between the first and the last of them is looked up.
func (l *Locality) endpoints(values []*resource.Endpoint) []resolver.Endpoint {
	n := min(len(values), len(l.values))
	head := 0
	for head < n && values[head] == l.values[head] {
		head++
	}
	if head == len(values) && head == len(l.values) {
		return l.Endpoints
	}
	tail := 0
	for tail < n-head && values[len(values)-1-tail] == l.values[len(l.values)-1-tail] {
		tail++
	}
	moved := make(map[*resource.Endpoint]int, len(l.values)-tail-head)
	for i := head; i < len(l.values)-tail; i++ {
		moved[l.values[i]] = i
	}
	out := make([]resolver.Endpoint, len(values))
	copy(out, l.Endpoints[:head])
	copy(out[len(out)-tail:], l.Endpoints[len(l.values)-tail:])
	for i := head; i < len(out)-tail; i++ {
		if was, ok := moved[values[i]]; ok {
			out[i] = l.Endpoints[was]
		} else {
			out[i] = ResolverEndpoint(values[i])
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
