package api

import (
	"context"
	"net/http"
	"time"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/doctor"
	"github.com/lbd-dev/lbd/service/fault"
)

// ExamineTime is the maximum time that GET /v1/doctor takes.
const ExamineTime = 10 * time.Second

// beginTime is the time in which it begins: the rest is for the examination, which says nothing without time.
const beginTime = 9 * time.Second

// @Summary     Examine the daemon or a cluster
// @Description Checks the daemon, its sources and its clusters, and says what is wrong and what to do. Problems come first, and the first one is the cause of others. Without cluster, the clusters that have a problem are examined, at most 10. One request is examined at a time; the others wait. A caller with clusters gets the checks of these, and none of files.
// @Param       cluster query string false "examines this cluster in detail" minlength(1) maxlength(512)
// @Param       dial    query bool   false "with cluster: connects to its endpoints, at most 100, and reports errors and certificates"
// @Success     200     {object} doctor.Report "the checks, problems first"
// @Router      /v1/doctor [get]
func (h *handlers) getDoctor(w *recorder, r *http.Request) error {
	e := &service.Examination{Scope: scopeOf(w), Caller: describeCaller(w)}
	if err := h.readServed(w, r,
		parameter{name: "cluster", set: func(v value) string { return v.name(&e.Cluster) }},
		parameter{name: "dial", set: func(v value) string { return v.boolean(&e.Dial) }},
	); err != nil {
		return err
	}
	if err := mayUseCluster(w, e.Cluster); err != nil {
		return err
	}
	if w.loop != nil {
		return errHandOver
	}
	allowWait(w, ExamineTime)
	ctx, cancel := context.WithTimeout(r.Context(), ExamineTime)
	defer cancel()
	waiting, stop := context.WithTimeout(ctx, beginTime)
	defer stop()
	if err := w.takeSlot(waiting, w.router.examining); err != nil {
		return busy(r, err)
	}
	tried, notTried := h.Doctor.Attempts(ctx, e) // before the turn: it waits for endpoints
	if err := takeTurn(w, r.WithContext(ctx)); err != nil {
		return busy(r, err)
	}
	return reply(w, h.Doctor.Examine(ctx, e, tried, notTried), nil)
}

// busy returns the error of an examination that does not begin in time.
func busy(r *http.Request, err error) error {
	if r.Context().Err() != nil {
		return err
	}
	return fault.Errorf(overloaded, "other examinations are running").Retry(retryAfter)
}

// describeCaller describes the caller of the request that w answers.
func describeCaller(w *recorder) *doctor.Caller {
	c, policy := w.caller, w.policy
	if c == nil {
		return nil
	}
	out := &doctor.Caller{Name: c.Name, Roles: []string{}, Restricted: c.Restricted()}
	for _, name := range access.All.Names() {
		if role, err := access.ParseRoles(name); err == nil && listen.Require(c, policy, role) == nil {
			out.Roles = append(out.Roles, name)
		}
	}
	if !c.Expires.IsZero() {
		out.Expires = &c.Expires
	}
	return out
}
