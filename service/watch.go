package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"sync"
	"time"
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
	watches *watches
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
	draining := w.watches.service.draining
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
func (s *Service) Draining() context.Context { return s.draining }

// watches is what all watchers share. What they watch is looked at by one
// goroutine each, however many watch it, and only while somebody does.
type watches struct {
	service *Service
	running sync.WaitGroup

	mu       sync.Mutex // guards what follows
	watchers int
	closed   bool
	clusters map[watchedCluster]*clusterFeed
	overview *overview   // nil while nobody watches
	daemon   *daemonFeed // nil while nobody watches
}

func newWatches(s *Service) *watches {
	return &watches{service: s, clusters: make(map[watchedCluster]*clusterFeed)}
}

// admit takes a watcher's place, and has join find its reader. What join starts
// runs until the reader leaves, or the service drains.
func (ws *watches) admit(join func() (reader, error)) (*Watch, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch {
	case ws.closed || ws.service.draining.Err() != nil:
		return nil, errorf(ShuttingDown, "the daemon is shutting down")
	case ws.watchers >= ws.service.options.MaxWatchers:
		e := errorf(RateLimited, "%d watch already, which is the most", ws.watchers)
		e.RetryAfter = watchRetryAfter
		return nil, e
	}
	r, err := join()
	if err != nil {
		return nil, err
	}
	ws.watchers++
	ws.service.metrics.watchers.WithLabelValues("sse").Inc()
	return &Watch{watches: ws, reader: r}, nil
}

func (ws *watches) leave() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.watchers--
	ws.service.metrics.watchers.WithLabelValues("sse").Dec()
}

// run starts what looks at something. It is called under ws.mu.
func (ws *watches) run(look func(context.Context)) (stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(ws.service.draining)
	ws.running.Go(func() { look(ctx) })
	return cancel
}

// close returns once nothing runs any more, after Drain. Nobody watches after it.
func (ws *watches) close() {
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
