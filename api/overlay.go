package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/service/sources"
)

// MaxOverlayBytes limits the body of an overlay.
const MaxOverlayBytes = 16 << 10

// OverlayList lists overlays.
type OverlayList struct {
	// Overlays are sorted by cluster, and then from the oldest to the newest.
	Overlays []overlays.Overlay `json:"overlays"`
}

// OverlayAnswer is the result of putting an overlay.
type OverlayAnswer struct {
	PushAnswer
	// Overlay is the overlay as it is now; absent for a dry run, and if it has ended already.
	Overlay *overlays.Overlay `json:"overlay,omitempty"`
}

// @Summary     List all overlays
// @Description The overlays that operators have put on what the sources of clusters say. A caller with clusters gets those of these.
// @Success     200 {object} OverlayList "by cluster, the oldest first"
// @Router      /v1/overlays [get]
func (h *handlers) listOverlays(w *recorder, r *http.Request) error {
	return h.overlays(w, r, "")
}

// @Summary List the overlays of a cluster
// @Success 200 {object} OverlayList "the oldest first"
// @Router  /v1/clusters/{name}/overlays [get]
func (h *handlers) listClusterOverlays(w *recorder, r *http.Request) error {
	name, err := h.readServedNamed(w, r, "name")
	if err != nil {
		return err
	}
	return h.overlays(w, r, name)
}

func (h *handlers) overlays(w *recorder, r *http.Request, cluster string) error {
	if err := takeTurn(w, r); err != nil {
		return err
	}
	list, err := h.Overlays.States(cluster, scopeOf(w))
	return reply(w, OverlayList{Overlays: list}, err)
}

// @Summary     Get an overlay
// @Description With wait, lbd answers when the endpoints of a drain have no requests in flight any more, or after wait. With min_index, it waits for that first, within the same wait.
// @Param       wait query string false "maximum time to wait until a drain is complete, at most 5m" default(0s)
// @Success     200 {object} overlays.Overlay "the overlay"
// @Header      200 {string} ETag "for If-Match"
// @Router      /v1/clusters/{name}/overlays/{id} [get]
func (h *handlers) getOverlay(w *recorder, r *http.Request) error {
	var required requiredIndex
	name, err := readNamed(r, "name", required.parameters()...)
	if err != nil {
		return err
	}
	if err := h.awaitIndex(w, r, &required); err != nil {
		return err
	}
	id, err := pathText(r, "id")
	if err != nil {
		return err
	}
	state, err := h.awaitOverlay(w, r, name, id, required.wait)
	if err == nil {
		w.Header().Set("ETag", strongTag(state.ETag, ""))
	}
	return reply(w, state, err)
}

// awaitOverlay returns an overlay once it has drained its endpoints, or after a time.
func (h *handlers) awaitOverlay(w *recorder, r *http.Request, cluster, id string, wait time.Duration) (*overlays.Overlay, error) {
	if wait > 0 {
		allowWait(w, wait)
		if err := awaiting(w, r, func(ctx context.Context) error { return h.Overlays.AwaitDrained(ctx, cluster, id, wait) }); err != nil {
			return nil, err
		}
		setIndex(w)
	}
	return h.Overlays.State(cluster, id)
}

// @Summary     Put an overlay on a cluster
// @Description An operator's change of what the sources of a cluster say. It stays when a source changes, until it is deleted or expires: drain and disable do not expire by themselves, the other kinds after 1h. lbd answers when the overlay is durable and picks use it. An overlay may name an endpoint that does not exist yet. Of overlays that contradict each other, the newest is in effect. Rejected with code blocked if the cluster would have no usable endpoint.
// @Param       overlay       body   overlays.NewOverlay true "the overlay"
// @Param       wait          query  string false "maximum time to wait until a drain is complete, at most 5m" default(0s)
// @Param       allow_empty   query  bool   false "allow a cluster without usable endpoints"
// @Param       must_name     query  bool   false "reject an overlay of endpoints that names none of those that the cluster has now, with code unknown_endpoint" default(false)
// @Param       If-Match      header string false "ETags, one of which must match; * requires that the overlay exists"
// @Param       If-None-Match header string false "*: requires that the overlay does not exist"
// @Success     200 {object} OverlayAnswer "replaced or unchanged; with dry_run, what would change"
// @Success     201 {object} OverlayAnswer "created"
// @Failure     409 {object} Problem
// @Router      /v1/clusters/{name}/overlays/{id} [put]
func (h *handlers) putOverlay(w *recorder, r *http.Request) (err error) {
	q := &sources.OverlayRequest{}
	var wait time.Duration
	if q.ID, err = pathText(r, "id"); err != nil {
		return err
	}
	if q.Cluster, err = changeRequest(w, r, &q.Options, allowEmpty(&q.Options),
		parameter{name: "wait", set: func(v value) string { return v.duration(&wait, 0, MaxPoll) }},
		parameter{name: "must_name", set: func(v value) string { return v.boolean(&q.MustName) }},
	); err != nil {
		return err
	}
	if err := readJSON(w, r, MaxOverlayBytes, &q.Overlay); err != nil {
		return err
	}
	result, err := h.Changes.PutOverlay(reserving(w, r), q)
	if err != nil {
		return err
	}
	answer := OverlayAnswer{PushAnswer: pushAnswer(w, result)}
	if !q.Options.DryRun {
		answer.Overlay, err = h.awaitOverlay(w, r, q.Cluster, q.ID, wait)
		if e, ok := errors.AsType[*fault.Error](err); err != nil && (!ok || e.Code != fault.UnknownOverlay) {
			return err
		}
	}
	writeJSON(w, pushStatus(result, q.Options.DryRun), answer)
	return nil
}

// @Summary Delete an overlay
// @Param   If-Match header string false "ETags, one of which must match; * requires that the overlay exists"
// @Success 200 {object} PushAnswer "what changed"
// @Router  /v1/clusters/{name}/overlays/{id} [delete]
func (h *handlers) deleteOverlay(w *recorder, r *http.Request) error {
	var options sources.ChangeOptions
	name, err := changeRequest(w, r, &options)
	if err != nil {
		return err
	}
	id, err := pathText(r, "id")
	if err != nil {
		return err
	}
	result, err := h.Changes.DeleteOverlay(reserving(w, r), name, id, options)
	return writeResult(w, result, options.DryRun, err)
}
