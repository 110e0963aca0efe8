package client

import (
	"slices"
	"strings"
)

// canonical returns the form of a name by which names are equal: the context
// parameters of an xdstp name in the order of their keys (xRFC TP1). Any other name
// is itself.
func canonical(name string) string {
	if !strings.HasPrefix(name, "xdstp://") {
		return name
	}
	path, query, ok := strings.Cut(name, "?")
	if !ok {
		return name
	}
	query, directive, ok := strings.Cut(query, "#")
	if ok {
		directive = "#" + directive
	}
	parameters := strings.Split(query, "&")
	slices.SortStableFunc(parameters, func(a, b string) int {
		a, _, _ = strings.Cut(a, "=")
		b, _, _ = strings.Cut(b, "=")
		return strings.Compare(a, b)
	})
	return path + "?" + strings.Join(parameters, "&") + directive
}
