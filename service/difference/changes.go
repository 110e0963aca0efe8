package difference

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/xds/resource"
)

// MaxListed limits how many changes of one push an event lists.
const MaxListed = 20

// MaxSentence is the maximum length of an event's sentence about changes.
const MaxSentence = 2000

// Version is a resource before and after a change. Its values are immutable.
type Version struct{ Before, After resource.Item }

// Versions are those of several resources.
type Versions []Version

// Change is what happened to one resource.
type Change struct {
	Resource string `json:"resource"` // "ClusterLoadAssignment/orders"
	Change   string `json:"change" enums:"added,modified,removed"`
	// Difference describes it in words, for the first changes of an answer or event.
	Difference string `json:"difference,omitempty"`
}

// Key returns the key of the changed resource.
func (c Change) Key() resource.Key {
	kind, name, _ := strings.Cut(c.Resource, "/")
	return resource.Key{Type: resource.Type(kind), Name: name}
}

// Changes lists the versions that differ, each resource once: the first few with words.
func (vs Versions) Changes() []Change {
	var out []Change
	listed := make(map[resource.Key]bool)
	for _, v := range vs {
		change, same := v.change()
		if same || listed[v.After.Key] {
			continue
		}
		listed[v.After.Key] = true
		switch {
		case len(out) < MaxListed:
			if change.Difference = Describe(v.Before, v.After); change.Difference != "" {
				out = append(out, change)
			}
		default:
			out = append(out, change)
		}
	}
	return out
}

// change is what happened to the resource, without words.
func (v Version) change() (c Change, same bool) {
	was, is := v.Before, v.After
	c = Change{Resource: is.Key.String(), Change: "modified"}
	switch absent := (resource.Item{Key: is.Key}); {
	case was.Same(is):
		return c, true
	case was.Same(absent):
		c.Change = "added"
	case is.Same(absent):
		c.Change = "removed"
	}
	return c, false
}

// Summary is a sentence: how many resources changed, and how.
func Summary(changes []Change) string {
	var b strings.Builder
	if len(changes) == 1 {
		b.WriteString("1 resource changed")
	} else {
		fmt.Fprintf(&b, "%d resources changed", len(changes))
	}
	separator := ": "
	for i, c := range changes[:min(len(changes), MaxListed)] {
		if c.Difference == "" {
			continue
		}
		part := separator + strings.TrimPrefix(c.Resource, string(resource.TypeAssignment)+"/") + ": " + c.Difference
		if b.Len()+len(part) > MaxSentence {
			fmt.Fprintf(&b, "; and %d more", len(changes)-i)
			break
		}
		b.WriteString(part)
		separator = "; "
	}
	return b.String()
}

// WithoutWords returns the first few changes without Difference, as an event lists them: its
// sentence has the words.
func WithoutWords(changes []Change) []Change {
	listed := slices.Clone(changes[:min(len(changes), MaxListed)])
	for i := range listed {
		listed[i].Difference = ""
	}
	return listed
}
