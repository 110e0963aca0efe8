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
	// Next is what to ask for as after= for the rest; absent where there is
	// none.
	Next string `json:"next,omitempty"`
}

// targets answers /v1/targets.
type targets struct{ service *service.Service }

// list answers with a summary of each target.
//
//	@Summary		List targets
//	@Description	Those with routes. A cluster's own tree is described with the cluster.
//	@ID				listTargets
//	@Tags			targets
//	@Produce		json
//	@Param			prefix			query		string	false	"only targets whose name begins so, xds:/// included"	minlength(1)	maxlength(512)
//	@Param			limit			query		int		false	"at most so many"										minimum(1)		maximum(10000)
//	@Param			after			query		string	false	"only targets whose name comes after this one"			minlength(1)	maxlength(512)
//	@Success		200				{object}	TargetList	"sorted by name"
//	@Failure		400,414,500,503	{object}	Problem
//	@Router			/v1/targets [get]
func (t *targets) list(w http.ResponseWriter, r *http.Request) error {
	l, err := readListing(r.URL.RawQuery)
	if err != nil {
		return err
	}
	all, err := t.service.Targets()
	if err != nil {
		return err
	}
	var list TargetList
	list.Targets, list.Next = part(l, all, func(s observe.TargetSummary) string { return s.Name })
	writeJSON(w, http.StatusOK, list)
	return nil
}

// get answers with a target, its routes and its clusters.
//
//	@Summary	Look at a target
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
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, state)
	return nil
}

// put hosts a target.
//
//	@Summary		Host a target
//	@Description	From now on, and after a restart, picks may ask for the target. Its Listener and what that leads to come from a push, a file or a management server. A Listener that is pushed hosts the target of its name by itself. What is hosted is no part of the snapshot. The body is empty, or {}.
//	@ID				putTarget
//	@Tags			targets
//	@Produce		json
//	@Param			name			path		string		true	"xds:///NAME, or NAME alone, percent-encoded"
//	@Param			dry_run			query		bool		false	"tell what would change, and change nothing"
//	@Param			If-Match		header		string		false	"ETags, one of which must be the target's; * asks that it is hosted so"
//	@Param			If-None-Match	header		string		false	"*: only if it is not hosted so"
//	@Success		200				{object}	PushAnswer	"it was hosted already; or what would change"
//	@Success		201				{object}	PushAnswer	"new"
//	@Failure		400,403,404,412,413,414,428,500,503,507	{object}	Problem
//	@Router			/v1/targets/{name} [put]
func (t *targets) put(w http.ResponseWriter, r *http.Request) error {
	h, err := hostRequest(r)
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
	status := http.StatusOK
	if result.New && !h.DryRun {
		status = http.StatusCreated
	}
	writeResult(w, status, result)
	return nil
}

// delete drops a target that was hosted by put.
//
//	@Summary		Drop a target
//	@Description	Takes back what PUT did. A warning tells what hosts the target all the same: --target, or a Listener; where PUT never did, that is refused.
//	@ID				deleteTarget
//	@Tags			targets
//	@Produce		json
//	@Param			name		path		string		true	"xds:///NAME, or NAME alone, percent-encoded"
//	@Param			dry_run		query		bool		false	"tell what would change, and change nothing"
//	@Param			If-Match	header		string		false	"ETags, one of which must be the target's; * asks that it is hosted so"
//	@Success		200			{object}	PushAnswer	"what changed"
//	@Failure		400,403,404,412,414,428,500,503,507	{object}	Problem
//	@Router			/v1/targets/{name} [delete]
func (t *targets) delete(w http.ResponseWriter, r *http.Request) error {
	h, err := hostRequest(r)
	if err != nil {
		return err
	}
	result, err := t.service.DropTarget(r.Context(), h)
	if err != nil {
		return err
	}
	writeResult(w, http.StatusOK, result)
	return nil
}

func hostRequest(r *http.Request) (*sources.HostRequest, error) {
	h := &sources.HostRequest{From: from(r)}
	var err error
	if h.Target, err = pathName(r, "name"); err != nil {
		return nil, err
	}
	err = readQuery(r.URL.RawQuery, []parameter{{name: "dry_run"}}, func(_ string, v value) string {
		return v.boolean(&h.DryRun)
	})
	if err != nil {
		return nil, err
	}
	h.Precondition, err = preconditions(r.Header)
	return h, err
}
