package api

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/api/eventloop"
	"github.com/lbd-dev/lbd/service/observe"
)

const (
	// HeartbeatInterval is the time without another event after which a heartbeat is sent.
	HeartbeatInterval = 15 * time.Second
	// StreamTimeout is the maximum time in which a reader accepts no data.
	StreamTimeout = 30 * time.Second
	// MaxMessageTime is the maximum time to write one message.
	MaxMessageTime = 2 * time.Minute
	// drainTime is the remaining time to write a message when the service drains.
	drainTime = time.Second
)

var (
	streamType  = []string{"text/event-stream"}
	noBuffering = []string{"no"} // nginx would buffer messages
)

// stream writes the messages of a watch as server-sent events, until the watch ends, the
// caller disconnects or does not read, or the service drains.
func stream(w *recorder, r *http.Request, begin func() (*observe.Watch, error)) error {
	watch, err := begin()
	if err != nil {
		return err
	}
	h := w.Header()
	h["Cache-Control"] = noStore
	h["Content-Type"] = streamType
	h["X-Accel-Buffering"] = noBuffering
	if w.loop != nil {
		l := &loopStream{watch: watch, rec: w}
		w.stream = l
		w.status = http.StatusOK
		w.loop.WriteStream(l)
		return nil
	}
	defer watch.Close()
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	out := &messageWriter{w: w, control: http.NewResponseController(w), pace: func() error { return watch.Pace(r.Context()) }}
	defer out.end()
	defer context.AfterFunc(watch.Draining(), out.cut)()
	_ = out.control.SetReadDeadline(time.Time{}) // the request has been read
	ctx, cancel := whileValid(r.Context(), w.caller)
	defer cancel()
	shed := w.router.limits.Shedding.add(w.caller, func() {
		cancel()
		out.cut()
	})
	defer shed.leave()
	err = out.send(func(b *bufio.Writer) { _, _ = b.Write(opening()) })
	for err == nil {
		err = out.next(ctx, watch)
	}
	if retry := shed.retry(); retry != "" {
		_ = out.send(func(b *bufio.Writer) { _, _ = b.WriteString(retry) }) // a client that does not read gets nothing
	}
	return nil // the response has begun: the end of the stream is the only possible report
}

// messageWriter writes messages with a deadline.
type messageWriter struct {
	w       io.Writer
	control *http.ResponseController
	pace    func() error // waits before each further piece of a message
	begun   time.Time    // of the message

	mu    sync.Mutex // guards the following fields, and calls of SetWriteDeadline
	over  bool       // cut has set the last deadline
	ended bool       // the handler returns: w must not be used
}

// next sends the next message, or a heartbeat.
func (m *messageWriter) next(ctx context.Context, watch *observe.Watch) error {
	waiting, cancel := context.WithTimeout(ctx, HeartbeatInterval)
	defer cancel()
	message, err := watch.Next(waiting)
	switch {
	case err == nil:
		return m.send(func(b *bufio.Writer) { writeMessage(b, message) })
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		if err := watch.Pace(ctx); err != nil {
			return err
		}
		return m.send(func(b *bufio.Writer) { _, _ = b.Write(heartbeat(watch.Position())) })
	default:
		return err
	}
}

// opening returns the begin of a stream.
func opening() []byte { return append([]byte("retry: 1000\n\n"), heartbeat("")...) }

// heartbeat returns the text of a heartbeat. Its ID is where the watch resumes; without one, it does not
// change that. It is not a comment, because scripts have to see it: a connection may stay open
// after the daemon has gone.
func heartbeat(id string) []byte {
	data, err := json.Marshal(Heartbeat{Time: time.Now().UTC()})
	if err != nil {
		panic(err) // a time always encodes
	}
	return append(append(appendFields(nil, "heartbeat", id), data...), messageEnd...)
}

// messageEnd ends each message.
const messageEnd = "\n\n"

// appendFields appends the text of a message before its data.
func appendFields(b []byte, kind, id string) []byte {
	b = append(append(append(b, "event: "...), kind...), '\n')
	if id != "" {
		b = append(append(append(b, "id: "...), id...), '\n')
	}
	return append(b, "data: "...)
}

// chunkOf returns the text of a message with data, as a chunk.
func chunkOf(m *observe.Message) []byte {
	text := appendFields(make([]byte, 0, len(m.Data)+128), m.Type, m.ID)
	return eventloop.Chunk(append(append(text, m.Data...), messageEnd...))
}

// writeMessage writes a message. b keeps an error.
func writeMessage(b *bufio.Writer, m *observe.Message) {
	if m.Pieces == nil {
		_, _ = b.Write(eventloop.Unchunk(m.Text(chunkOf)))
		return
	}
	_, _ = b.Write(appendFields(nil, m.Type, m.ID))
	for piece := range m.Pieces {
		if _, err := b.Write(piece); err != nil {
			return
		}
	}
	_, _ = b.WriteString(messageEnd)
}

// buffers are in use only while a message is written.
var buffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 16<<10) }}

// send writes a message and flushes it.
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

// maxPiece is the size of the pieces in which a message is written.
const maxPiece = 64 << 10

// Write writes a part of a message with the deadline of both limits.
func (m *messageWriter) Write(p []byte) (written int, err error) {
	for {
		piece := p[written:min(len(p), written+maxPiece)]
		n, err := m.writePiece(piece)
		if written += n; err != nil || written == len(p) {
			return written, err
		}
		if err := m.pace(); err != nil {
			return written, err
		}
	}
}

func (m *messageWriter) writePiece(p []byte) (int, error) {
	now := time.Now()
	deadline := now.Add(StreamTimeout)
	if last := m.begun.Add(MaxMessageTime); deadline.After(last) {
		deadline = last
	}
	m.mu.Lock()
	if !m.over {
		_ = m.control.SetWriteDeadline(deadline) // a writer without deadlines does not block
	}
	m.mu.Unlock()
	return m.w.Write(p)
}

// cut shortens the deadline of the current message.
func (m *messageWriter) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	m.over = true
	_ = m.control.SetWriteDeadline(time.Now().Add(drainTime))
}

// end removes the deadline, for other requests of the connection.
func (m *messageWriter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended = true; !m.over {
		_ = m.control.SetWriteDeadline(time.Time{})
	}
}

// maxEventIDBytes is the maximum length of last_event_id.
const maxEventIDBytes = 64

// lastEventID is the parameter for callers that cannot send Last-Event-ID, which takes
// precedence.
func lastEventID(last *string) parameter {
	header := *last
	return parameter{name: "last_event_id", set: func(v value) string {
		wanted := v.limited(last, maxEventIDBytes)
		*last = cmp.Or(header, *last)
		return wanted
	}}
}
