package api

import (
	"net/http"

	"github.com/lbd-dev/lbd/service/observe"
)

// DaemonStream has the data of each event of the daemon's stream, by event name.
type DaemonStream struct {
	// Heartbeat is sent when the stream opens, and after 15 s without another event.
	Heartbeat *Heartbeat `json:"heartbeat,omitempty"`
	// Daemon is sent first, and whenever it changes.
	Daemon *observe.DaemonState `json:"daemon,omitempty"`
}

// @Summary     Get the daemon's state
// @Description Its name, version and start time, and its conditions: problems of the whole daemon, such as an unreachable management server, rejected resources, invalid files, held changes, a shortage of file descriptors, or a failing store. At most 10 conditions of each kind are listed. A caller with clusters does not get those about other resources and about files.
// @Success     200 {object} observe.DaemonState "the daemon's state"
// @Router      /v1/daemon [get]
func (h *handlers) getDaemon(w *recorder, _ *http.Request) error {
	return reply(w, h.State.Daemon(scopeOf(w)), nil)
}

// @Summary     Watch the daemon's state
// @Description Server-sent events without id. "daemon" has the state; it is sent first, and after changes, at most once a second. "heartbeat" is sent when the stream opens, and after 15 s without another event.
// @Produce     text/event-stream
// @Success     200     {object} DaemonStream "the data of each event, by event name"
// @Router      /v1/daemon/watch [get]
func (h *handlers) watchDaemon(w *recorder, r *http.Request) error {
	return stream(w, r, func() (*observe.Watch, error) { return h.Watches.WatchDaemon(scopeOf(w)) })
}
