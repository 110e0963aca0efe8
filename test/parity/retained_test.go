package parity_test

import (
	"fmt"
	"strings"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

// retained has the leaves of an aggregate as both sides last used them: a leaf after the
// one in use gets no updates.
type retained []retainedLeaf

type retainedLeaf struct {
	accepted

	priority int // its own priority in use; -1 for none
}

// failsOver applies a step, and reports whether a leaf that is not needed fails over to
// its next priority, as lbd's leaves do.
func (r *retained) failsOver(leaves []accepted, up map[string]bool) bool {
	if *r == nil {
		*r = make(retained, len(leaves))
	}
	used, first, found := demandOf(leaves, up).priority, 0, false
	for i, l := range leaves {
		if was := (*r)[i]; first > used {
			found = found || demandOf([]accepted{was.accepted}, up).priority > was.priority
		} else {
			(*r)[i] = retainedLeaf{l, demandOf([]accepted{l}, up).priority}
		}
		first += max(1, len(sites(l.assignment)))
	}
	return found
}

func TestRetainedLeavesFailOver(t *testing.T) {
	// leaf has an endpoint in each of n priorities, from the given port on.
	leaf := func(port, n int) accepted {
		var localities []string
		for p := range n {
			localities = append(localities, fmt.Sprintf(`{"locality": {"zone": "z%d"}, "priority": %d, "load_balancing_weight": 1,
				"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "h", "port_value": %d}}}}]}`, port+p, p, port+p))
		}
		a := set(&endpointv3.ClusterLoadAssignment{}, `{"endpoints": [`+strings.Join(localities, ",")+`]}`)
		return accepted{assignment: a, policy: lbPolicies[0]}
	}
	a, b, empty := leaf(1, 1), leaf(2, 3), accepted{assignment: &endpointv3.ClusterLoadAssignment{}, policy: lbPolicies[0]}
	type step struct {
		leaves []accepted
		up     []int
		want   bool
	}
	for name, steps := range map[string][]step{
		"the first leaf fails over": {{[]accepted{b, a}, []int{2, 3}, false}, {[]accepted{b, a}, []int{3}, false}},
		"a leaf that was not used":  {{[]accepted{a, b}, []int{1, 2, 3}, false}, {[]accepted{a, b}, []int{1, 3}, false}},
		"a leaf in use":             {{[]accepted{a, b}, []int{2, 3}, false}, {[]accepted{a, b}, []int{3}, false}},
		"a retained leaf": {
			{[]accepted{a, b}, []int{2, 3}, false},
			{[]accepted{a, b}, []int{1, 2, 3}, false},
			{[]accepted{a, b}, []int{1, 3}, true},
		},
		"a retained leaf recovers, and fails again": {
			{[]accepted{a, b}, []int{3}, false},
			{[]accepted{a, b}, []int{1, 2, 3}, false},
			{[]accepted{a, b}, []int{1, 3}, false},
			{[]accepted{a, b}, []int{1, 4}, true},
		},
		"a retained leaf has failed before": {{[]accepted{a, b}, nil, false}, {[]accepted{a, b}, []int{1}, false}},
		"a retained leaf gets no update": {
			{[]accepted{a, b}, []int{2, 3}, false},
			{[]accepted{a, b}, []int{1, 2, 3}, false},
			{[]accepted{a, empty}, []int{1, 2, 3}, false},
			{[]accepted{a, empty}, []int{1, 3}, true},
		},
		"a retained leaf was empty": {
			{[]accepted{a, empty}, nil, false},
			{[]accepted{a, b}, []int{1, 3}, false},
		},
	} {
		var r retained
		for i, s := range steps {
			up := make(map[string]bool)
			for _, port := range s.up {
				up[fmt.Sprint("h:", port)] = true
			}
			if got := r.failsOver(s.leaves, up); got != s.want {
				t.Errorf("%s: step %d: %t, want %t", name, i, got, s.want)
			}
		}
	}
}
