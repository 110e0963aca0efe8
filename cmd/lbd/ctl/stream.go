package ctl

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// maxSilence is the time without any event after which a stream is broken: lbd sends a heartbeat
	// every 15 s.
	maxSilence = 30 * time.Second
	// firstPause and maxPause limit the time between two attempts to reconnect.
	firstPause = time.Second
	maxPause   = 30 * time.Second
	// maxEventBytes limits one event of a stream.
	maxEventBytes = 1 << 30
)

// follower follows a stream. After a lost connection, it continues where it was.
type follower struct {
	client *client
	path   string
	query  url.Values
	// handle is called with each event. Its error ends the follower.
	handle func(event) error
	// lost is called before a pause, after which the follower reconnects.
	lost func(err error, pause time.Duration)

	// last is the ID of the last event, from which a new stream continues.
	last string
	// answered is true after the first response.
	answered bool
	pause    time.Duration
}

// run follows the stream until ctx ends, the daemon refuses it, or handle fails.
func (f *follower) run(ctx context.Context) error {
	f.pause = firstPause
	for {
		final, err := f.follow(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // a signal is how the command ends
		case final || !f.answered || isFinal(err):
			return err
		}
		f.lost(err, f.pause)
		select {
		case <-time.After(f.pause):
		case <-ctx.Done():
			return nil
		}
		f.pause = min(2*f.pause, maxPause)
	}
}

// isFinal reports whether the same request would fail again.
func isFinal(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && r.Status < http.StatusInternalServerError && r.Status != http.StatusTooManyRequests
}

// follow handles the events of one stream. It returns the reason why the stream ended; final is true if
// it is the error of handle.
func (f *follower) follow(ctx context.Context) (final bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(f.client.timeout, func() { cancel(errNoResponse) })
	defer silence.Stop()
	answer, err := f.client.stream(ctx, f.path, f.query, f.last)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	silence.Reset(maxSilence)
	f.answered = true
	events := newEventReader(answer.Body)
	for {
		e, err := events.next()
		if errors.Is(err, io.EOF) {
			return false, errors.New("the daemon has ended the stream")
		}
		if err != nil {
			return false, f.client.unreachable(ctx, err)
		}
		silence.Reset(maxSilence)
		f.pause = firstPause
		if e.id != "" {
			f.last = e.id
		}
		if err := f.handle(e); err != nil {
			return true, err
		}
	}
}

// stream opens a stream of server-sent events, which ends with ctx. The response must be closed.
func (c *client) stream(ctx context.Context, path string, query url.Values, last string) (*http.Response, error) {
	r := request{method: http.MethodGet, path: path, query: query, header: http.Header{"Accept": {"text/event-stream"}}}
	if last != "" {
		r.header.Set("Last-Event-ID", last)
	}
	answer, err := c.open(ctx, r)
	if err != nil {
		return nil, err
	}
	switch {
	case answer.StatusCode != http.StatusOK:
		err = c.refused(r, answer)
	case !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream"):
		err = c.unexpected(answer)
	default:
		return answer, nil
	}
	return nil, errors.Join(err, answer.Body.Close())
}

// event is a server-sent event.
type event struct {
	id, name string
	data     []byte
}

// eventReader reads server-sent events.
type eventReader struct{ *bufio.Scanner }

func newEventReader(in io.Reader) eventReader {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxEventBytes)
	return eventReader{lines}
}

// next returns the next event with a name. An event without a blank line after it is incomplete.
func (r eventReader) next() (event, error) {
	var e event
	for size := 0; r.Scan(); {
		line := r.Bytes()
		if size += len(line); size > maxEventBytes {
			return e, errLargeEvent
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "id":
			e.id = string(value)
		case "event":
			e.name = string(value)
		case "data":
			if e.data != nil {
				e.data = append(e.data, '\n')
			}
			e.data = append(e.data, value...)
		}
		if len(line) == 0 && e.name != "" {
			return e, nil
		}
	}
	if errors.Is(r.Err(), bufio.ErrTooLong) {
		return e, errLargeEvent
	}
	return e, cmp.Or(r.Err(), io.EOF)
}

var errLargeEvent = fmt.Errorf("an event is larger than %d bytes", maxEventBytes)
