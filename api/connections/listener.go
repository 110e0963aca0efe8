package connections

import (
	"io"
	"net"
	"time"
)

const (
	// maxRefusing is how many connections are told at a time that they are refused, and
	// refusingPart what part of the limit they are at most: they have descriptors beyond
	// it. Others are closed without a word.
	maxRefusing  = 64
	refusingPart = 16
	// refuseTime is how long that may take.
	refuseTime = 500 * time.Millisecond
)

// refusal is the answer to whatever a connection that is refused asks.
const refusal = "HTTP/1.1 503 Service Unavailable\r\n" +
	"Content-Type: application/problem+json\r\n" +
	"Connection: close\r\n" +
	"Retry-After: 1\r\n" +
	"Content-Length: 228\r\n" +
	"\r\n" +
	`{"type":"about:blank","title":"Service Unavailable","status":503,"code":"too_many_connections","grpc_code":"UNAVAILABLE","detail":"lbd has as many connections as --max-connections allows, and none of them is idle; retry later"}` + "\n"

// listener accepts what the Limiter admits.
type listener struct {
	net.Listener

	limiter *Limiter
}

// Listen returns a listener whose connections count, for a server that l is attached
// to.
func (l *Limiter) Listen(inner net.Listener) net.Listener { return &listener{inner, l} }

// Accept returns the next connection that there is room for.
func (ln *listener) Accept() (net.Conn, error) {
	l := ln.limiter
	for {
		inner, err := ln.Listener.Accept()
		if err != nil {
			if !l.options.Lacking(err) {
				return nil, err
			}
			l.evict() // its descriptor helps
			time.Sleep(acceptPause)
			continue
		}
		c := &conn{Conn: inner, limiter: l}
		c.idle.Store(l.now())
		if l.admit(c) {
			return c, nil
		}
		l.refused.Add(1)
		l.options.Full()
		l.refuse(inner)
	}
}

// refuse answers a connection that there is no room for, in a goroutine of its own.
func (l *Limiter) refuse(c net.Conn) {
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
		_ = c.SetDeadline(time.Now().Add(refuseTime))
		if _, err := io.WriteString(c, refusal); err != nil {
			return
		}
		// To close before the request was read would reset the connection, and the
		// answer with it.
		if half, ok := c.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(c, 1<<20))
		}
	}()
}
