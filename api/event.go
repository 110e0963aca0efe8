package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/observe"
)

// Limits of questions about events.
const (
	// DefaultEvents is how many events an answer has at most that does not say.
	DefaultEvents = 100
	// MaxEvents is how many it can be limited to.
	MaxEvents = 5000
)

// EventList has events.
type EventList struct {
	// Events are the newest first.
	Events []observe.Event `json:"events"`
}

// events answers /v1/events.
type events struct{ service *service.Service }

// list answers with the last events.
//
//	@Summary		List what happened
//	@Description	The last events of the process, the newest first; those of connections are forgotten apart from the others, so that many of them push nothing else out.
//	@ID				listEvents
//	@Tags			daemon
//	@Produce		json
//	@Param			cluster		query		string		false	"only those of this cluster, and pushes of several that list a change of its resources"	minlength(1)	maxlength(512)
//	@Param			target		query		string		false	"only those of the tree of this target"	minlength(1)	maxlength(512)
//	@Param			type		query		[]string	false	"only those of these types; repeatable"	collectionFormat(multi)	Enums(priority_switched,leaf_skipped,leaf_restored,state_changed,connection_changed,ejected,unejected,circuit_breaker_opened,circuit_breaker_closed,pushed,push_refused,file_refused,file_accepted,file_changed,change_held,change_permitted,xds_changed,dns_changed,store_failing,store_recovered,xds_connected,xds_disconnected,xds_rejected,xds_resource_error,xds_fell_back,xds_returned,shortage_began,shortage_ended)
//	@Param			limit		query		int			false	"at most so many"				minimum(1)	maximum(5000)	default(100)
//	@Success		200			{object}	EventList	"the newest first"
//	@Failure		400,414,500	{object}	Problem
//	@Router			/v1/events [get]
func (e *events) list(w http.ResponseWriter, r *http.Request) error {
	f := observe.EventFilter{Limit: DefaultEvents}
	known := []parameter{{name: "cluster"}, {name: "target"}, {name: "type", repeats: true}, {name: "limit"}}
	err := readQuery(r.URL.RawQuery, known, func(name string, v value) string {
		switch name {
		case "cluster":
			return v.name(&f.Cluster)
		case "target":
			return v.name(&f.Target)
		case "type":
			return eventType(&f.Types, v)
		default:
			return v.integer(&f.Limit, 1, MaxEvents)
		}
	})
	if err != nil {
		return err
	}
	list := EventList{Events: e.service.Events(f)}
	if list.Events == nil {
		list.Events = []observe.Event{}
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// eventType appends a type of events.
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
	return "a type of events: there are " + strings.Join(names, ", ")
}
