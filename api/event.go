package api

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/service/observe"
)

const (
	// DefaultEvents is the default limit of a list of events.
	DefaultEvents = 100
	// MaxEvents is the maximum limit of a list of events.
	MaxEvents = 5000
)

// EventList lists events.
type EventList struct {
	// Events are sorted from newest to oldest.
	Events []observe.Event `json:"events"`
}

// @Summary     List events
// @Description The last events since lbd started, newest first. Connection events have a buffer of their own, so that many of them do not evict other events. A caller with clusters gets the events that name only clusters and targets that it may see, with the changes of resources of these names, and those of the daemon and of the connections to management servers.
// @Param       cluster query string   false "only events of this cluster, and pushes of several clusters that change its resources" minlength(1) maxlength(512)
// @Param       target  query string   false "only events of the tree of this target" minlength(1) maxlength(512)
// @Param       type    query []string false "only events of these types; repeatable" collectionFormat(multi) Enums(priority_switched,leaf_skipped,leaf_restored,state_changed,connection_changed,ejected,unejected,circuit_breaker_opened,circuit_breaker_closed,pushed,push_refused,overlay_set,overlay_ended,expiry_deferred,file_refused,file_accepted,file_changed,change_held,change_permitted,covered_changed,xds_changed,dns_changed,store_failing,store_recovered,xds_connected,xds_disconnected,xds_rejected,xds_resource_error,xds_fell_back,xds_returned,shortage_began,shortage_ended,leases_ended,streams_ended)
// @Param       limit   query int      false "maximum number of events" minimum(1) maximum(5000) default(100)
// @Success     200 {object} EventList "newest first"
// @Router      /v1/events [get]
func (h *handlers) listEvents(w *recorder, r *http.Request) error {
	f := observe.EventFilter{Limit: DefaultEvents}
	err := h.readEventFilter(w, r, &f,
		parameter{name: "limit", set: func(v value) string { return v.integer(&f.Limit, 1, MaxEvents) }},
	)
	if err != nil {
		return err
	}
	return reply(w, EventList{Events: orEmpty(h.Events(f))}, nil)
}

// readEventFilter reads a filter of events, whose scope is the caller's, and more parameters.
func (h *handlers) readEventFilter(w *recorder, r *http.Request, f *observe.EventFilter, more ...parameter) error {
	err := h.readServed(w, r, append(more,
		parameter{name: "cluster", set: func(v value) string { return v.name(&f.Cluster) }},
		parameter{name: "target", set: func(v value) string { return v.name(&f.Target) }},
		parameter{name: "type", repeats: true, set: func(v value) string { return eventType(&f.Types, v) }},
	)...)
	f.Scope = scopeOf(w)
	return cmp.Or(err, mayUseCluster(w, f.Cluster), mayUseTarget(w, f.Target))
}

// eventType appends an event type.
func eventType(to *[]observe.EventType, v value) string {
	names := make([]string, len(observe.EventTypes))
	for i, t := range observe.EventTypes {
		if names[i] = string(t); names[i] == v.text {
			if !slices.Contains(*to, t) {
				*to = append(*to, t)
			}
			return ""
		}
	}
	return "an event type: there are " + strings.Join(names, ", ")
}
