package api

import (
	"net/http"

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

// @Summary     List targets
// @Description Targets with routes. GET /v1/clusters describes clusters that picks name directly.
// @Param       prefix query string false "only targets whose full name (xds:///…) begins with this" minlength(1) maxlength(512)
// @Param       limit  query int    false "maximum number of targets" minimum(1) maximum(10000)
// @Param       after  query string false "only targets whose name sorts after this one" minlength(1) maxlength(512)
// @Success     200 {object} TargetList "sorted by name"
// @Router      /v1/targets [get]
func (h *handlers) listTargets(w *recorder, r *http.Request) error {
	l, err := h.readListing(w, r)
	if err != nil {
		return err
	}
	all, err := h.State.Targets()
	if err != nil {
		return err
	}
	var list TargetList
	list.Targets, list.Next = part(l, all, scopeOf(w).Target, func(s observe.TargetSummary) string { return s.Name })
	return reply(w, list, nil)
}

// @Summary Get the state of a target
// @Success 200 {object} observe.TargetState "its routes and clusters"
// @Router  /v1/targets/{name} [get]
func (h *handlers) getTarget(w *recorder, r *http.Request) error {
	name, err := h.readServedNamed(w, r, "name")
	if err != nil {
		return err
	}
	state, err := h.State.Target(name)
	if err != nil {
		return err
	}
	return reply(w, state.Within(scopeOf(w)), nil)
}

// @Summary     Host a target
// @Description Picks can name the target from now on, also after a restart. Its Listener, routes and clusters come from pushes, files or a management server. A pushed Listener hosts the target of its name without this call. Hosted targets are not part of the snapshot. The body is empty or {}.
// @Param       If-Match      header string false "ETags, one of which must match; * requires that the target was hosted by PUT"
// @Param       If-None-Match header string false "*: requires that the target was not hosted by PUT"
// @Success     200 {object} PushAnswer "already hosted; with dry_run, what would change"
// @Success     201 {object} PushAnswer "created"
// @Failure     413 {object} Problem
// @Router      /v1/targets/{name} [put]
func (h *handlers) putTarget(w *recorder, r *http.Request) error {
	var options sources.ChangeOptions
	name, err := changeRequest(w, r, &options)
	if err != nil {
		return err
	}
	if err := emptyBody(w, r); err != nil {
		return err
	}
	result, err := h.Changes.HostTarget(r.Context(), name, options)
	return writeResult(w, result, options.DryRun, err)
}

// @Summary     Remove a target
// @Description Reverts PUT. A warning names what still hosts the target: --target or a Listener. If PUT did not host the target, the call is rejected.
// @Param       If-Match header string false "ETags, one of which must match; * requires that the target was hosted by PUT"
// @Success     200 {object} PushAnswer "what changed"
// @Router      /v1/targets/{name} [delete]
func (h *handlers) deleteTarget(w *recorder, r *http.Request) error {
	var options sources.ChangeOptions
	name, err := changeRequest(w, r, &options)
	if err != nil {
		return err
	}
	result, err := h.Changes.DropTarget(r.Context(), name, options)
	return writeResult(w, result, options.DryRun, err)
}
