package api

import (
	"iter"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/api/eventloop"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/observe"
)

// partBytes is about the size of the parts of a message that is composed for one watcher.
const partBytes = 16 << 10

// loopStream is a stream on an event loop. It says what [stream] says, and ends at the same limits. Of
// the messages it keeps only the position of its watch, and what remains of the current one, whose bytes
// all watchers share.
type loopStream struct {
	// Fixed after Last and Start.
	watch  *observe.Watch
	caller *access.Caller
	rec    *recorder
	done   func() // ends the request
	shed   *shedStream

	due atomic.Int64 // when Continue must be called, in ns since 1970

	// The following belongs to the goroutine that calls Continue.

	rest   []byte                // of the current part
	pieces func() ([]byte, bool) // the rest of the current message; nil for none
	stop   func()                // ends pieces
	opened bool                  // the stream has begun
	last   bool                  // rest is the end of the stream
	begun  time.Time             // of the current message
	moved  time.Time             // when the caller last read something, or had nothing to read
	cut    time.Time             // when the stream ends at the latest; zero for no such time
}

// Last implements [lasting].
func (s *loopStream) Last(caller *access.Caller, done func()) {
	s.caller, s.done = caller, done
}

// Start implements [eventloop.Stream].
func (s *loopStream) Start(wake func()) {
	s.shed = s.rec.router.limits.Shedding.add(s.caller, wake)
	s.watch.Notify(wake)
}

// End implements [eventloop.Stream].
func (s *loopStream) End() {
	s.watch.Close()
	s.shed.leave()
	if s.stop != nil {
		s.stop()
	}
	s.rec.bytes -= int64(len(s.rest))
	s.done()
}

// Due implements [eventloop.Stream].
func (s *loopStream) Due(now time.Time) bool {
	return now.UnixNano() >= s.due.Load() || s.caller.Ended(now)
}

// Continue implements [eventloop.Stream].
func (s *loopStream) Continue(out eventloop.Sender) eventloop.StreamState {
	now := time.Now()
	ends := s.watch.Draining().Err() != nil || s.shed.isEnded() || s.caller.Ended(now)
	if ends && s.cut.IsZero() {
		s.cut = now.Add(drainTime)
	}
	for sent := 0; sent < maxPiece; {
		if len(s.rest) == 0 {
			if s.last {
				return eventloop.StreamComplete
			}
			if !s.compose(now, ends || out.Left()) {
				s.due.Store(s.moved.Add(HeartbeatInterval).UnixNano())
				return eventloop.StreamWaits
			}
		}
		part := s.rest[:min(len(s.rest), maxPiece)]
		n, err := out.Send(part)
		if err != nil {
			return eventloop.StreamBroken
		}
		s.rest = s.rest[n:]
		if sent += n; n > 0 {
			s.moved = now
		}
		if n < len(part) {
			return s.blocked(now)
		}
	}
	return eventloop.StreamYields
}

// blocked returns the state of a stream whose caller has to read first, and not too late.
func (s *loopStream) blocked(now time.Time) eventloop.StreamState {
	end := s.moved.Add(StreamTimeout)
	for _, t := range []time.Time{s.begun.Add(MaxMessageTime), s.cut} {
		if !t.IsZero() && t.Before(end) {
			end = t
		}
	}
	if !now.Before(end) {
		return eventloop.StreamBroken
	}
	s.due.Store(end.UnixNano())
	return eventloop.StreamBlocked
}

// compose sets rest to what is sent next. It reports false if there is nothing.
func (s *loopStream) compose(now time.Time, ends bool) bool {
	if s.pieces != nil {
		s.composePart(nil)
		return true
	}
	if s.rest = nil; !s.opened {
		s.opened = true
		s.begin(now, eventloop.Chunk(opening()))
		return true
	}
	var m *observe.Message
	err := observe.ErrWatchEnded
	if !ends {
		m, err = s.watch.Poll()
	}
	switch {
	case err != nil:
		s.end(now)
	case m == nil:
		if now.Sub(s.moved) < HeartbeatInterval {
			return false
		}
		s.begin(now, eventloop.Chunk(heartbeat(s.watch.Position())))
	case m.Pieces != nil:
		s.pieces, s.stop = iter.Pull(m.Pieces)
		s.begin(now, nil)
		s.composePart(appendFields(nil, m.Type, m.ID))
	default:
		s.begin(now, m.Text(chunkOf))
	}
	return true
}

// begin begins a message with a chunk; nil for none yet.
func (s *loopStream) begin(now time.Time, chunk []byte) {
	s.begun, s.moved = now, now
	if chunk != nil {
		s.add(chunk)
	}
}

func (s *loopStream) add(chunk []byte) {
	s.rest = chunk
	s.rec.bytes += int64(len(eventloop.Unchunk(chunk)))
}

// composePart sets rest to the next part of a message in pieces, after text.
func (s *loopStream) composePart(text []byte) {
	for len(text) < partBytes {
		piece, ok := s.pieces()
		if !ok {
			text = append(text, messageEnd...)
			s.pieces, s.stop = nil, nil
			break
		}
		text = append(text, piece...)
	}
	s.add(eventloop.Chunk(text))
}

// end begins the end of the stream.
func (s *loopStream) end(now time.Time) {
	s.last = true
	s.begin(now, nil)
	if retry := s.shed.retry(); retry != "" {
		s.add(eventloop.Chunk([]byte(retry)))
	}
	s.rest = append(s.rest, eventloop.LastChunk...)
}
