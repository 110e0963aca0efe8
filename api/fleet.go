package api

import "net/http"

// @Summary     Get the state of the fleet
// @Description The daemons that share a store (--store), as the daemon that responds knows them: how far each is, what it has of the limits of clusters with limit_scope fleet, and endpoints that some of them cannot reach, but others can. Each daemon publishes a summary of itself a few seconds after it has changed. A caller with clusters gets the limits and endpoints of these only.
// @Success     200 {object} roster.State "the state of the fleet; shared is false without --store"
// @Router      /v1/fleet [get]
func (h *handlers) getFleet(w *recorder, r *http.Request) error {
	if err := takeTurn(w, r); err != nil {
		return err
	}
	return reply(w, h.Replicas.State(r.Context(), scopeOf(w)), nil)
}
