package observe

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb"
)

// daemonInterval is the interval in which the sources of conditions are called for
// watchers of the daemon.
const daemonInterval = time.Second

// DaemonState says which daemon this is, and which problems it has as a whole.
type DaemonState struct {
	// Name is --name, or the host's name.
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Started time.Time `json:"started_at"`
	// Conditions are the current problems of the daemon, the most urgent first.
	Conditions []Condition `json:"conditions"`
}

// Daemon returns the daemon's state.
func (s *State) Daemon() DaemonState {
	return DaemonState{Name: s.options.Name, Version: s.options.Version, Started: s.started, Conditions: s.Conditions()}
}

// WatchDaemon watches the daemon's state: a message "daemon" has the whole
// [DaemonState], at once and then when it changes, at most once a second. It
// fails with RateLimited and ShuttingDown.
func (ws *Watches) WatchDaemon() (*Watch, error) {
	return ws.admit(func() (reader, *sharedFeed, error) {
		f, shared := join(ws, "daemon", func() *daemonFeed { return &daemonFeed{state: ws.state} })
		return &daemonReader{feed: f}, shared, nil
	})
}

// daemonFeed is the feed of the daemon's state.
type daemonFeed struct {
	state   *State
	current atomic.Pointer[daemonView] // nil before the first look
	changed lb.Signal                  // notified after current was replaced
}

// daemonView is one state, encoded once for all. It is never changed.
type daemonView struct {
	conditions []Condition
	data       []byte
}

func (f *daemonFeed) run(ctx context.Context) {
	every(ctx, daemonInterval, func() {
		state, old := f.state.Daemon(), f.current.Load()
		if old != nil && slices.Equal(state.Conditions, old.conditions) {
			return
		}
		f.current.Store(&daemonView{conditions: state.Conditions, data: encode(state)})
		f.changed.Notify()
	})
}

// daemonReader remembers which view its watcher received last.
type daemonReader struct {
	feed *daemonFeed
	last *daemonView
}

func (r *daemonReader) next() (*Message, <-chan struct{}) {
	more := r.feed.changed.Wait()
	view := r.feed.current.Load()
	if view == r.last {
		return nil, more
	}
	r.last = view
	return &Message{Type: "daemon", Data: whole(view.data)}, nil
}
