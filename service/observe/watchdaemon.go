package observe

import (
	"bytes"
	"context"
	"sync/atomic"
	"time"
)

// daemonInterval is how often the daemon's state is compared with the last one
// that its watchers received.
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
	return ws.admit(func() (reader, error) {
		f := ws.daemon
		if f == nil {
			f = &daemonFeed{watches: ws}
			f.current.Store(&daemonView{replaced: make(chan struct{})})
			ws.daemon = f
			f.stop = ws.run(f.run)
		}
		f.readers++
		return &daemonReader{feed: f}, nil
	})
}

// daemonFeed is the daemon's state for all who watch it.
type daemonFeed struct {
	// Fixed after build.
	watches *Watches
	stop    context.CancelFunc

	readers int // guarded by the watches' mu

	current atomic.Pointer[daemonView]
}

// daemonView is one encoded state. Only its channel changes: it is closed when
// another view replaces this one.
type daemonView struct {
	data     []byte // nil before the first look
	replaced chan struct{}
}

// run replaces the view when the state changes, until ctx ends.
func (f *daemonFeed) run(ctx context.Context) {
	ticker := time.NewTicker(daemonInterval)
	defer ticker.Stop()
	for {
		f.look()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (f *daemonFeed) look() {
	data, old := encode(f.watches.state.Daemon()), f.current.Load()
	if bytes.Equal(data, old.data) {
		return
	}
	f.current.Store(&daemonView{data: data, replaced: make(chan struct{})})
	close(old.replaced)
}

// daemonReader remembers which view its watcher received last.
type daemonReader struct {
	feed *daemonFeed
	last *daemonView
}

func (r *daemonReader) next() (*Message, <-chan struct{}) {
	view := r.feed.current.Load()
	if view.data == nil || view == r.last {
		return nil, view.replaced
	}
	r.last = view
	return &Message{Type: "daemon", Data: whole(view.data)}, nil
}

func (r *daemonReader) leave() {
	f, ws := r.feed, r.feed.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if f.readers--; f.readers == 0 {
		f.stop()
		ws.daemon = nil
	}
}
