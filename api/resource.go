package api

import (
	"net/http"
	"runtime"
	"strconv"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/forecast"
	"github.com/lbd-dev/lbd/service/sources"
)

// PushAnswer is the result of a push or deletion.
type PushAnswer struct {
	Generation int64 `json:"generation"`
	// Index is that of the store's commit with the change: min_index waits until another replica
	// serves it, and, if a warning says that the change is not in force yet, until it is. With dry_run, or if nothing changed, it is that of the last commit.
	Index uint64 `json:"index" example:"4711"`
	// ETag is the hash of the content, for If-Match; empty after a deletion. The ETag header
	// of GET adds a suffix for the representation, which If-Match ignores.
	ETag string `json:"etag"`
	// Changes is empty if the content is unchanged.
	Changes []difference.Change `json:"changes"`
	// Warnings list what may not have the expected effect, such as a field that lbd does not
	// apply.
	Warnings []fault.Problem `json:"warnings"`
	// Notes list what lbd filled in because it was absent: a name, a locality, the weights of
	// localities.
	Notes []fault.Problem `json:"notes"`
	// Effect is what the change would do to picks; only with dry_run, if it changes something.
	Effect *forecast.Effect `json:"effect,omitempty"`
}

// @Summary     Get the endpoints
// @Description By default, what was pushed, as it was pushed. With view=source, what the source in use has, which may be a file, a management server or DNS; with view=effective, what overlays make of that. Both have the fields that lbd applies, in a form that can be pushed, and Lbd-Source.
// @Produce json,application/yaml,application/x-protobuf
// @Param   view    query  string   false "pushed: as it was pushed; source: of the source in use; effective: with overlays" Enums(pushed,source,effective) default(pushed)
// @Header  200     {string} Lbd-Source "push, file, ads, cache, dns or default; only with view"
// @Success 200     {object} object "envoy.config.endpoint.v3.ClusterLoadAssignment"
// @Header  200,304 {string} ETag   "strong: a hash of the content, with a suffix for the representation"
// @Success 304     "unchanged: If-None-Match has the ETag"
// @Router  /v1/clusters/{name}/endpoints [get]
func (h *handlers) getEndpoints(w *recorder, r *http.Request) error {
	return h.getResource(w, r, sources.Endpoints)
}

// @Summary     Push the endpoints of a cluster
// @Description A ClusterLoadAssignment, or a DiscoveryResponse with exactly one; or a list of endpoints: strings of the form ADDRESS:PORT [WEIGHT] [REGION/ZONE[/SUB_ZONE]] in JSON or YAML, or text with one in each line. Without Content-Type, a body that begins with a brace is JSON, one that begins with an address is text, and any other is YAML. lbd answers when the push is on disk and picks use it.
// @Accept      json,application/yaml,application/x-protobuf,plain
// @Param       resource      body   object true  "envoy.config.endpoint.v3.ClusterLoadAssignment, at most 32 MiB"
// @Param       allow_empty   query  bool   false "allow a cluster without usable endpoints"
// @Param       strict        query  bool   false "false: unknown fields of JSON and YAML are warnings, not errors. Unknown fields of protobuf are always warnings"
// @Param       If-Match      header string false "ETags, one of which must match; * requires that the resource exists"
// @Param       If-None-Match header string false "*: requires that the resource does not exist"
// @Success     200     {object} PushAnswer "replaced or unchanged; with dry_run, what would change"
// @Success     201     {object} PushAnswer "created"
// @Failure     409,422 {object} Problem
// @Router      /v1/clusters/{name}/endpoints [put]
func (h *handlers) putEndpoints(w *recorder, r *http.Request) error {
	return h.putResource(w, r, sources.Endpoints)
}

// @Summary Delete the pushed endpoints
// @Param   If-Match header string false "ETags, one of which must match; * requires that the resource exists"
// @Success 200 {object} PushAnswer "what changed"
// @Router  /v1/clusters/{name}/endpoints [delete]
func (h *handlers) deleteEndpoints(w *recorder, r *http.Request) error {
	return h.deleteResource(w, r, sources.Endpoints)
}

// @Summary     Get the config
// @Description By default, what was pushed, as it was pushed. With view=source, what the source in use has, which may be a file, a management server or DNS; with view=effective, what overlays make of that. Both have the fields that lbd applies, in a form that can be pushed, and Lbd-Source.
// @Produce json,application/yaml,application/x-protobuf
// @Param   view    query  string   false "pushed: as it was pushed; source: of the source in use; effective: with overlays" Enums(pushed,source,effective) default(pushed)
// @Header  200     {string} Lbd-Source "push, file, ads, cache, dns or default; only with view"
// @Success 200     {object} object "envoy.config.cluster.v3.Cluster"
// @Header  200,304 {string} ETag   "strong: a hash of the content, with a suffix for the representation"
// @Success 304     "unchanged: If-None-Match has the ETag"
// @Router  /v1/clusters/{name}/config [get]
func (h *handlers) getConfig(w *recorder, r *http.Request) error {
	return h.getResource(w, r, sources.Config)
}

// @Summary     Push the config of a cluster
// @Description A Cluster, or a DiscoveryResponse with exactly one. Without Content-Type, a body that begins with a brace is JSON, any other is YAML. lbd answers when the push is on disk and picks use it.
// @Accept      json,application/yaml,application/x-protobuf
// @Param       resource      body   object true  "envoy.config.cluster.v3.Cluster, at most 32 MiB"
// @Param       allow_empty   query  bool   false "allow a cluster without usable endpoints"
// @Param       strict        query  bool   false "false: unknown fields of JSON and YAML are warnings, not errors. Unknown fields of protobuf are always warnings"
// @Param       If-Match      header string false "ETags, one of which must match; * requires that the resource exists"
// @Param       If-None-Match header string false "*: requires that the resource does not exist"
// @Success     200     {object} PushAnswer "replaced or unchanged; with dry_run, what would change"
// @Success     201     {object} PushAnswer "created"
// @Failure     409,422 {object} Problem
// @Router      /v1/clusters/{name}/config [put]
func (h *handlers) putConfig(w *recorder, r *http.Request) error {
	return h.putResource(w, r, sources.Config)
}

// @Summary     Delete the pushed config
// @Description Rejected with code blocked if the config secures the connections to endpoints that remain: they would become plain.
// @Param       If-Match header string false "ETags, one of which must match; * requires that the resource exists"
// @Success     200 {object} PushAnswer "what changed"
// @Failure     409 {object} Problem
// @Router      /v1/clusters/{name}/config [delete]
func (h *handlers) deleteConfig(w *recorder, r *http.Request) error {
	return h.deleteResource(w, r, sources.Config)
}

func (h *handlers) getResource(w *recorder, r *http.Request, kind sources.Kind) error {
	view := sources.ViewPushed
	name, err := h.readServedNamed(w, r, "name", parameter{name: "view", set: func(v value) string { return v.view(&view) }})
	if err != nil {
		return err
	}
	as := accepted(r.Header)
	if view != sources.ViewPushed {
		return h.getViewed(w, r, kind, name, view, as)
	}
	stored, err := h.Resources.Pushed(reserving(w, r), turnName(w, r), kind, name, as.format)
	return writeStored(w, r, as, stored, err)
}

// The headers of a resource as it is in use.
const (
	sourceHeader   = "Lbd-Source"
	overlaysHeader = "Lbd-Overlays"
)

// getViewed writes a resource as it is in use.
func (h *handlers) getViewed(w *recorder, r *http.Request, kind sources.Kind, name string, view sources.View, as *representation) error {
	is, err := h.Resources.View(reserving(w, r), turnName(w, r), kind, name, view, as.format)
	if err != nil {
		return err
	}
	w.Header().Set(sourceHeader, is.From.String())
	if !is.Updated.IsZero() {
		w.Header().Set("Last-Modified", is.Updated.Format(http.TimeFormat))
	}
	if is.Overlays > 0 {
		w.Header().Set(overlaysHeader, strconv.Itoa(is.Overlays))
	}
	return writeStored(w, r, as, &is.Stored, nil)
}

// view stores a view.
func (v value) view(to *sources.View) string {
	switch view := sources.View(v.text); view {
	case sources.ViewPushed, sources.ViewSource, sources.ViewEffective:
		*to = view
		return ""
	}
	return "pushed, source or effective"
}

// writeStored writes a pushed resource, or status 304, or returns err.
func writeStored(w *recorder, r *http.Request, as *representation, stored *sources.Stored, err error) error {
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(stored) // other readers share it until it is written
	same, err := unchanged(r.Header, stored.Hash, as.suffix)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("ETag", strongTag(stored.Hash, as.suffix))
	h.Set("Vary", "Accept")
	h.Set("Cache-Control", "no-cache") // cached, but revalidated
	if same {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", as.contentType)
	writeParts(w, http.StatusOK, stored.Body)
	return nil
}

func (h *handlers) putResource(w *recorder, r *http.Request, kind sources.Kind) error {
	p, err := pushRequest(w, r, kind)
	if err != nil {
		return err
	}
	result, err := h.Changes.Push(reserving(w, r), p)
	return writeResult(w, result, p.Options.DryRun, err)
}

// pushRequest reads a push.
func pushRequest(w *recorder, r *http.Request, kind sources.Kind) (p *sources.PushRequest, err error) {
	p = &sources.PushRequest{Kind: kind}
	if p.Cluster, err = changeRequest(w, r, &p.Options, pushParameters(&p.Options, &p.Lenient)...); err != nil {
		return nil, err
	}
	p.Body, p.Format, err = readResources(w, r, MaxResourceBytes)
	return p, err
}

// readChange reads the parameters and headers of a change: dry_run, the preconditions, and more
// parameters.
func readChange(w *recorder, r *http.Request, o *sources.ChangeOptions, more ...parameter) (err error) {
	o.From, o.Caller, o.Address = from(w, r), turnName(w, r), addressOf(r)
	if c := w.caller; c != nil {
		o.Name, o.MayName = c.Name, mayName(w)
	}
	if o.Message, err = message(r); err != nil {
		return err
	}
	known := append([]parameter{
		{name: "dry_run", set: func(v value) string { return v.boolean(&o.DryRun) }},
		{name: "max_shift", percent: true, set: func(v value) string { return v.part(&o.MaxShift) }},
	}, more...)
	if err = readParameters(r, known...); err != nil {
		return err
	}
	o.Precondition, err = preconditions(r.Header)
	return err
}

// allowEmpty is the parameter of changes after which a cluster may have no usable endpoint.
func allowEmpty(o *sources.ChangeOptions) parameter {
	return parameter{name: "allow_empty", set: func(v value) string { return v.boolean(&o.AllowEmpty) }}
}

// pushParameters are the parameters of changes that have a body.
func pushParameters(o *sources.ChangeOptions, lenient *bool) []parameter {
	return []parameter{
		allowEmpty(o),
		{name: "strict", set: func(v value) string { return v.strict(lenient) }},
	}
}

// readResources reads a body of resources and its format.
func readResources(w *recorder, r *http.Request, most int64) ([]byte, sources.Format, error) {
	if _, err := formatOf(r.Header, nil); err != nil { // before the body is sent
		return nil, 0, err
	}
	body, err := readBody(w, r, most)
	if err != nil {
		return nil, 0, err
	}
	format, err := formatOf(r.Header, body)
	return body, format, err
}

func (h *handlers) deleteResource(w *recorder, r *http.Request, kind sources.Kind) error {
	var options sources.ChangeOptions
	name, err := changeRequest(w, r, &options)
	if err != nil {
		return err
	}
	result, err := h.Changes.Delete(reserving(w, r), kind, name, options)
	return writeResult(w, result, options.DryRun, err)
}

// changeRequest is readChange for a change of one name, which is in the path.
func changeRequest(w *recorder, r *http.Request, o *sources.ChangeOptions, more ...parameter) (name string, err error) {
	if name, err = pathName(r, "name"); err != nil {
		return "", err
	}
	return name, readChange(w, r, o, more...)
}

// writeResult writes the result of a change, or returns err.
func writeResult(w *recorder, result *sources.PushResult, dryRun bool, err error) error {
	if err != nil {
		return err
	}
	writeJSON(w, pushStatus(result, dryRun), pushAnswer(w, result))
	return nil
}

func pushStatus(result *sources.PushResult, dryRun bool) int {
	if result.New && !dryRun {
		return http.StatusCreated
	}
	return http.StatusOK
}

// pushAnswer returns the answer to a change, and records the change for the audit log.
func pushAnswer(w *recorder, result *sources.PushResult) PushAnswer {
	w.changes = result.Changes
	setIndex(w)
	return PushAnswer{
		Generation: result.Generation, Index: result.Index, ETag: result.Hash,
		Changes: orEmpty(result.Changes), Warnings: orEmpty(result.Warnings), Notes: orEmpty(result.Notes),
		Effect: result.Effect.Within(scopeOf(w)),
	}
}

// orEmpty returns a list that is not null in JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
