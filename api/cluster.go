package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/timeline"
)

// DefaultPoll is the default wait of a long poll.
const DefaultPoll = 30 * time.Second

// ClusterList has a summary of each cluster.
type ClusterList struct {
	// Clusters are sorted by name, in byte order.
	Clusters []observe.ClusterSummary `json:"clusters"`
	// Next is the value of after= for the next part; absent if this is the last one.
	Next string `json:"next,omitempty"`
}

// Reconnecting says to which endpoints lbd connects now.
type Reconnecting struct {
	// Endpoints is how many were waiting for their next attempt.
	Endpoints int `json:"endpoints" example:"3"`
}

// @Summary List clusters
// @Param   prefix query string false "only clusters whose name begins with this" minlength(1) maxlength(512)
// @Param   limit  query int    false "maximum number of clusters" minimum(1) maximum(10000)
// @Param   after  query string false "only clusters whose name sorts after this one" minlength(1) maxlength(512)
// @Success 200 {object} ClusterList "sorted by name"
// @Router  /v1/clusters [get]
func (h *handlers) listClusters(w *recorder, r *http.Request) error {
	l, err := h.readListing(w, r)
	if err != nil {
		return err
	}
	var list ClusterList
	scope := scopeOf(w)
	list.Clusters, list.Next = part(l, h.State.Clusters(), scope.Cluster, func(s observe.ClusterSummary) string { return s.Name })
	for i := range list.Clusters {
		list.Clusters[i] = list.Clusters[i].Within(scope)
	}
	return reply(w, list, nil)
}

// @Summary     Get the state of a cluster
// @Description Without target, the state is that of the cluster's own tree, else of the first target that has the cluster, as in the list. With index, this is a long poll: lbd answers when the generation changes, or with the unchanged state after wait. With min_index, it waits for that first, within the same wait; without index and wait, it does not wait.
// @Param       target    query string false "the target whose tree is described: xds:///NAME, or NAME alone" minlength(1) maxlength(512)
// @Param       endpoints query bool   false "false omits the endpoints" default(true)
// @Param       index     query int    false "the generation that the caller has" format(int64)
// @Param       wait      query string false "maximum time to wait for a change, at most 5m; only with index or min_index" default(30s)
// @Success     200 {object} observe.ClusterState "the state"
// @Router      /v1/clusters/{name} [get]
func (h *handlers) getCluster(w *recorder, r *http.Request) error {
	var (
		target   string
		index    int64
		indexed  bool
		required requiredIndex
	)
	endpoints := true
	name, err := readNamed(r, "name", append(required.parameters(),
		parameter{name: "target", set: func(v value) string { return v.name(&target) }},
		parameter{name: "endpoints", set: func(v value) string { return v.boolean(&endpoints) }},
		parameter{name: "index", set: func(v value) string {
			indexed = true
			return v.int64(&index)
		}},
	)...)
	if err = cmp.Or(err, mayUseTarget(w, target)); err != nil {
		return err
	}
	if required.waits && !indexed && !required.given {
		return fault.Errorf(fault.InvalidArgument, "wait is only valid with index or min_index")
	}
	if err := h.awaitIndex(w, r, &required); err != nil {
		return err
	}
	if indexed {
		wait := DefaultPoll
		if required.waits {
			wait = required.wait
		}
		allowWait(w, wait)
		if err := awaiting(w, r, func(ctx context.Context) error { return h.State.AwaitCluster(ctx, name, target, index, wait) }); err != nil {
			return err
		}
		setIndex(w)
	}
	described := 0
	if endpoints {
		described = h.State.CountEndpoints(name, target)
	}
	if described > overload.SmallClusters { // without a turn: it waits for the tree
		if err := w.takeSlot(r.Context(), w.router.describing); err != nil {
			return err
		}
		if err := w.reserve(int64(described) * endpointBytes); err != nil {
			return err
		}
	}
	state, err := h.State.Cluster(r.Context(), name, target, endpoints)
	if err != nil {
		return err
	}
	if err := takeTurnOf(w, r, described, 0); err != nil { // its bytes are reserved
		return err
	}
	return reply(w, state.Within(scopeOf(w)), nil)
}

// @Summary     Get a cluster's history
// @Description Picks by result, drops, requests in flight and the priority in use, in steps of 1s for 10 minutes and of 10s for 6 hours; less if the memory for all clusters (--history-bytes) is not enough. The history begins with the first pick and stays after the cluster is removed. A restart of lbd clears it.
// @Param       target query string false "the target whose picks are counted: xds:///NAME, or NAME alone" minlength(1) maxlength(512)
// @Param       since  query string false "omits the steps that ended before: a time, or an age such as 10m; default: the whole history" minlength(1) maxlength(64)
// @Param       step   query string false "the step; default: the finest that goes back to since" Enums(1s,10s)
// @Success     200 {object} observe.ClusterTimeline "the history"
// @Router      /v1/clusters/{name}/history [get]
func (h *handlers) getClusterHistory(w *recorder, r *http.Request) error {
	var request observe.TimelineRequest
	name, err := h.readServedNamed(w, r, "name",
		parameter{name: "target", set: func(v value) string { return v.name(&request.Target) }},
		parameter{name: "since", set: func(v value) string { return v.past(&request.Since) }},
		parameter{name: "step", set: func(v value) string { return v.step(&request.Step) }},
	)
	if err = cmp.Or(err, mayUseTarget(w, request.Target)); err != nil {
		return err
	}
	request.Cluster = name
	found, err := h.Timeline(request)
	if err != nil {
		return err
	}
	return reply(w, found.Within(scopeOf(w)), nil)
}

// @Summary     Connect to the endpoints of a cluster now
// @Description Ends the back-off of the endpoints that lbd could not connect to, in the trees of this daemon that have the cluster: they are dialed at once, and with the shortest back-off if that fails. Endpoints of an AGGREGATE are those of its leaves.
// @Success     200 {object} Reconnecting "to how many endpoints lbd connects"
// @Router      /v1/clusters/{name}/reconnect [post]
func (h *handlers) reconnectCluster(w *recorder, r *http.Request) error {
	name, err := readNamed(r, "name")
	if err = cmp.Or(err, emptyBody(w, r)); err != nil {
		return err
	}
	var out Reconnecting
	if out.Endpoints, err = h.Reconnect(name); err != nil {
		return err
	}
	w.changes = out
	return reply(w, out, nil)
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

// step stores a step of the timeline.
func (v value) step(to *time.Duration) string {
	switch v.text {
	case "1s":
		*to = timeline.Fine
	case "10s":
		*to = timeline.Coarse
	default:
		return "1s or 10s"
	}
	return ""
}
