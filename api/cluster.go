package api

import (
	"net/http"
	"time"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
)

// Limits of questions about clusters.
const (
	// DefaultPoll is how long a long poll waits that does not say.
	DefaultPoll = 30 * time.Second
	// MaxPoll is the longest that it may wait.
	MaxPoll = 5 * time.Minute
	// MaxList is how many clusters one answer can be limited to.
	MaxList = 10_000
)

// ClusterList has a summary of each cluster.
type ClusterList struct {
	// Clusters are sorted by name, in byte order.
	Clusters []observe.ClusterSummary `json:"clusters"`
	// Next is what to ask for as after= for the rest; absent where there is
	// none.
	Next string `json:"next,omitempty"`
}

// clusters answers /v1/clusters.
type clusters struct{ service *service.Service }

// list answers with a summary of each cluster.
//
//	@Summary	List clusters
//	@ID			listClusters
//	@Tags		clusters
//	@Produce	json
//	@Param		prefix			query		string	false	"only clusters whose name begins so"					minlength(1)	maxlength(512)
//	@Param		limit			query		int		false	"at most so many"										minimum(1)		maximum(10000)
//	@Param		after			query		string	false	"only clusters whose name comes after this one"			minlength(1)	maxlength(512)
//	@Success	200				{object}	ClusterList	"sorted by name"
//	@Failure	400,414,500,503	{object}	Problem
//	@Router		/v1/clusters [get]
func (c *clusters) list(w http.ResponseWriter, r *http.Request) error {
	l, err := readListing(r.URL.RawQuery)
	if err != nil {
		return err
	}
	var list ClusterList
	list.Clusters, list.Next = part(l, c.service.Clusters(), func(s observe.ClusterSummary) string { return s.Name })
	writeJSON(w, http.StatusOK, list)
	return nil
}

// get answers with the state of a cluster.
//
//	@Summary		Look at a cluster
//	@Description	Without target it is described as the list has it: in its own tree, else in that of the first target that has it. With index, a long poll: the answer comes when the generation is another one, or unchanged when wait is over.
//	@ID				getCluster
//	@Tags			clusters
//	@Produce		json
//	@Param			name				path		string	true	"the cluster's name, percent-encoded"
//	@Param			target				query		string	false	"the target in whose tree it is looked at: xds:///NAME, or NAME alone"	minlength(1)	maxlength(512)
//	@Param			endpoints			query		bool	false	"false leaves the endpoints out"						default(true)
//	@Param			index				query		int		false	"the generation that is known already"					format(int64)
//	@Param			wait				query		string	false	"how long to wait for another, at most 5m; with index"	default(30s)
//	@Success		200					{object}	observe.ClusterState	"its state"
//	@Failure		400,404,414,500,503	{object}	Problem
//	@Router			/v1/clusters/{name} [get]
func (c *clusters) get(w http.ResponseWriter, r *http.Request) error {
	name, err := pathName(r, "name")
	if err != nil {
		return err
	}
	target := ""
	endpoints := true
	var index int64
	var indexed, waits bool
	wait := DefaultPoll
	known := []parameter{{name: "target"}, {name: "endpoints"}, {name: "index"}, {name: "wait"}}
	err = readQuery(r.URL.RawQuery, known, func(name string, v value) string {
		switch name {
		case "target":
			return v.name(&target)
		case "endpoints":
			return v.boolean(&endpoints)
		case "index":
			indexed = true
			return v.int64(&index)
		default:
			waits = true
			return v.duration(&wait, 0, MaxPoll)
		}
	})
	switch {
	case err != nil:
		return err
	case waits && !indexed:
		return refusal(fault.InvalidArgument, "wait: means something with index only: the generation that is known already")
	case indexed:
		liftWriteDeadline(w)
		if err := c.service.AwaitCluster(r.Context(), name, target, index, wait); err != nil {
			return err
		}
	}
	state, err := c.service.Cluster(r.Context(), name, target, endpoints)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, state)
	return nil
}
