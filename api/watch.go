package api

import (
	"net/http"
	"time"

	"github.com/lbd-dev/lbd/service/observe"
)

// Heartbeat tells that a stream is alive.
type Heartbeat struct {
	Time time.Time `json:"time"` // by the daemon's clock
}

// ClusterStream has what the data of each event is in the stream of a cluster, by
// the event's name.
type ClusterStream struct {
	// Heartbeat comes when the stream opens, and whenever it was silent for 15 s.
	Heartbeat *Heartbeat `json:"heartbeat,omitempty"`
	// State comes at first, and whenever the state is another.
	State *observe.ClusterState `json:"state,omitempty"`
	// Counts come at first, and at most once a second.
	Counts *observe.ClusterCounts `json:"counts,omitempty"`
	// Gone comes last, where the cluster is no more.
	Gone *Nothing `json:"gone,omitempty"`
}

// ClustersStream has what the data of each event is in the stream of all clusters,
// by the event's name.
type ClustersStream struct {
	// Heartbeat comes when the stream opens, and whenever it was silent for 15 s.
	Heartbeat *Heartbeat `json:"heartbeat,omitempty"`
	// Resync replaces all that was known.
	Resync *WatchedClusters `json:"resync,omitempty"`
	// Update comes at most once a second.
	Update *ClustersUpdate `json:"update,omitempty"`
}

// EventsStream has what the data of each event is in the stream of events, by the
// event's name.
type EventsStream struct {
	// Heartbeat comes when the stream opens, and whenever it was silent for 15 s.
	Heartbeat *Heartbeat     `json:"heartbeat,omitempty"`
	Event     *observe.Event `json:"event,omitempty"`
	// Resync tells that events were missed: GET /v1/events has those that are
	// remembered.
	Resync *Nothing `json:"resync,omitempty"`
}

// WatchedClusters are clusters with their counts.
type WatchedClusters struct {
	// Clusters are sorted by name, in byte order.
	Clusters []observe.WatchedCluster `json:"clusters"`
}

// ClustersUpdate is what changed.
type ClustersUpdate struct {
	WatchedClusters

	// Removed are the names of the clusters that are no more.
	Removed []string `json:"removed"`
}

// Nothing is {}.
type Nothing struct{}

// watch answers with a stream of a cluster's states.
//
//	@Summary		Watch a cluster
//	@Description	Server-sent events. "state" has what GET of the cluster answers: at once, and then whenever it is another one, at most every 100 ms. Its id is the generation, a dot, and what tells the generation's states from each other. "counts", without id, has what was counted: at once, and once a second if it is another. "gone" comes last, when the cluster is no more. Last-Event-ID may be an id or a generation: that state is not sent again. "heartbeat", without id, comes when the stream opens, and when there was nothing for 15 s.
//	@ID				watchCluster
//	@Tags			clusters
//	@Produce		text/event-stream
//	@Param			name					path		string	true	"the cluster's name, percent-encoded"
//	@Param			target					query		string	false	"the target in whose tree it is watched: xds:///NAME, or NAME alone"	minlength(1)	maxlength(512)
//	@Param			endpoints				query		bool	false	"false leaves the endpoints out"	default(true)
//	@Param			last_event_id			query		string	false	"as Last-Event-ID, for those who cannot send it"	minlength(1)	maxlength(64)
//	@Param			Last-Event-ID			header		string	false	"the id of the last event that was received"
//	@Success		200						{object}	ClusterStream	"what data is, by event"
//	@Failure		400,404,414,429,500,503	{object}	Problem
//	@Router			/v1/clusters/{name}/watch [get]
func (c *clusters) watch(w http.ResponseWriter, r *http.Request) error {
	name, err := pathName(r, "name")
	if err != nil {
		return err
	}
	var target, last string
	endpoints := true
	known := []parameter{{name: "target"}, {name: "endpoints"}, {name: "last_event_id"}}
	err = readQuery(r.URL.RawQuery, known, func(name string, v value) string {
		switch name {
		case "target":
			return v.name(&target)
		case "endpoints":
			return v.boolean(&endpoints)
		default:
			return v.limited(&last, maxEventIDBytes)
		}
	})
	if err != nil {
		return err
	}
	return stream(w, r, c.service, func() (*observe.Watch, error) {
		return c.service.WatchCluster(name, target, endpoints, lastEventID(r, last))
	})
}

// watchAll answers with a stream of all clusters.
//
//	@Summary		Watch all clusters
//	@Description	Server-sent events. "resync" has all clusters, in short; "update", at most once a second, those that changed and the names of those that are no more. Both have an id. After a Last-Event-ID that is still known there is no resync, only what changed since. "heartbeat", without id, comes when the stream opens, and when there was nothing for 15 s. A cluster of the name "watch" is at /v1/clusters/%77atch.
//	@ID				watchClusters
//	@Tags			clusters
//	@Produce		text/event-stream
//	@Param			prefix				query		string	false	"only clusters whose name begins so"	minlength(1)	maxlength(512)
//	@Param			last_event_id		query		string	false	"as Last-Event-ID, for those who cannot send it"	minlength(1)	maxlength(64)
//	@Param			Last-Event-ID		header		string	false	"the id of the last event that was received"
//	@Success		200					{object}	ClustersStream	"what data is, by event"
//	@Failure		400,414,429,500,503	{object}	Problem
//	@Router			/v1/clusters/watch [get]
func (c *clusters) watchAll(w http.ResponseWriter, r *http.Request) error {
	var prefix, last string
	known := []parameter{{name: "prefix"}, {name: "last_event_id"}}
	err := readQuery(r.URL.RawQuery, known, func(name string, v value) string {
		if name == "prefix" {
			return v.name(&prefix)
		}
		return v.limited(&last, maxEventIDBytes)
	})
	if err != nil {
		return err
	}
	return stream(w, r, c.service, func() (*observe.Watch, error) {
		return c.service.WatchClusters(prefix, lastEventID(r, last))
	})
}

// watch answers with a stream of events.
//
//	@Summary		Watch what happens
//	@Description	Server-sent events. "event" has one event, under its id, the oldest first: those after Last-Event-ID, else the last so many and all that come. "resync" tells that events after Last-Event-ID are forgotten, or that it is another process's: GET /v1/events has those that are remembered. "heartbeat", without id, comes when the stream opens, and when there was nothing for 15 s.
//	@ID				watchEvents
//	@Tags			daemon
//	@Produce		text/event-stream
//	@Param			cluster				query		string		false	"only those of this cluster, and pushes of several that list a change of its resources"	minlength(1)	maxlength(512)
//	@Param			target				query		string		false	"only those of the tree of this target"	minlength(1)	maxlength(512)
//	@Param			type				query		[]string	false	"only those of these types; repeatable"	collectionFormat(multi)	Enums(priority_switched,leaf_skipped,leaf_restored,state_changed,connection_changed,ejected,unejected,circuit_breaker_opened,circuit_breaker_closed,pushed,push_refused,file_refused,file_accepted,file_changed,change_held,change_permitted,xds_changed,dns_changed,store_failing,store_recovered,xds_connected,xds_disconnected,xds_rejected,xds_resource_error,xds_fell_back,xds_returned,shortage_began,shortage_ended)
//	@Param			last				query		int			false	"begin with so many of the past"	minimum(0)	maximum(1000)	default(0)
//	@Param			last_event_id		query		string		false	"as Last-Event-ID, for those who cannot send it; last is not heeded then"	minlength(1)	maxlength(64)
//	@Param			Last-Event-ID		header		string		false	"the id of the last event that was received"
//	@Success		200					{object}	EventsStream	"what data is, by event"
//	@Failure		400,414,429,500,503	{object}	Problem
//	@Router			/v1/events/watch [get]
func (e *events) watch(w http.ResponseWriter, r *http.Request) error {
	var f observe.EventFilter
	var last string
	known := []parameter{{name: "cluster"}, {name: "target"}, {name: "type", repeats: true}, {name: "last"}, {name: "last_event_id"}}
	err := readQuery(r.URL.RawQuery, known, func(name string, v value) string {
		switch name {
		case "cluster":
			return v.name(&f.Cluster)
		case "target":
			return v.name(&f.Target)
		case "type":
			return eventType(&f.Types, v)
		case "last":
			return v.integer(&f.Limit, 0, observe.MaxLastEvents)
		default:
			return v.limited(&last, maxEventIDBytes)
		}
	})
	if err != nil {
		return err
	}
	return stream(w, r, e.service, func() (*observe.Watch, error) {
		return e.service.WatchEvents(f, lastEventID(r, last))
	})
}
