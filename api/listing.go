package api

import (
	"net/http"
	"strings"

	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/ledger"
)

// listing selects a part of a list that is sorted by name.
type listing struct {
	prefix, after string
	limit         int // 0 for no limit
	caller        *access.Caller
}

// readListing reads the parameters prefix, after and limit.
func readListing(w http.ResponseWriter, query string) (l listing, err error) {
	l.caller = callerOf(w)
	err = readParameters(query,
		parameter{name: "prefix", set: func(v value) string { return v.name(&l.prefix) }},
		parameter{name: "after", set: func(v value) string { return v.name(&l.after) }},
		parameter{name: "limit", set: func(v value) string { return v.integer(&l.limit, 1, MaxList) }},
	)
	return l, err
}

// part returns the selected part of a list, which is never nil, and the value of after=
// for the next part; empty if there is none.
func part[S any](l listing, all []S, name func(S) string) (page []S, next string) {
	page = []S{}
	for _, s := range all {
		if name(s) <= l.after || !strings.HasPrefix(name(s), l.prefix) || !l.caller.MaySee(ledger.TargetKey(name(s))) {
			continue
		}
		if l.limit > 0 && len(page) == l.limit {
			return page, name(page[l.limit-1])
		}
		page = append(page, s)
	}
	return page, ""
}
