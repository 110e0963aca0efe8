package connections

import (
	"io"
	"net"
	"strconv"
	"time"
)

const (
	// maxRefusing and refusingPart (a part of the limit) bound the number of rejected
	// connections that get a response at the same time, since their descriptors are not
	// part of the limit. Others are closed without a response.
	maxRefusing  = 64
	refusingPart = 16
	// refuseTime is the maximum time for the response.
	refuseTime = 500 * time.Millisecond
)

// refusal returns the response on a rejected connection.
func refusal(detail string) string {
	body := `{"type":"about:blank","title":"Service Unavailable","status":503,"code":"too_many_connections","grpc_code":"UNAVAILABLE","detail":"` + detail + `; retry later"}` + "\n"
	return "HTTP/1.1 503 Service Unavailable\r\n" +
		"Content-Type: application/problem+json\r\n" +
		"Connection: close\r\n" +
		"Retry-After: 1\r\n" +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\n" +
		"\r\n" + body
}

var (
	fullRefusal = refusal("lbd has as many connections as --max-connections allows, and none of them is idle")
	peerRefusal = refusal("your address or user has as many connections as --max-peer-connections allows, and none of them is idle")
)

// listener returns the connections that the Limiter admits.
type listener struct {
	net.Listener

	limiter *Limiter
}

// Listen returns a listener with the limit, for a server with [Limiter.Attach].
func (l *Limiter) Listen(inner net.Listener) net.Listener { return &listener{inner, l} }

// Accept returns the next admitted connection.
func (ln *listener) Accept() (net.Conn, error) {
	l := ln.limiter
	for {
		inner, err := ln.Listener.Accept()
		if err != nil {
			if !l.Recover(err) {
				return nil, err
			}
			continue
		}
		c, wait := l.Admit(inner)
		if wait != nil {
			c = wait()
		}
		if c != nil {
			return c, nil
		}
	}
}

// refuse responds to a rejected connection in a new goroutine.
func (l *Limiter) refuse(c net.Conn, response string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusing == min(maxRefusing, max(1, l.options.Max/refusingPart)) {
		_ = c.Close()
		return
	}
	l.refusing++
	go func() {
		defer func() {
			_ = c.Close()
			l.mu.Lock()
			defer l.mu.Unlock()
			l.refusing--
		}()
		if d, ok := c.(Detacher); ok && d.Detach() != nil {
			return
		}
		_ = c.SetDeadline(time.Now().Add(refuseTime))
		if _, err := io.WriteString(c, response); err != nil {
			return
		}
		// Closing before the request is read would reset the connection, and the caller
		// would lose the response.
		if half, ok := c.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(c, 1<<20))
		}
	}()
}
