package api

import (
	"cmp"
	"net/http"
	"time"

	"github.com/lbd-dev/lbd/service/history"
	"github.com/lbd-dev/lbd/service/observe"
)

// @Summary     Get a cluster's history
// @Description Picks by result, drops, requests in flight and the priority in use, in steps of 1s for 10 minutes and of 10s for 6 hours; less if the memory for all clusters (--history-bytes) is not enough. The history begins with the first pick and stays after the cluster is removed. A restart of lbd clears it.
// @Param       target query string false "the target whose picks are counted: xds:///NAME, or NAME alone" minlength(1) maxlength(512)
// @Param       since  query string false "omits the steps that ended before: a time, or an age such as 10m; default: the whole history" minlength(1) maxlength(64)
// @Param       step   query string false "the step; default: the finest that goes back to since" Enums(1s,10s)
// @Success     200 {object} observe.ClusterHistory "the history"
// @Router      /v1/clusters/{name}/history [get]
func (h *handlers) getClusterHistory(w http.ResponseWriter, r *http.Request) error {
	var request observe.HistoryRequest
	name, err := readNamed(r, "name",
		parameter{name: "target", set: func(v value) string { return v.name(&request.Target) }},
		parameter{name: "since", set: func(v value) string { return v.past(&request.Since) }},
		parameter{name: "step", set: func(v value) string { return v.step(&request.Step) }},
	)
	if err = cmp.Or(err, mayUseTarget(w, request.Target)); err != nil {
		return err
	}
	request.Cluster = name
	found, err := h.service.History(request)
	return reply(w, found, err)
}

// past stores a time, which may be given as an age.
func (v value) past(to *time.Time) string {
	if d, err := time.ParseDuration(v.text); err == nil && d >= 0 {
		*to = time.Now().Add(-d)
		return ""
	}
	at, err := time.Parse(time.RFC3339, v.text)
	if err != nil {
		return "a time such as 2006-01-02T15:04:05Z, or an age such as 10m"
	}
	*to = at
	return ""
}

// step stores a step of the history.
func (v value) step(to *time.Duration) string {
	switch v.text {
	case "1s":
		*to = history.Fine
	case "10s":
		*to = history.Coarse
	default:
		return "1s or 10s"
	}
	return ""
}
