package api

import (
	"net/http"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/observe"
)

// DaemonStream has the data of each event of the daemon's stream, by event name.
type DaemonStream struct {
	// Heartbeat is sent when the stream opens, and after 15 s without another event.
	Heartbeat *Heartbeat `json:"heartbeat,omitempty"`
	// Daemon is sent first, and whenever it changes.
	Daemon *observe.DaemonState `json:"daemon,omitempty"`
}

// daemon serves /v1/daemon.
type daemon struct{ service *service.Service }

// get returns the state of the daemon.
//
//	@Summary		Get the daemon's state
//	@Description	Its name, version and start time, and its conditions: problems of the whole daemon, such as an unreachable management server, rejected resources, invalid files, held changes, a shortage of file descriptors, or a failing store. At most 10 conditions of each kind are listed.
//	@ID				getDaemon
//	@Tags			daemon
//	@Produce		json
//	@Success		200			{object}	observe.DaemonState	"the daemon's state"
//	@Failure		400,414,500	{object}	Problem
//	@Router			/v1/daemon [get]
func (d *daemon) get(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r.URL.RawQuery); err != nil {
		return err
	}
	return reply(w, d.service.Daemon(), nil)
}

// watch streams the state of the daemon.
//
//	@Summary		Watch the daemon's state
//	@Description	Server-sent events without id. "daemon" has the state; it is sent first, and after changes, at most once a second. "heartbeat" is sent when the stream opens, and after 15 s without another event.
//	@ID				watchDaemon
//	@Tags			daemon
//	@Produce		text/event-stream
//	@Success		200					{object}	DaemonStream	"the data of each event, by event name"
//	@Failure		400,414,429,500,503	{object}	Problem
//	@Router			/v1/daemon/watch [get]
func (d *daemon) watch(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r.URL.RawQuery); err != nil {
		return err
	}
	return stream(w, r, d.service, d.service.WatchDaemon)
}
