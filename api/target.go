package api

import (
	"net/http"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/sources"
)

// TargetList has a summary of each xds target.
type TargetList struct {
	// Targets are sorted by name, in byte order.
	Targets []observe.TargetSummary `json:"targets"`
	// Next is the value of after= for the next part; absent if this is the last one.
	Next string `json:"next,omitempty"`
}

// targets serves /v1/targets.
type targets struct{ service *service.Service }

// list returns a summary of each target.
//
//	@Summary		List targets
//	@Description	Targets with routes. GET /v1/clusters describes clusters that picks name directly.
//	@ID				listTargets
//	@Tags			targets
//	@Produce		json
//	@Param			prefix			query		string	false	"only targets whose full name (xds:///…) begins with this"	minlength(1)	maxlength(512)
//	@Param			limit			query		int		false	"maximum number of targets"										minimum(1)		maximum(10000)
//	@Param			after			query		string	false	"only targets whose name sorts after this one"			minlength(1)	maxlength(512)
//	@Success		200				{object}	TargetList	"sorted by name"
//	@Failure		400,414,500,503	{object}	Problem
//	@Router			/v1/targets [get]
func (t *targets) list(w http.ResponseWriter, r *http.Request) error {
	l, err := readListing(w, r.URL.RawQuery)
	if err != nil {
		return err
	}
	all, err := t.service.Targets()
	if err != nil {
		return err
	}
	var list TargetList
	list.Targets, list.Next = part(l, all, func(s observe.TargetSummary) string { return s.Name })
	return reply(w, list, nil)
}

// get returns a target with its routes and clusters.
//
//	@Summary	Get the state of a target
//	@ID			getTarget
//	@Tags		targets
//	@Produce	json
//	@Param		name				path		string	true	"xds:///NAME, or NAME alone, percent-encoded"
//	@Success	200					{object}	observe.TargetState	"its routes and clusters"
//	@Failure	400,404,414,500,503	{object}	Problem
//	@Router		/v1/targets/{name} [get]
func (t *targets) get(w http.ResponseWriter, r *http.Request) error {
	name, err := pathName(r, "name")
	if err != nil {
		return err
	}
	if err := noQuery(r.URL.RawQuery); err != nil {
		return err
	}
	state, err := t.service.Target(name)
	return reply(w, state, err)
}

// put hosts a target.
//
//	@Summary		Host a target
//	@Description	Picks can name the target from now on, also after a restart. Its Listener, routes and clusters come from pushes, files or a management server. A pushed Listener hosts the target of its name without this call. Hosted targets are not part of the snapshot. The body is empty or {}.
//	@ID				putTarget
//	@Tags			targets
//	@Produce		json
//	@Param			name			path		string		true	"xds:///NAME, or NAME alone, percent-encoded"
//	@Param			dry_run			query		bool		false	"return what would change, without changing it"
//	@Param			If-Match		header		string		false	"ETags, one of which must match; * requires that the target was hosted by PUT"
//	@Param			If-None-Match	header		string		false	"*: requires that the target was not hosted by PUT"
//	@Success		200				{object}	PushAnswer	"already hosted; with dry_run, what would change"
//	@Success		201				{object}	PushAnswer	"created"
//	@Failure		400,403,404,412,413,414,428,500,503,507	{object}	Problem
//	@Router			/v1/targets/{name} [put]
func (t *targets) put(w http.ResponseWriter, r *http.Request) error {
	h, err := hostRequest(w, r)
	if err != nil {
		return err
	}
	if err := emptyBody(w, r); err != nil {
		return err
	}
	result, err := t.service.HostTarget(r.Context(), h)
	if err != nil {
		return err
	}
	writeResult(w, result, result.New && !h.DryRun)
	return nil
}

// delete removes a target that was hosted by PUT.
//
//	@Summary		Remove a target
//	@Description	Reverts PUT. A warning names what still hosts the target: --target or a Listener. If PUT did not host the target, the call is rejected.
//	@ID				deleteTarget
//	@Tags			targets
//	@Produce		json
//	@Param			name		path		string		true	"xds:///NAME, or NAME alone, percent-encoded"
//	@Param			dry_run		query		bool		false	"return what would change, without changing it"
//	@Param			If-Match	header		string		false	"ETags, one of which must match; * requires that the target was hosted by PUT"
//	@Success		200			{object}	PushAnswer	"what changed"
//	@Failure		400,403,404,412,414,428,500,503,507	{object}	Problem
//	@Router			/v1/targets/{name} [delete]
func (t *targets) delete(w http.ResponseWriter, r *http.Request) error {
	h, err := hostRequest(w, r)
	if err != nil {
		return err
	}
	result, err := t.service.DropTarget(r.Context(), h)
	if err != nil {
		return err
	}
	writeResult(w, result, false)
	return nil
}

func hostRequest(w http.ResponseWriter, r *http.Request) (*sources.HostRequest, error) {
	h := &sources.HostRequest{From: from(w, r)}
	var err error
	if h.Target, err = pathName(r, "name"); err != nil {
		return nil, err
	}
	err = readParameters(r.URL.RawQuery, parameter{name: "dry_run", set: func(v value) string { return v.boolean(&h.DryRun) }})
	if err != nil {
		return nil, err
	}
	h.Precondition, err = preconditions(r.Header)
	return h, err
}
