package api

import "strings"

// listing is which part of a list, sorted by name, is asked for.
type listing struct {
	prefix, after string
	limit         int // 0 is all
}

// readListing reads prefix, after and limit, and no other parameter.
func readListing(query string) (l listing, err error) {
	known := []parameter{{name: "prefix"}, {name: "limit"}, {name: "after"}}
	err = readQuery(query, known, func(name string, v value) string {
		switch name {
		case "prefix":
			return v.name(&l.prefix)
		case "after":
			return v.name(&l.after)
		default:
			return v.integer(&l.limit, 1, MaxList)
		}
	})
	return l, err
}

// part returns the part of a list that is asked for, never nil, and what to ask
// for as after= for the rest; empty where there is none.
func part[S any](l listing, all []S, name func(S) string) (page []S, next string) {
	page = []S{}
	for _, s := range all {
		if name(s) <= l.after || !strings.HasPrefix(name(s), l.prefix) {
			continue
		}
		if l.limit > 0 && len(page) == l.limit {
			return page, name(page[l.limit-1])
		}
		page = append(page, s)
	}
	return page, ""
}
