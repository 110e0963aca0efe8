package api

import (
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
)

const (
	// DefaultChanges is the default limit of a list of changes.
	DefaultChanges = 100
	// MaxChanges is the maximum limit of a list of changes.
	MaxChanges = 1000
	// messageHeader has what the caller says about a change.
	messageHeader = "Lbd-Message"
)

// ChangeList lists changes of resources.
type ChangeList struct {
	// Changes are sorted from newest to oldest.
	Changes []changelog.Entry `json:"changes"`
	// Oldest is the oldest index that can be restored and compared.
	Oldest uint64 `json:"oldest" example:"4001"`
	// Next is the value of before= for the next part; absent if this is the last one.
	Next uint64 `json:"next,omitempty" example:"4611"`
}

// ChangesOf are the changes of one commit: more than one if lbd has committed pushes of several callers
// together.
type ChangesOf struct {
	Index   uint64            `json:"index" example:"4711"`
	Changes []changelog.Entry `json:"changes"`
}

// @Summary     List changes of resources
// @Description The history: every push and deletion that changed resources, with who made it and what it replaced, and the changes of resource files and management servers that this daemon has observed since it started. A list may be longer than limit: all changes of one index are in the same part. A caller with clusters gets the changes of these.
// @Param       cluster query string false "only changes of the resources of this name" minlength(1) maxlength(512)
// @Param       before  query int    false "only changes of a smaller index" minimum(1)
// @Param       limit   query int    false "maximum number of changes" minimum(1) maximum(1000) default(100)
// @Success     200 {object} ChangeList "newest first"
// @Router      /v1/history [get]
func (h *handlers) listChanges(w *recorder, r *http.Request) error {
	f := changelog.Filter{Limit: DefaultChanges}
	if err := h.readServed(w, r,
		parameter{name: "cluster", set: func(v value) string { return v.name(&f.Name) }},
		parameter{name: "before", set: func(v value) string { return v.index(&f.Before) }},
		parameter{name: "limit", set: func(v value) string { return v.integer(&f.Limit, 1, MaxChanges) }},
	); err != nil {
		return err
	}
	if err := mayUseCluster(w, f.Name); err != nil {
		return err
	}
	list, err := h.changes(w, r, f)
	return reply(w, list, err)
}

func (h *handlers) changes(w *recorder, r *http.Request, f changelog.Filter) (ChangeList, error) {
	if err := takeTurn(w, r); err != nil {
		return ChangeList{}, err
	}
	changes, oldest, next, err := h.Resources.Changes(f, scopeOf(w))
	return ChangeList{Changes: orEmpty(changes), Oldest: oldest, Next: next}, err
}

// @Summary     Get a change of resources
// @Success     200 {object} ChangesOf "the change, and what was committed with it"
// @Router      /v1/history/{index} [get]
func (h *handlers) getChange(w *recorder, r *http.Request) error {
	index, err := pathIndex(r)
	if err != nil {
		return err
	}
	if err := h.readServed(w, r); err != nil {
		return err
	}
	list, err := h.changes(w, r, changelog.Filter{Before: index + 1, Limit: 1})
	if err != nil {
		return err
	}
	if len(list.Changes) == 0 || list.Changes[0].Index != index {
		return fault.Errorf(fault.UnknownChange, "the history has no change of index %d", index)
	}
	return reply(w, ChangesOf{Index: index, Changes: list.Changes}, nil)
}

// pathIndex returns the index in the path.
func pathIndex(r *http.Request) (index uint64, err error) {
	text := chi.URLParam(r, "index")
	if wanted := (value{text: text}).index(&index); wanted != "" {
		return 0, fault.Errorf(fault.InvalidArgument, "%q is not %s", fault.Clip(text), wanted)
	}
	return index, nil
}

// @Summary     Compare what was pushed at two indices
// @Description From against to index. Without against, this is what the change of the index did. The contents of a resource are in the answer if resource names it.
// @Param       against  query string false "another index, or now; default: the index before" example(now)
// @Param       cluster  query string false "only the Cluster and the ClusterLoadAssignment of this name" minlength(1) maxlength(512)
// @Param       resource query string false "only this resource, with its contents" example(ClusterLoadAssignment/orders)
// @Success     200 {object} sources.Difference "what differs"
// @Router      /v1/history/{index}/diff [get]
func (h *handlers) getDifference(w *recorder, r *http.Request) error {
	to, err := pathIndex(r)
	if err != nil {
		return err
	}
	from := max(to, 1) - 1
	var in sources.Range
	if err := h.readServed(w, r, append(rangeParameters(&in), parameter{name: "against", set: func(v value) string {
		if v.text == "now" {
			from = sources.Now
		} else if v.index(&from) != "" {
			return "an index, or now"
		}
		return ""
	}})...); err != nil {
		return err
	}
	if err := mayUseRange(w, in); err != nil {
		return err
	}
	d, err := h.Resources.Compare(reserving(w, r), turnName(w, r), from, to, in, scopeOf(w))
	return reply(w, d, err)
}

// rangeParameters are the parameters of a part of what is pushed.
func rangeParameters(in *sources.Range) []parameter {
	return []parameter{
		{name: "cluster", set: func(v value) string { return v.name(&in.Cluster) }},
		{name: "resource", set: func(v value) string {
			key, err := sources.ParseResource(v.text)
			if err != nil {
				return err.Error()
			}
			in.Resource = key
			return (value{text: key.Name}).name(&key.Name)
		}},
	}
}

// mayUseRange returns an error if the caller may not use a part of what is pushed.
func mayUseRange(w *recorder, in sources.Range) error {
	if in.Cluster != "" && in.Resource.Type != "" {
		return fault.Errorf(fault.InvalidArgument, "cluster and resource exclude each other")
	}
	if key := in.Resource; key.Type != "" && !scopeOf(w).Resource(key) {
		return fault.Errorf(listen.PermissionDenied, "%s may not use %q", w.caller.Name, fault.Clip(key.Name))
	}
	return mayUseCluster(w, in.Cluster)
}

// @Summary     Restore what was pushed at an index
// @Description Pushes what was pushed when the index was committed: a resource, a cluster, or everything. It adds, replaces and removes resources, all or none, and is itself a change in the history. To undo a change, restore the index before it. With dry_run, the answer is a preview.
// @Param       resource    query  string false "only this resource" example(ClusterLoadAssignment/orders)
// @Param       cluster     query  string false "only the Cluster and the ClusterLoadAssignment of this name" minlength(1) maxlength(512)
// @Param       all         query  bool   false "everything; required without resource and cluster"
// @Param       allow_empty query  bool   false "allow clusters without usable endpoints"
// @Param       max_removed query  int    false "maximum number of resources to remove; default: no limit" minimum(0) maximum(1000000)
// @Param       If-Match    header string false "ETags, one of which must match: of the resource with resource=, else of the snapshot"
// @Success     200     {object} PushAnswer "restored or unchanged; with dry_run, what would change"
// @Failure     409,422 {object} Problem
// @Router      /v1/history/{index}/restore [post]
func (h *handlers) restore(w *recorder, r *http.Request) error {
	index, err := pathIndex(r)
	if err != nil {
		return err
	}
	q := &sources.RestoreRequest{Index: index, Scope: scopeOf(w), MaxRemoved: -1}
	all := false
	if err = readChange(w, r, &q.Options, append(rangeParameters(&q.Range), allowEmpty(&q.Options),
		parameter{name: "all", set: func(v value) string { return v.boolean(&all) }},
		parameter{name: "max_removed", set: func(v value) string { return v.integer(&q.MaxRemoved, 0, MaxRemoved) }},
	)...); err != nil {
		return err
	}
	if part := q.Range.Cluster != "" || q.Range.Resource.Type != ""; part == all {
		return fault.Errorf(fault.InvalidArgument, "what to restore: set resource=, cluster= or all=true, one of them")
	}
	if all && scopeOf(w) != nil {
		return fault.Errorf(listen.PermissionDenied, "%s may not restore all clusters", w.caller.Name)
	}
	if err := mayUseRange(w, q.Range); err != nil {
		return err
	}
	result, err := h.Changes.Restore(reserving(w, r), q)
	return writeResult(w, result, q.Options.DryRun, err)
}

// message returns what the caller says about a change.
func message(r *http.Request) (string, error) {
	values := r.Header.Values(messageHeader)
	if len(values) == 0 {
		return "", nil
	}
	text := strings.TrimSpace(strings.Join(values, ", "))
	if len(text) > changelog.MaxMessage || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return "", fault.Errorf(fault.InvalidArgument, "%s must be at most %d bytes of UTF-8 without control characters", messageHeader, changelog.MaxMessage)
	}
	return text, nil
}
