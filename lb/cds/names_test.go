package cds

import (
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/resource"
)

// localities reads priorities as "a b | c": a and b in the highest, c below.
func localities(s string) [][]*resource.LocalityEndpoints {
	var out [][]*resource.LocalityEndpoints
	for i, p := range strings.Split(s, "|") {
		var ls []*resource.LocalityEndpoints
		for zone := range strings.FieldsSeq(p) {
			ls = append(ls, &resource.LocalityEndpoints{ID: resource.Locality{Zone: zone}, Priority: uint32(i), Weight: 1})
		}
		out = append(out, ls)
	}
	return out
}

func TestNames(t *testing.T) {
	tests := []struct {
		name    string
		updates []string // priorities, then the names' numbers
	}{
		{"two new priorities", []string{"a | b", "0 1"}},
		{"the same again", []string{"a | b | c", "0 1 2", "a | b | c", "0 1 2"}},
		{"one is added below", []string{"a", "0", "a | b", "0 1"}},
		{"one is added above", []string{"a", "0", "b | a", "1 0"}},
		{"two are merged", []string{"a | b | c", "0 1 2", "a b | c", "0 2"}},
		{"two are swapped", []string{"a | b | c", "0 1 2", "b | a | c", "1 0 2"}},
		{"one is split", []string{"a b | c", "0 1", "a | b | c", "0 2 1"}},
		{"merged, then split again: the name that was given up is not given again", []string{"a | b | c", "0 1 2", "a b | c", "0 2", "a | d", "0 3"}},
		{"the place counts before the first locality", []string{"a b | c d", "0 1", "c b | a d", "0 1"}},
		{"a locality that moves up takes its name along", []string{"a | b | c", "0 1 2", "c", "2"}},
		{"one that comes back is new", []string{"a | b", "0 1", "a", "0", "a | b", "0 2"}},
		{"all others", []string{"a | b", "0 1", "c | d", "2 3"}},
		{"one locality in two priorities keeps both names", []string{"a | a b", "0 1", "a | a b", "0 1", "a | a b", "0 1"}},
		{"one locality alone in two priorities", []string{"a | a", "0 1", "a | a", "0 1", "a", "0", "a | a", "0 2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var n names
			for i := 0; i < len(tt.updates); i += 2 {
				n = n.next(localities(tt.updates[i]))
				want := "priority-" + strings.ReplaceAll(tt.updates[i+1], " ", " priority-")
				if got := strings.Join(n.ordered, " "); got != want {
					t.Errorf("%q gets %s, want %s", tt.updates[i], got, want)
				}
			}
		})
	}
}
