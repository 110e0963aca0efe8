package api

import (
	"net/http"
	"time"

	"github.com/lbd-dev/lbd/service/history"
	"github.com/lbd-dev/lbd/service/observe"
)

// history answers with what happened to a cluster lately.
//
//	@Summary		Get a cluster's history
//	@Description	Picks by result, drops, requests in flight and the priority in use, in steps: of 1s for 10 minutes and of 10s for 6 hours, less where the budget of all clusters (--history-bytes) does not suffice. It begins with the first pick, ends with the daemon, and outlives the cluster.
//	@ID				getClusterHistory
//	@Tags			clusters
//	@Produce		json
//	@Param			name				path		string	true	"the cluster's name, percent-encoded"
//	@Param			target				query		string	false	"the target in whose tree picks are counted: xds:///NAME, or NAME alone"	minlength(1)	maxlength(512)
//	@Param			since				query		string	false	"leaves out the steps that ended before: a time, or how long ago, such as 10m; default all that is kept"	minlength(1)	maxlength(64)
//	@Param			step				query		string	false	"the step; default the finest that goes back to since"	Enums(1s,10s)
//	@Success		200					{object}	observe.ClusterHistory	"its history"
//	@Failure		400,404,414,500		{object}	Problem
//	@Router			/v1/clusters/{name}/history [get]
func (c *clusters) history(w http.ResponseWriter, r *http.Request) error {
	name, err := pathName(r, "name")
	if err != nil {
		return err
	}
	request := observe.HistoryRequest{Cluster: name}
	known := []parameter{{name: "target"}, {name: "since"}, {name: "step"}}
	err = readQuery(r.URL.RawQuery, known, func(name string, v value) string {
		switch name {
		case "target":
			return v.name(&request.Target)
		case "since":
			return v.past(&request.Since)
		default:
			return v.step(&request.Step)
		}
	})
	if err != nil {
		return err
	}
	found, err := c.service.History(request)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, found)
	return nil
}

// past takes a time, or how long ago it was.
func (v value) past(to *time.Time) string {
	if d, err := time.ParseDuration(v.text); err == nil && d >= 0 {
		*to = time.Now().Add(-d)
		return ""
	}
	at, err := time.Parse(time.RFC3339, v.text)
	if err != nil {
		return "a time such as 2006-01-02T15:04:05Z, or how long ago it was, such as 10m"
	}
	*to = at
	return ""
}

// step takes a step of the history.
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
