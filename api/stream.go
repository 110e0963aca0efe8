package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/observe"
)

// Times of streams.
const (
	// HeartbeatInterval is how long a stream is silent before a heartbeat tells
	// that it is alive.
	HeartbeatInterval = 15 * time.Second
	// StreamTimeout is how long a reader may take nothing of what it is sent.
	StreamTimeout = 30 * time.Second
	// MaxMessageTime is how long it may take for one message as a whole.
	MaxMessageTime = 2 * time.Minute
	// drainTime is left for what is being sent when the service drains.
	drainTime = time.Second
)

var streamType = []string{"text/event-stream"}

// stream answers with the messages of a watch as server-sent events, until
// nothing more comes, the caller is gone or takes nothing, or the service drains.
func stream(w http.ResponseWriter, r *http.Request, s *service.Service, begin func() (*observe.Watch, error)) error {
	watch, err := begin()
	if err != nil {
		return err
	}
	defer watch.Close()
	h := w.Header()
	h["Cache-Control"] = noStore
	h["Content-Type"] = streamType
	h["X-Accel-Buffering"] = []string{"no"} // nginx would hold messages back
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	out := &messageWriter{w: w, control: http.NewResponseController(w)}
	defer out.end()
	defer context.AfterFunc(s.Draining(), out.cut)()
	_ = out.control.SetReadDeadline(time.Time{}) // that the request was read in time is enough
	err = out.send(func(b *bufio.Writer) {
		_, _ = b.WriteString("retry: 1000\n\n")
		writeMessage(b, heartbeat())
	})
	for err == nil {
		err = out.next(r.Context(), watch)
	}
	// There is nobody to tell that the stream ended too early: who is gone
	// knows, and who takes nothing is told by its connection's end.
	return nil
}

// messageWriter writes messages to a reader that may be slow.
type messageWriter struct {
	w       io.Writer
	control *http.ResponseController
	begun   time.Time // the message

	mu    sync.Mutex // guards what follows, and the order of deadlines
	over  bool       // no deadline comes after that of cut
	ended bool       // the handler is about to return: nothing of w may be used
}

// next sends the next message, or a heartbeat where none comes.
func (m *messageWriter) next(ctx context.Context, watch *observe.Watch) error {
	waiting, cancel := context.WithTimeout(ctx, HeartbeatInterval)
	defer cancel()
	message, err := watch.Next(waiting)
	switch {
	case err == nil:
		return m.send(func(b *bufio.Writer) { writeMessage(b, message) })
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return m.send(func(b *bufio.Writer) { writeMessage(b, heartbeat()) })
	default:
		return err
	}
}

// heartbeat is a message without an ID, which leaves a watch where it was. It is
// one that scripts of a page can see, and not a comment: a connection may be open
// long after there is a daemon at its end.
func heartbeat() observe.Message {
	text, err := json.Marshal(Heartbeat{Time: time.Now().UTC()})
	if err != nil {
		panic(err) // it is a time of this century
	}
	return observe.Message{Type: "heartbeat", Data: func(yield func([]byte) bool) { yield(text) }}
}

// writeMessage writes a message. An error sticks to b.
func writeMessage(b *bufio.Writer, m observe.Message) {
	_, _ = b.WriteString("event: " + m.Type + "\n")
	if m.ID != "" {
		_, _ = b.WriteString("id: " + m.ID + "\n")
	}
	_, _ = b.WriteString("data: ")
	for piece := range m.Data {
		if _, err := b.Write(piece); err != nil {
			return
		}
	}
	_, _ = b.WriteString("\n\n")
}

// buffers are used while a message is written, and not while one is awaited.
var buffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 16<<10) }}

// send hands what write writes to the reader's connection.
func (m *messageWriter) send(write func(*bufio.Writer)) error {
	m.begun = time.Now()
	b := buffers.Get().(*bufio.Writer) //nolint:errcheck // the pool holds nothing else
	defer func() {
		b.Reset(nil)
		buffers.Put(b)
	}()
	b.Reset(m)
	write(b)
	if err := b.Flush(); err != nil {
		return err
	}
	return m.control.Flush()
}

// Write writes a part of a message within its time.
func (m *messageWriter) Write(p []byte) (int, error) {
	now := time.Now()
	deadline := now.Add(StreamTimeout)
	if last := m.begun.Add(MaxMessageTime); deadline.After(last) {
		deadline = last
	}
	m.mu.Lock()
	if !m.over {
		_ = m.control.SetWriteDeadline(deadline) // a writer that has none cannot block
	}
	m.mu.Unlock()
	return m.w.Write(p)
}

// cut leaves little time for what is being written.
func (m *messageWriter) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	m.over = true
	_ = m.control.SetWriteDeadline(time.Now().Add(drainTime))
}

// end leaves the connection as it was before the stream, for other requests.
func (m *messageWriter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended = true; !m.over {
		_ = m.control.SetWriteDeadline(time.Time{})
	}
}

// lastEventID is after which message a stream is to go on: what a browser says by
// itself, when it connects again, or else the parameter's.
func lastEventID(r *http.Request, parameter string) string {
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		return id
	}
	return parameter
}

// maxEventIDBytes is the longest last_event_id.
const maxEventIDBytes = 64
