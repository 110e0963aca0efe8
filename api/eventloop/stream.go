package eventloop

import (
	"bytes"
	"strconv"
	"time"
)

// Stream is a response that goes on after its handler has returned, such as server-sent events. It
// needs no goroutine while there is nothing to send. Its methods are called by one goroutine at a time,
// but for Due.
type Stream interface {
	// Start is called first, after the handler. wake makes the server call Continue, soon. It does not
	// wait, may be called at any time, also after End, and from any goroutine.
	Start(wake func())
	// Continue sends what there is to send, in [Chunk], and LastChunk at last. It is called after
	// wake, when the caller has read after [StreamBlocked], and when Due reports true.
	Continue(out Sender) StreamState
	// Due reports whether Continue must be called because of the time. It is called about once a
	// second.
	Due(now time.Time) bool
	// End is called last, also if the connection has ended.
	End()
}

// Sender sends a stream.
type Sender interface {
	// Send sends as much of b as there is room for. It does not wait.
	Send(b []byte) (n int, err error)
	// Left reports whether the caller has ended its side of the connection.
	Left() bool
}

// StreamState is what a stream waits for.
type StreamState int

const (
	// StreamWaits for wake, or until it is due.
	StreamWaits StreamState = iota
	// StreamBlocked waits for the caller to read, too.
	StreamBlocked
	// StreamYields has more to send when it is its turn again.
	StreamYields
	// StreamComplete is the end of the response. The connection may have other requests.
	StreamComplete
	// StreamBroken ends the connection.
	StreamBroken
)

// LastChunk ends a stream.
const LastChunk = "0\r\n\r\n"

// Chunk returns a part of a stream as a chunk (RFC 9112, section 7.1). The part must not be empty.
func Chunk(part []byte) []byte {
	const overhead = len("12345678\r\n\r\n")
	b := make([]byte, 0, len(part)+overhead)
	b = strconv.AppendInt(b, int64(len(part)), 16)
	b = append(b, "\r\n"...)
	b = append(b, part...)
	return append(b, "\r\n"...)
}

// Unchunk returns the part that a chunk has.
func Unchunk(chunk []byte) []byte {
	return chunk[bytes.IndexByte(chunk, '\n')+1 : len(chunk)-len("\r\n")]
}
