package api

import (
	"cmp"
	"net/http"
	"time"

	"github.com/lbd-dev/lbd/service/observe"
)

// Heartbeat shows that a stream is alive.
type Heartbeat struct {
	Time time.Time `json:"time"` // of the daemon's clock
}

// ClusterStream has the data of each event of the stream of a cluster, by event name.
type ClusterStream struct {
	// Heartbeat is sent when the stream opens, and after 15 s without another event.
	Heartbeat *Heartbeat `json:"heartbeat,omitempty"`
	// State is sent first, and whenever the state changes.
	State *observe.ClusterState `json:"state,omitempty"`
	// Counts are sent first, and at most once a second.
	Counts *observe.ClusterCounts `json:"counts,omitempty"`
	// Gone is sent last, when the cluster is removed.
	Gone *Nothing `json:"gone,omitempty"`
}

// ClustersStream has the data of each event of the stream of all clusters, by event name.
type ClustersStream struct {
	// Heartbeat is sent when the stream opens, and after 15 s without another event.
	Heartbeat *Heartbeat `json:"heartbeat,omitempty"`
	// Resync replaces all clusters that the reader knows.
	Resync *WatchedClusters `json:"resync,omitempty"`
	// Update is sent at most once a second.
	Update *ClustersUpdate `json:"update,omitempty"`
}

// EventsStream has the data of each event of the stream of events, by event name.
type EventsStream struct {
	// Heartbeat is sent when the stream opens, and after 15 s without another event.
	Heartbeat *Heartbeat     `json:"heartbeat,omitempty"`
	Event     *observe.Event `json:"event,omitempty"`
	// Resync means that events were missed: GET /v1/events has those that lbd keeps.
	Resync *Nothing `json:"resync,omitempty"`
}

// WatchedClusters are clusters with their counts.
type WatchedClusters struct {
	// Clusters are sorted by name, in byte order.
	Clusters []observe.WatchedCluster `json:"clusters"`
}

// ClustersUpdate has the changes since the last message.
type ClustersUpdate struct {
	WatchedClusters

	// Removed has the names of removed clusters.
	Removed []string `json:"removed"`
}

// Nothing is {}.
type Nothing struct{}

// @Summary     Watch a cluster
// @Description Server-sent events. "state" has the response of GET /v1/clusters/NAME; it is sent first, and after changes, at most every 100 ms. Its id is the generation, a dot, and a suffix for the state within the generation. "counts", without id, has counters; it is sent first, and after changes, at most once a second. "gone" is sent last, when the cluster is removed. Last-Event-ID may be an id or a generation: that state is not sent again. "heartbeat" is sent when the stream opens, and after 15 s without another event.
// @Produce     text/event-stream
// @Param       target        query  string false "the target whose tree is watched: xds:///NAME, or NAME alone" minlength(1) maxlength(512)
// @Param       endpoints     query  bool   false "false omits the endpoints" default(true)
// @Param       last_event_id query  string false "as Last-Event-ID, for callers that cannot send headers" minlength(1) maxlength(64)
// @Success     200     {object} ClusterStream "the data of each event, by event name"
// @Router      /v1/clusters/{name}/watch [get]
func (h *handlers) watchCluster(w *recorder, r *http.Request) error {
	target, endpoints, last := "", true, r.Header.Get("Last-Event-ID")
	name, err := h.readServedNamed(w, r, "name", lastEventID(&last),
		parameter{name: "target", set: func(v value) string { return v.name(&target) }},
		parameter{name: "endpoints", set: func(v value) string { return v.boolean(&endpoints) }},
	)
	if err = cmp.Or(err, mayUseTarget(w, target)); err != nil {
		return err
	}
	return stream(w, r, func() (*observe.Watch, error) {
		return h.Watches.WatchCluster(scopeOf(w), name, target, endpoints, last)
	})
}

// @Summary     Watch all clusters
// @Description Server-sent events. "resync" has a summary of all clusters; "update", at most once a second, has the clusters that changed and the names of removed clusters. Both have an id. After a Last-Event-ID that lbd still knows, there is no resync, only the changes since then. "heartbeat" is sent when the stream opens, and after 15 s without another event. Callers with clusters get only these. The state of a cluster with the name "watch" is at /v1/clusters/%77atch.
// @Produce     text/event-stream
// @Param       prefix        query  string false "only clusters whose name begins with this" minlength(1) maxlength(512)
// @Param       last_event_id query  string false "as Last-Event-ID, for callers that cannot send headers" minlength(1) maxlength(64)
// @Success     200     {object} ClustersStream "the data of each event, by event name"
// @Router      /v1/clusters/watch [get]
func (h *handlers) watchClusters(w *recorder, r *http.Request) error {
	prefix, last := "", r.Header.Get("Last-Event-ID")
	err := h.readServed(w, r, lastEventID(&last),
		parameter{name: "prefix", set: func(v value) string { return v.name(&prefix) }},
	)
	if err != nil {
		return err
	}
	return stream(w, r, func() (*observe.Watch, error) { return h.Watches.WatchClusters(scopeOf(w), prefix, last) })
}

// @Summary     Watch events
// @Description Server-sent events. "event" has one event and its id, oldest first: events after Last-Event-ID, or else the last past events (see last), then new ones. "resync" means that lbd no longer has the events after Last-Event-ID, or has restarted: GET /v1/events has those that lbd keeps. "heartbeat" is sent when the stream opens, and after 15 s without another event; its id, if it has one, resumes the stream after events that were not selected. Callers with clusters get the same events as from GET /v1/events.
// @Produce     text/event-stream
// @Param       cluster       query  string   false "only events of this cluster, and pushes of several clusters that change its resources" minlength(1) maxlength(512)
// @Param       target        query  string   false "only events of the tree of this target" minlength(1) maxlength(512)
// @Param       type          query  []string false "only events of these types; repeatable" collectionFormat(multi) Enums(priority_switched,leaf_skipped,leaf_restored,state_changed,connection_changed,ejected,unejected,circuit_breaker_opened,circuit_breaker_closed,pushed,push_refused,overlay_set,overlay_ended,expiry_deferred,file_refused,file_accepted,file_changed,change_held,change_permitted,covered_changed,xds_changed,dns_changed,store_failing,store_recovered,xds_connected,xds_disconnected,xds_rejected,xds_resource_error,xds_fell_back,xds_returned,shortage_began,shortage_ended,leases_ended,streams_ended)
// @Param       last          query  int      false "number of past events to begin with" minimum(0) maximum(1000) default(0)
// @Param       last_event_id query  string   false "as Last-Event-ID, for callers that cannot send headers; last is ignored then" minlength(1) maxlength(64)
// @Success     200     {object} EventsStream "the data of each event, by event name"
// @Router      /v1/events/watch [get]
func (h *handlers) watchEvents(w *recorder, r *http.Request) error {
	var f observe.EventFilter
	last := r.Header.Get("Last-Event-ID")
	err := h.readEventFilter(w, r, &f, lastEventID(&last),
		parameter{name: "last", set: func(v value) string { return v.integer(&f.Limit, 0, observe.MaxLastEvents) }},
	)
	if err != nil {
		return err
	}
	return stream(w, r, func() (*observe.Watch, error) { return h.Watches.WatchEvents(f, last) })
}
