package policy_test

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// half of the whole, in the parts that weights are reckoned in.
const half = 1 << 30

func TestWeights(t *testing.T) {
	place := func(zone string, weight uint32, weights ...uint32) *resource.LocalityEndpoints {
		l := &resource.LocalityEndpoints{ID: resource.Locality{Zone: zone}, Weight: weight}
		for _, w := range weights {
			l.Endpoints = append(l.Endpoints, &resource.Endpoint{Addresses: []string{zone}, Weight: w, Locality: l.ID})
		}
		return l
	}
	unusable := place("a", 1, 1, 1)
	unusable.Endpoints[0].Health = resource.HealthDraining
	tests := []struct {
		name   string
		place  *resource.LocalityEndpoints
		total  uint64 // 0 for a locality whose weight is not set
		weight uint32 // of the last endpoint
	}{
		{"alone", place("a", 7, 9), 7, 2 * half},
		{"alone, no weight set", place("a", 7, 9), 0, 2 * half},
		{"half of a locality", place("a", 7, 9, 9), 7, half},
		{"all of half a locality", place("a", 7, 9), 14, half},
		{"half of half a locality", place("a", 7, 9, 9), 14, half / 2},
		{"an unusable endpoint keeps its part", unusable, 1, half},
		{"rounded down, each part by itself", place("a", 1, 2, 1), 3, 238609293}, // 715827882 * 715827882 / 2^31
		{"never nothing", place("a", 1, math.MaxUint32-1, 1), math.MaxUint32, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := policy.NewLocality(tt.place)
			if tt.total > 0 {
				l = l.Among(tt.total)
			}
			child := policy.Child{Endpoints: l.Endpoints, Localities: []*policy.Locality{l}}
			last := tt.place.Endpoints[len(tt.place.Endpoints)-1]
			if got := policy.WeightsOf(child.State().ResolverState).Of(last); got != tt.weight {
				t.Errorf("weighs %d, want %d", got, tt.weight)
			}
		})
	}
}

// TestWeightsWithoutLocalities: what comes from elsewhere weighs what it says.
func TestWeightsWithoutLocalities(t *testing.T) {
	w := policy.WeightsOf(resolver.State{})
	if got := w.Of(&resource.Endpoint{Weight: 3}); got != 3 {
		t.Errorf("weighs %d, want 3", got)
	}
	if got := w.Of(&resource.Endpoint{}); got != 1 {
		t.Errorf("without weight it weighs %d, want 1", got)
	}
}

// TestAmong: a locality is another only where its share is.
func TestAmong(t *testing.T) {
	l := policy.NewLocality(&resource.LocalityEndpoints{Weight: 2})
	if l.Among(2) != l {
		t.Error("alone in its priority it is another")
	}
	if other := l.Among(4); other == l || other.Among(4) != other || other.Among(2) == other {
		t.Error("its share changes, and it does not; or the other way round")
	}
}

// TestLocalityKeepsEndpoints: whatever else changes, endpoints that are the same
// values are not made anew.
func TestLocalityKeepsEndpoints(t *testing.T) {
	values := make(map[rune]*resource.Endpoint)
	place := func(names string) *resource.LocalityEndpoints {
		l := &resource.LocalityEndpoints{ID: resource.Locality{Zone: "z"}, Weight: 1}
		for _, name := range names {
			if values[name] == nil {
				values[name] = &resource.Endpoint{Addresses: []string{string(name)}, Weight: 1}
				if name == '-' {
					values[name].Health = resource.HealthDraining
				}
			}
			l.Endpoints = append(l.Endpoints, values[name])
		}
		return l
	}
	for _, tt := range []struct{ name, from, to, want string }{
		{"nothing changed", "abc", "abc", "abc"},
		{"one that is not usable", "abc", "ab-c", "abc"},
		{"the first is another", "abcd", "xbcd", "xbcd"},
		{"the last is another", "abcd", "abcx", "abcx"},
		{"one between is another", "abcd", "axcd", "axcd"},
		{"one more at the head", "abc", "xabc", "xabc"},
		{"one more between", "abc", "abxc", "abxc"},
		{"one more at the end", "abc", "abcx", "abcx"},
		{"one less at the head", "abc", "bc", "bc"},
		{"one less between", "abc", "ac", "ac"},
		{"one less at the end", "abc", "ab", "ab"},
		{"several places", "abcdefg", "xbydezg", "xbydezg"},
		{"another order", "abcd", "dbca", "dbca"},
		{"all are others", "abc", "xyz", "xyz"},
		{"none left", "abc", "", ""},
		{"the first there are", "", "abc", "abc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := policy.NewLocality(place(tt.from))
			after := before.Update(place(tt.to))
			was := make(map[*resource.Endpoint]resolver.Endpoint)
			for _, e := range before.Endpoints {
				was[policy.EndpointOf(e)] = e
			}
			var got strings.Builder
			for _, e := range after.Endpoints {
				value := policy.EndpointOf(e)
				got.WriteString(value.Addresses[0])
				if len(e.Addresses) != 1 || e.Addresses[0].Addr != value.Addresses[0] {
					t.Errorf("%s has the addresses %v", value.Addresses[0], e.Addresses)
				}
				if old, ok := was[value]; ok && old.Attributes != e.Attributes {
					t.Errorf("%s was made anew", value.Addresses[0])
				}
			}
			if got.String() != tt.want {
				t.Errorf("endpoints %s, want %s", got.String(), tt.want)
			}
			if got := policy.NewLocality(place(tt.to)); after.ID != got.ID || after.Weight != got.Weight {
				t.Errorf("locality %+v, want %+v", after, got)
			}
		})
	}
}
