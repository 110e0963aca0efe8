package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
)

const (
	// A tunnel without traffic has small buffers.
	smallBuffer, largeBuffer = 512, 32 << 10
)

// bufferPool has buffers for copies.
type bufferPool struct{ pool sync.Pool }

var buffers = &bufferPool{sync.Pool{New: func() any { return new([largeBuffer]byte) }}}

// Get returns a buffer.
func (b *bufferPool) Get() []byte { return b.pool.Get().(*[largeBuffer]byte)[:] } //nolint:errcheck,forcetypeassert // it has nothing else

// Put takes a buffer back.
func (b *bufferPool) Put(p []byte) { b.pool.Put((*[largeBuffer]byte)(p)) }

// tunneled is a connection of which one direction can end before the other.
type tunneled interface {
	io.ReadWriteCloser
	CloseWrite() error
}

// tunnel is the connection to an endpoint of a CONNECT or of an upgraded request. It is closed after a time without
// traffic, with the connection to the caller.
type tunnel struct {
	tunneled

	stats   *clusterMetrics
	timeout time.Duration
	idle    *time.Timer
	caller  atomic.Pointer[net.Conn]
	close   func() error
}

// newTunnel counts a tunnel, which ends with Close.
func (x *exchange) newTunnel(conn tunneled) (*tunnel, error) {
	p := x.proxy
	if p.metrics.tunnels.Add(1) > p.maxTunnels {
		p.metrics.tunnels.Add(-1)
		return nil, errTunnels
	}
	t := &tunnel{tunneled: conn, stats: x.stats, timeout: p.tunnelTimeout}
	p.metrics.tunnelsTotal.Add(1)
	var goesOn func() bool
	var making sync.Mutex // both calls of Close below may come at once
	making.Lock()
	defer making.Unlock()
	t.close = sync.OnceValue(func() error {
		making.Lock()
		defer making.Unlock()
		defer p.metrics.tunnels.Add(-1)
		goesOn()
		t.idle.Stop()
		if caller := t.caller.Load(); caller != nil {
			_ = (*caller).Close()
		}
		return conn.Close()
	})
	t.idle = time.AfterFunc(t.timeout, func() { _ = t.Close() })
	goesOn = context.AfterFunc(p.stopped, func() { _ = t.Close() })
	x.tunnel, x.stall = t, t.timeout
	return t, nil
}

// Hijack takes the connection to the caller for the tunnel.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	x.deadlines.end() // Hijack removes those that it sets
	conn, buffered, err := x.control.Hijack()
	if err == nil && x.tunnel != nil {
		x.tunnel.caller.Store(&conn)
		x.outcome = "tunnel"
		x.count()
	}
	return conn, buffered, err
}

// connect makes a tunnel to an endpoint.
func (x *exchange) connect(ctx context.Context) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{ConnectStart: func(_, address string) {
		x.attempts.Add(1)
		x.address.Store(&address)
	}})
	conn, pick, err := x.proxy.client.Dial(ctx, x.route.cluster)
	if address := x.address.Load(); address != nil {
		x.picked(*address)
	}
	if err != nil {
		x.refuse(x.problemOf(err))
		return
	}
	x.answer()
	pick.Answered(lbdclient.Success)
	endpoint := &endpointConn{conn.(*net.TCPConn), pick} //nolint:errcheck,forcetypeassert // of TCP
	t, err := x.newTunnel(endpoint)
	if err != nil {
		_ = endpoint.Close()
		x.refuse(x.problemOf(err))
		return
	}
	x.outcome, x.status = "tunnel", http.StatusOK
	x.count()
	if x.request.ProtoMajor > 1 {
		x.WriteHeader(http.StatusOK)
		if x.FlushError() == nil && t.join(&stream{x.request.Body, x}) == nil {
			return
		}
		panic(http.ErrAbortHandler)
	}
	caller, buffered, err := x.Hijack()
	if err != nil {
		_ = t.Close()
		return
	}
	_, err = io.WriteString(caller, "HTTP/1.1 200 Connection established\r\n\r\n")
	if early := int64(buffered.Reader.Buffered()); err == nil && early > 0 {
		_, err = io.CopyN(t, buffered, early)
	}
	both, ok := caller.(tunneled)
	if err != nil || !ok {
		_ = t.Close()
		return
	}
	go func() { _ = t.join(both) }() // net/http needs no memory for the connection any more
}

// join copies between the caller and the endpoint until both have ended. The error is that of the endpoint or of the
// caller, whose connections are closed then.
func (t *tunnel) join(caller tunneled) error {
	defer func() { _ = t.Close() }()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if _, err := relay(t, caller); err != nil || t.CloseWrite() != nil {
			_ = t.Close()
		}
	}()
	_, err := relay(caller, t)
	if err == nil {
		err = caller.CloseWrite()
	}
	if err != nil {
		reset(caller) // what it has got is not all
		_ = t.Close()
		_ = caller.Close()
	}
	<-sent
	return err
}

// stream is the connection to a caller that speaks HTTP/2.
type stream struct {
	io.ReadCloser

	x *exchange
}

// Write sends to the caller.
func (s *stream) Write(p []byte) (int, error) {
	s.x.writing(true)
	n, err := s.x.ResponseWriter.Write(p)
	if err == nil {
		err = s.x.FlushError()
	}
	return n, err
}

// CloseWrite ends the stream in both directions: a handler of net/http cannot end it in one.
func (s *stream) CloseWrite() error { return s.Close() }

// Close closes the connection to the endpoint.
func (t *tunnel) Close() error { return t.close() }

// Read reads what the endpoint sends.
func (t *tunnel) Read(p []byte) (int, error) {
	n, err := t.tunneled.Read(p)
	t.moved(n)
	t.stats.response.Add(int64(n))
	return n, err
}

// Write writes to the endpoint.
func (t *tunnel) Write(p []byte) (int, error) {
	n, err := t.tunneled.Write(p)
	t.moved(n)
	t.stats.request.Add(int64(n))
	return n, err
}

func (t *tunnel) moved(n int) {
	if n > 0 && t.idle.Stop() {
		t.idle.Reset(t.timeout)
	}
}

// WriteTo copies what the endpoint sends.
func (t *tunnel) WriteTo(w io.Writer) (int64, error) { return relay(w, t) }

// ReadFrom copies what the caller sends.
func (t *tunnel) ReadFrom(r io.Reader) (int64, error) { return relay(t, r) }

// relay copies until the end of src. It waits with a small buffer, and uses a large one as long as that gets full.
func relay(dst io.Writer, src io.Reader) (total int64, err error) {
	var small [smallBuffer]byte
	copied := func(buffer []byte) (full bool) {
		var n int
		n, err = src.Read(buffer)
		if n > 0 {
			total += int64(n)
			if _, writeErr := dst.Write(buffer[:n]); writeErr != nil {
				err = writeErr
			}
		}
		return err == nil && n == len(buffer)
	}
	for err == nil {
		if copied(small[:]) {
			large := buffers.Get()
			for copied(large) {
			}
			buffers.Put(large)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return total, err
}

// endpointConn is a connection whose pick ends with it.
type endpointConn struct {
	*net.TCPConn

	pick *lbdclient.Pick
}

// Close closes the connection.
func (c *endpointConn) Close() error {
	defer c.pick.End(lbdclient.Success)
	return c.TCPConn.Close()
}
