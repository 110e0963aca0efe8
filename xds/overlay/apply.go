package overlay

import (
	"math"
	"slices"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Apply returns what overlays make of a Cluster and its Assignment, which may be nil. The overlays
// are sorted, the oldest first. What they do not change is shared.
func Apply(list []*resource.Overlay, c *resource.Cluster, a *resource.Assignment) (*resource.Cluster, *resource.Assignment) {
	list = effective(list)
	return applyToCluster(list, c), applyToAssignment(list, a)
}

func applyToCluster(list []*resource.Overlay, c *resource.Cluster) *resource.Cluster {
	if c == nil || c.Type == resource.ClusterAggregate {
		return c
	}
	out := *c
	for _, o := range list {
		switch o.Kind { //nolint:exhaustive // the others are about the assignment
		case resource.OverlayMaxRequests:
			out.MaxRequests, out.MaxRequestsConfigured = o.MaxRequests, true
		case resource.OverlayHoldEjections:
			out.OutlierDetection = nil
		}
	}
	if out.MaxRequests == c.MaxRequests && out.MaxRequestsConfigured == c.MaxRequestsConfigured && out.OutlierDetection == c.OutlierDetection {
		return c
	}
	return &out
}

func applyToAssignment(list []*resource.Overlay, a *resource.Assignment) *resource.Assignment {
	if a == nil {
		return nil
	}
	out := &resource.Assignment{Name: a.Name, Drops: drops(list, a.Drops), Localities: slices.Clone(a.Localities), LeftOut: a.LeftOut}
	for i, l := range out.Localities {
		out.Localities[i] = scaleEndpoints(list, masked(list, l))
	}
	scaleLocalities(list, out.Localities)
	return out
}

// drops returns the drops of an assignment under overlays.
func drops(list []*resource.Overlay, of []resource.Drop) []resource.Drop {
	for _, o := range list {
		switch {
		case o.Kind != resource.OverlayDrop:
		case o.Category != "":
			of = slices.DeleteFunc(slices.Clone(of), func(d resource.Drop) bool { return d.Category == o.Category })
			if o.PerMillion > 0 {
				of = append(of, resource.Drop{Category: o.Category, PerMillion: o.PerMillion})
			}
		case o.PerMillion > 0:
			of = []resource.Drop{{Category: AllCategories, PerMillion: o.PerMillion}}
		default:
			of = nil
		}
	}
	return of
}

// AllCategories is the category of a drop overlay that replaces all categories.
const AllCategories = "overlay"

// masked returns a locality without the health of the endpoints that overlays take out of use.
func masked(list []*resource.Overlay, l *resource.LocalityEndpoints) *resource.LocalityEndpoints {
	var endpoints []*resource.Endpoint // a copy, once there is a difference
	for i, e := range l.Endpoints {
		by := masking(list, l.Priority, e)
		if by == nil || !e.Usable() {
			continue
		}
		if endpoints == nil {
			endpoints = slices.Clone(l.Endpoints)
		}
		changed := *e
		changed.Health = resource.HealthDraining
		if by.Kind == resource.OverlayDisable {
			changed.Health = resource.HealthUnhealthy
		}
		endpoints[i] = &changed
	}
	if endpoints == nil {
		return l
	}
	return &resource.LocalityEndpoints{ID: l.ID, Priority: l.Priority, Weight: l.Weight, Endpoints: endpoints}
}

// Masking returns a function that returns the overlay that takes an endpoint of a priority out of use, or
// nil. It allocates nothing.
func Masking(list []*resource.Overlay) func(priority uint32, e *resource.Endpoint) *resource.Overlay {
	list = effective(list)
	return func(priority uint32, e *resource.Endpoint) *resource.Overlay { return masking(list, priority, e) }
}

// masking returns the overlay that takes an endpoint out of use, of those that are in effect. The newest of
// them counts.
func masking(list []*resource.Overlay, priority uint32, e *resource.Endpoint) *resource.Overlay {
	for _, o := range slices.Backward(list) {
		if masks(o, priority, e) {
			return o
		}
	}
	return nil
}

func masks(o *resource.Overlay, priority uint32, e *resource.Endpoint) bool {
	switch o.Kind { //nolint:exhaustive // the others take nothing out of use
	case resource.OverlayDrain, resource.OverlayDisable:
		return o.Names(e)
	case resource.OverlayWeight:
		return o.Factor == 0 && o.Names(e)
	case resource.OverlayForcePriority:
		return priority < o.Priority
	case resource.OverlayForbidPriority:
		return priority == o.Priority
	}
	return false
}

// precision is what weights are multiplied by before they are scaled, if their sums stay valid: a
// factor of 0.5 would be lost on a weight of 1.
const precision = 1000

// scaleLocalities scales the weights of localities. Each priority has its own.
func scaleLocalities(list []*resource.Overlay, localities []*resource.LocalityEndpoints) {
	byPriority := map[uint32][]int{}
	for i, l := range localities {
		byPriority[l.Priority] = append(byPriority[l.Priority], i)
	}
	for _, at := range byPriority {
		weights := make([]uint32, len(at))
		factors := make([]float64, len(at))
		for i, k := range at {
			weights[i], factors[i] = localities[k].Weight, factor(list, func(o *resource.Overlay) bool {
				return o.Locality != nil && o.Locality.Matches(localities[k].ID)
			})
		}
		if !scale(weights, factors) {
			continue
		}
		for i, k := range at {
			l := *localities[k]
			l.Weight = weights[i]
			localities[k] = &l
		}
	}
}

// scaleEndpoints returns a locality with the scaled weights of its endpoints.
func scaleEndpoints(list []*resource.Overlay, l *resource.LocalityEndpoints) *resource.LocalityEndpoints {
	weights := make([]uint32, len(l.Endpoints))
	factors := make([]float64, len(l.Endpoints))
	for i, e := range l.Endpoints {
		weights[i], factors[i] = e.Weight, factor(list, func(o *resource.Overlay) bool { return o.Locality == nil && o.Names(e) })
	}
	if !scale(weights, factors) {
		return l
	}
	out := *l
	out.Endpoints = make([]*resource.Endpoint, len(l.Endpoints))
	for i, e := range l.Endpoints {
		changed := *e
		changed.Weight = weights[i]
		out.Endpoints[i] = &changed
	}
	return &out
}

// factor returns the product of the factors of overlays that match; 1 for one of 0, which takes
// endpoints out of use and leaves their weight.
func factor(list []*resource.Overlay, matches func(*resource.Overlay) bool) float64 {
	product := 1.0
	for _, o := range list {
		if o.Kind == resource.OverlayWeight && o.Factor != 0 && matches(o) {
			product *= o.Factor
		}
	}
	return product
}

// scale multiplies weights by factors, and by a common factor that keeps what rounding would lose.
// It reports false, and changes nothing, if all factors are 1. The sum stays below 2^32, as the
// sum of weights must.
func scale(weights []uint32, factors []float64) bool {
	sum := 0.0
	same := true
	for i, w := range weights {
		sum += float64(w) * factors[i]
		same = same && factors[i] == 1
	}
	if same {
		return false
	}
	by := min(precision, (math.MaxUint32-float64(len(weights)))/max(sum, 1))
	if by > 1 {
		by = math.Floor(by)
	}
	for i, w := range weights {
		weights[i] = max(1, uint32(float64(w)*factors[i]*by))
	}
	return true
}
