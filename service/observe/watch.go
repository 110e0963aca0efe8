package observe

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/service/fault"
)

// MaxWatchers is how many watch at a time.
const MaxWatchers = 1000

// watchRetryAfter is when it is worth trying again where as many watch.
const watchRetryAfter = 10 * time.Second

// ErrWatchEnded is what comes after the last message of a watch.
var ErrWatchEnded = errors.New("the watch has ended")

// Message is one message of a watch.
type Message struct {
	// Type names what Data is.
	Type string
	// ID resumes the watch after this message; it is empty for a message that
	// leaves it where it was.
	ID string
	// Data is JSON in one line, in pieces. They are shared: nobody is to change
	// them.
	Data iter.Seq[[]byte]
}

// Watch is what one reader still has to be told. What it does not take in time is
// left out for what is newer: it holds nobody up, and nothing is kept for it.
// It is used by one goroutine at a time.
type Watch struct {
	watches *Watches
	reader  reader
}

// reader knows how far its watcher is.
type reader interface {
	// next returns the next message. Without one it returns what is closed when
	// it is worth asking again, or nothing after the last message.
	next() (m *Message, more <-chan struct{})
	// leave ends what runs for this reader only.
	leave()
}

// Next waits for the next message. Its error is [ErrWatchEnded] once what is
// watched is gone, or the service drains; or the cause of ctx's end.
func (w *Watch) Next(ctx context.Context) (Message, error) {
	draining := w.watches.draining
	for {
		if draining.Err() != nil {
			return Message{}, ErrWatchEnded
		}
		m, more := w.reader.next()
		switch {
		case m != nil:
			return *m, nil
		case more == nil:
			return Message{}, ErrWatchEnded
		}
		select {
		case <-more:
		case <-draining.Done():
		case <-ctx.Done():
			return Message{}, context.Cause(ctx)
		}
	}
}

// Close makes room for another watcher. It must be called once.
func (w *Watch) Close() {
	w.reader.leave()
	w.watches.leave()
}

// Draining ends when the service drains, and with it every watch.
func (ws *Watches) Draining() context.Context { return ws.draining }

// Watches is what all watchers share. What they watch is looked at by one
// goroutine each, however many watch it, and only while somebody does. Its methods may
// be called from any goroutine.
type Watches struct {
	// Fixed after build.
	state    *State
	max      int             // watchers at a time
	draining context.Context // the state's
	waiting  prometheus.Gauge

	running sync.WaitGroup

	mu       sync.Mutex // guards what follows
	watchers int
	closed   bool
	clusters map[watchedCluster]*clusterFeed
	overview *overview   // nil while nobody watches
	daemon   *daemonFeed // nil while nobody watches
}

// NewWatches returns the watches of a state, for so many watchers at a time; 0 is
// [MaxWatchers].
func NewWatches(s *State, watchers int) *Watches {
	return &Watches{
		state: s, max: cmp.Or(watchers, MaxWatchers), draining: s.options.Draining, waiting: s.waiting.WithLabelValues("sse"),
		clusters: make(map[watchedCluster]*clusterFeed),
	}
}

// admit takes a watcher's place, and has join find its reader. What join starts
// runs until the reader leaves, or the service drains.
func (ws *Watches) admit(join func() (reader, error)) (*Watch, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch {
	case ws.closed || ws.draining.Err() != nil:
		return nil, fault.Errorf(fault.ShuttingDown, "the daemon is shutting down")
	case ws.watchers >= ws.max:
		e := fault.Errorf(fault.RateLimited, "%d watch already, which is the most", ws.watchers)
		e.RetryAfter = watchRetryAfter
		return nil, e
	}
	r, err := join()
	if err != nil {
		return nil, err
	}
	ws.watchers++
	ws.waiting.Inc()
	return &Watch{watches: ws, reader: r}, nil
}

func (ws *Watches) leave() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.watchers--
	ws.waiting.Dec()
}

// run starts what looks at something. It is called under ws.mu.
func (ws *Watches) run(look func(context.Context)) (stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(ws.draining)
	ws.running.Go(func() { look(ctx) })
	return cancel
}

// Close returns once nothing runs any more, after Drain. Nobody watches after it.
func (ws *Watches) Close() {
	ws.mu.Lock()
	ws.closed = true
	ws.mu.Unlock()
	ws.running.Wait()
}

// encode writes v in one line, <, > and & as they are. v is a value of this
// package's types, which always encode.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// whole is data in one piece.
func whole(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) { yield(data) }
}
