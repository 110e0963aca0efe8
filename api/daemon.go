package api

import (
	"net/http"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/observe"
)

// DaemonStream has the type of data for each event of the daemon's stream, by the
// event's name.
type DaemonStream struct {
	// Heartbeat comes when the stream opens, and whenever it was silent for 15 s.
	Heartbeat *Heartbeat `json:"heartbeat,omitempty"`
	// Daemon comes first, and then whenever it changes.
	Daemon *observe.DaemonState `json:"daemon,omitempty"`
}

// daemon answers /v1/daemon.
type daemon struct{ service *service.Service }

// get answers with the daemon's state.
//
//	@Summary		Get the daemon's state
//	@Description	Its name, its version, when it started, and the problems that it has as a whole: a management server that cannot be reached, rejected resources, bad files, held changes, a shortage of lbd's own, a failing store. At most 10 of each kind are listed.
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
	writeJSON(w, http.StatusOK, d.service.Daemon())
	return nil
}

// watch answers with a stream of the daemon's states.
//
//	@Summary		Watch the daemon's state
//	@Description	Server-sent events. "daemon", without id, has the whole state: at once, and then when it changes, at most once a second. "heartbeat", without id, comes when the stream opens, and when there was nothing for 15 s.
//	@ID				watchDaemon
//	@Tags			daemon
//	@Produce		text/event-stream
//	@Success		200					{object}	DaemonStream	"what data is, by event"
//	@Failure		400,414,429,500,503	{object}	Problem
//	@Router			/v1/daemon/watch [get]
func (d *daemon) watch(w http.ResponseWriter, r *http.Request) error {
	if err := noQuery(r.URL.RawQuery); err != nil {
		return err
	}
	return stream(w, r, d.service, d.service.WatchDaemon)
}
