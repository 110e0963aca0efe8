package cds

import (
	"strconv"

	"github.com/lbd-dev/lbd/xds/resource"
)

// names gives priority's children names that stay with their localities: a
// locality that moves to another priority takes its connections along. A name
// is never given to other localities.
type names struct {
	ordered    []string
	byLocality map[resource.Locality]string
	given      int
}

// next names the priorities of an update. A priority takes the name that its
// place had if it still holds a locality of it; else the name of its first
// locality whose name is still free; else a new one.
func (n names) next(priorities [][]*resource.LocalityEndpoints) names {
	out := names{
		ordered:    make([]string, len(priorities)),
		byLocality: make(map[resource.Locality]string),
		given:      n.given,
	}
	taken := make(map[string]bool)
	for i, ls := range priorities {
		if i >= len(n.ordered) {
			break
		}
		for _, l := range ls {
			if n.byLocality[l.ID] == n.ordered[i] {
				out.ordered[i] = n.ordered[i]
				taken[n.ordered[i]] = true
				break
			}
		}
	}
	for i, ls := range priorities {
		for _, l := range ls {
			if name := n.byLocality[l.ID]; out.ordered[i] == "" && name != "" && !taken[name] {
				out.ordered[i] = name
				taken[name] = true
			}
		}
		if out.ordered[i] == "" {
			out.ordered[i] = "priority-" + strconv.Itoa(out.given)
			out.given++
		}
		for _, l := range ls {
			out.byLocality[l.ID] = out.ordered[i]
		}
	}
	return out
}
