package cds

import (
	"slices"
	"strconv"

	"github.com/lbd-dev/lbd/xds/resource"
)

// names gives priority's children names that stay with their localities: a locality
// keeps its connections when it moves to another priority. Names are not reused for
// other localities.
type names struct {
	ordered []string
	// holders are the names of the priorities that contain a locality, the highest
	// first.
	holders map[resource.Locality][]string
	given   int
}

// next names the priorities of an update. A priority keeps the name of its place if it
// still has a locality of it; else it takes the first free name of its localities;
// else a new one.
func (n names) next(priorities [][]*resource.LocalityEndpoints) names {
	out := names{
		ordered: make([]string, len(priorities)),
		holders: make(map[resource.Locality][]string),
		given:   n.given,
	}
	taken := make(map[string]bool)
	take := func(i int, name string) {
		if out.ordered[i] == "" && !taken[name] {
			out.ordered[i], taken[name] = name, true
		}
	}
	for i, ls := range priorities[:min(len(priorities), len(n.ordered))] {
		for _, l := range ls {
			if slices.Contains(n.holders[l.ID], n.ordered[i]) {
				take(i, n.ordered[i])
			}
		}
	}
	for i, ls := range priorities {
		for _, l := range ls {
			for _, name := range n.holders[l.ID] {
				take(i, name)
			}
		}
		if out.ordered[i] == "" {
			take(i, "priority-"+strconv.Itoa(out.given))
			out.given++
		}
		for _, l := range ls {
			out.holders[l.ID] = append(out.holders[l.ID], out.ordered[i])
		}
	}
	return out
}
