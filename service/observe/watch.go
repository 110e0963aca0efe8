package observe

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/wake"
)

// MaxWatchers is the default limit on watchers.
const MaxWatchers = 10_000

// watchRetryAfter is when a watcher above the limit should try again.
const watchRetryAfter = 10 * time.Second

// ErrWatchEnded is returned after the last message of a watch.
var ErrWatchEnded = errors.New("the watch has ended")

// Watch is the position of one watcher. A slow watcher skips messages that a newer
// message replaces. It delays no other watcher, and no message is stored for it. A
// Watch is used by one goroutine at a time.
type Watch struct {
	watches *Watches
	reader  reader
	feed    *sharedFeed
}

// Position returns the ID after which the watch resumes if all its messages were received; empty
// if that of the last message is the only known one. A watcher that receives no message for long
// need not read again what it was not sent.
func (w *Watch) Position() string {
	if r, ok := w.reader.(interface{ position() string }); ok {
		return r.position()
	}
	return ""
}

// reader is a watcher's position.
type reader interface {
	// next returns the next message; nil if there is none yet. more is false after the last message.
	next() (m *Message, more bool)
	// notifyWith replaces what is called when there may be a message. It does not wait.
	notifyWith(f func())
	close()
}

// Next waits for the next message. The error is [ErrWatchEnded] if the watched cluster
// is gone or the service drains, or the cause of the end of ctx.
func (w *Watch) Next(ctx context.Context) (*Message, error) {
	var changed wake.One
	for {
		m, err := w.Poll()
		switch {
		case m != nil || err != nil:
			return m, err
		case changed == nil: // a change since the last call may be new, too
			changed = wake.NewOne()
			w.Notify(changed.Wake)
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Poll returns the next message; nil if there is none yet. It does not wait. The error is
// [ErrWatchEnded] if the watched cluster is gone or the service drains.
func (w *Watch) Poll() (*Message, error) {
	if w.watches.draining.Err() != nil {
		return nil, ErrWatchEnded
	}
	m, more := w.reader.next()
	if m == nil && !more {
		return nil, ErrWatchEnded
	}
	return m, nil
}

// Notify replaces the function that is called, in any goroutine, when Poll may return something
// else. It must not wait. Call Poll after Notify: changes before are not notified.
func (w *Watch) Notify(f func()) { w.reader.notifyWith(f) }

// Pace waits for a turn to write the next 64 KiB, so that many watchers do not write at once.
// It fails if ctx ends before it.
func (w *Watch) Pace(ctx context.Context) error { return w.watches.pace.Wait(ctx) }

// Draining ends when the service drains, which ends every watch.
func (w *Watch) Draining() context.Context { return w.watches.draining }

// Close ends the watch. It must be called once.
func (w *Watch) Close() {
	w.reader.close()
	ws := w.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.watchers--
	ws.waiting.Dec()
	f := w.feed
	if f.watchers--; f.watchers == 0 {
		f.stop()
		ws.forget(f.key, f.feed)
	}
}

// Watches starts and ends watches. All watchers of the same thing share one feed, whose
// goroutine runs only while there is a watcher. Its methods may be called from any
// goroutine.
type Watches struct {
	// Fixed after build.
	state    *State
	max      int             // watchers at a time
	draining context.Context // the state's
	waiting  prometheus.Gauge
	pace     *rate.Limiter

	running sync.WaitGroup // the goroutines of feeds

	mu       sync.Mutex // guards what follows
	watchers int
	closed   bool
	feeds    map[any]*sharedFeed // by what they watch
}

// feed prepares messages for all watchers of one thing.
type feed interface {
	// run returns when ctx ends, or what is watched is gone.
	run(ctx context.Context)
	// subscribed returns those who are notified.
	subscribed() *subscribers
}

// latest is a view that a feed replaces and watchers read.
type latest[V any] struct {
	subscribers
	view atomic.Pointer[V]
}

func (l *latest[V]) publish(ctx context.Context, v *V) {
	l.view.Store(v)
	l.notify(ctx)
}

type sharedFeed struct {
	feed

	key      any
	stop     context.CancelFunc
	watchers int
}

// NewWatches returns the watches of a state, with a limit on watchers; 0 is
// [MaxWatchers].
func NewWatches(s *State, watchers int) *Watches {
	return &Watches{
		state: s, max: cmp.Or(watchers, MaxWatchers), draining: s.options.Draining, waiting: s.waiting.WithLabelValues("sse"),
		pace: newPace(), feeds: make(map[any]*sharedFeed),
	}
}

// admit begins a watch. join, called under ws.mu, returns its reader and its feed.
func (ws *Watches) admit(join func() (reader, *sharedFeed, error)) (*Watch, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch {
	case ws.closed || ws.draining.Err() != nil:
		return nil, fault.Errorf(fault.ShuttingDown, "the daemon is shutting down")
	case ws.watchers >= ws.max:
		return nil, fault.Errorf(fault.RateLimited, "watcher limit reached (%d)", ws.max).Retry(watchRetryAfter)
	}
	r, f, err := join()
	if err != nil {
		return nil, err
	}
	ws.watchers++
	ws.waiting.Inc()
	return &Watch{watches: ws, reader: r, feed: f}, nil
}

// join adds a watcher to the feed of key, and starts the feed if it is the first. It is
// called under ws.mu.
func join[F feed](ws *Watches, key any, build func() F) (F, *sharedFeed) {
	shared := ws.feeds[key]
	if shared == nil {
		ctx, cancel := context.WithCancel(ws.draining)
		shared = &sharedFeed{feed: build(), key: key, stop: cancel}
		ws.feeds[key] = shared
		watchers := shared.subscribed()
		watchers.pace = ws.pace
		ws.running.Go(func() {
			shared.run(ctx)
			watchers.notify(ctx) // the service may drain
		})
	}
	shared.watchers++
	return shared.feed.(F), shared //nolint:errcheck,forcetypeassert // all feeds of a key have one type
}

// forget makes the next watcher of key start another feed. It is called under ws.mu.
func (ws *Watches) forget(key any, f feed) {
	if s := ws.feeds[key]; s != nil && s.feed == f {
		delete(ws.feeds, key)
	}
}

// Close waits until all feeds have ended, after Drain. It rejects further watchers.
func (ws *Watches) Close() {
	ws.mu.Lock()
	ws.closed = true
	ws.mu.Unlock()
	ws.running.Wait()
}

// every calls f now, and in each interval until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		f()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// encode writes v in one line and does not escape <, > and &. v has a type of this
// package, which always encodes.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

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

// Daemon returns the daemon's state within a scope.
func (s *State) Daemon(in *ledger.Scope) DaemonState { return s.daemon(listed(s.allConditions(), in)) }

func (s *State) daemon(conditions []Condition) DaemonState {
	return DaemonState{Name: s.options.Name, Version: s.options.Version, Started: s.started, Conditions: conditions}
}

// WatchDaemon watches the daemon's state: a message "daemon" has the whole
// [DaemonState] within a scope, at once and then when it changes, at most once a second. It
// fails with RateLimited and ShuttingDown.
func (ws *Watches) WatchDaemon(in *ledger.Scope) (*Watch, error) {
	return ws.admit(func() (reader, *sharedFeed, error) {
		f, shared := join(ws, "daemon", func() *daemonFeed { return &daemonFeed{state: ws.state} })
		return &daemonReader{feed: f, subscriber: f.add(), scope: in}, shared, nil
	})
}

type daemonFeed struct {
	latest[daemonView]
	state *State
}

// daemonView is one state, encoded once for all callers without a scope. It is never changed.
type daemonView struct {
	conditions []Condition // all, in order
	message    *Message
}

func (f *daemonFeed) run(ctx context.Context) {
	every(ctx, daemonInterval, func() {
		all, old := f.state.allConditions(), f.view.Load()
		if old == nil || !slices.Equal(all, old.conditions) {
			f.publish(ctx, &daemonView{conditions: all, message: daemonMessage(encode(f.state.daemon(listed(all, nil))))})
		}
	})
}

// daemonReader remembers which view its watcher received last.
type daemonReader struct {
	*subscriber

	feed  *daemonFeed
	scope *ledger.Scope
	last  *daemonView
	sent  []byte // with a scope: the last message
}

func daemonMessage(data []byte) *Message { return &Message{Type: "daemon", Data: data} }

func (r *daemonReader) next() (m *Message, more bool) {
	view := r.feed.view.Load()
	if view == r.last {
		return nil, true
	}
	r.last = view
	if r.scope.All() {
		return view.message, true
	}
	data := encode(r.feed.state.daemon(listed(view.conditions, r.scope)))
	if bytes.Equal(data, r.sent) {
		return nil, true
	}
	r.sent = data
	return daemonMessage(data), true
}
