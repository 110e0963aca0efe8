package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// exchange is a request of a caller and its response. It writes the response.
type exchange struct {
	http.ResponseWriter

	proxy   *proxy
	request *http.Request
	route   route
	control *http.ResponseController
	begin   time.Time
	stats   *clusterMetrics
	status  int
	outcome string // a code of problems; "" if an endpoint has answered

	timeout  time.Duration // until an endpoint has answered; 0 for none
	fixed    bool          // the timeout begins with the request, and not after its body
	deadline atomic.Int64  // in Unix nanoseconds; 0 for none
	timer    atomic.Pointer[time.Timer]
	expired  atomic.Bool

	attempts atomic.Int64
	address  atomic.Pointer[string] // of the last try
	bodyErr  atomic.Pointer[error]  // of the body of the request
	complete atomic.Bool            // the body of the request
	tunnel   *tunnel                // nil for none
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	return ctx.Value(exchangeKey{}).(*exchange) //nolint:errcheck,forcetypeassert // all requests have one
}

// exchangeContext is the context of a request on its way to an endpoint. Its deadline moves while the caller sends the
// body, and ends with the answer.
type exchangeContext struct {
	context.Context

	x *exchange
}

// Value returns the exchange for exchangeKey.
func (c *exchangeContext) Value(key any) any {
	if key == (exchangeKey{}) {
		return c.x
	}
	return c.Context.Value(key)
}

// Deadline returns the time until which an endpoint has to answer.
func (c *exchangeContext) Deadline() (time.Time, bool) {
	at := c.x.deadline.Load()
	return time.Unix(0, at), at != 0
}

func (x *exchange) extend() { x.deadline.Store(time.Now().Add(x.timeout).UnixNano()) }

// expire ends the request if its deadline has not moved.
func (x *exchange) expire(cancel context.CancelFunc) {
	at := x.deadline.Load()
	if at == 0 {
		return
	}
	if left := time.Until(time.Unix(0, at)); left > 0 {
		x.timer.Load().Reset(left)
		return
	}
	x.expired.Store(true)
	cancel()
}

func (x *exchange) stopTimer() {
	if timer := x.timer.Load(); timer != nil {
		x.deadline.Store(0)
		timer.Stop()
	}
}

// tries notes a try, and the address that it has.
func (x *exchange) tries(address string) {
	if x.attempts.Add(1) == 1 {
		x.stats = x.proxy.metrics.of(x.route.cluster)
	}
	x.address.Store(&address)
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader writes the status.
func (x *exchange) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the body. A caller that does not read has stallTimeout.
func (x *exchange) Write(p []byte) (int, error) {
	_ = x.control.SetWriteDeadline(time.Now().Add(x.proxy.stallTimeout)) // all connections have one
	n, err := x.ResponseWriter.Write(p)
	x.stats.response.Add(int64(n))
	return n, err
}

// FlushError sends what was written. Until there is more, the caller need not read.
func (x *exchange) FlushError() error {
	err := x.control.Flush()
	_ = x.control.SetWriteDeadline(time.Time{})
	return err
}

// requestBody is the body that the caller sends. A caller that does not send has stallTimeout.
type requestBody struct {
	io.ReadCloser

	x *exchange
}

// Read reads the body.
func (b *requestBody) Read(p []byte) (int, error) {
	x := b.x
	_ = x.control.SetReadDeadline(time.Now().Add(x.proxy.stallTimeout))
	n, err := b.ReadCloser.Read(p)
	_ = x.control.SetReadDeadline(time.Time{})
	x.stats.request.Add(int64(n))
	switch {
	case err == io.EOF:
		x.complete.Store(true)
	case err != nil:
		x.bodyErr.CompareAndSwap(nil, &err)
	}
	if x.deadline.Load() != 0 && !x.fixed {
		x.extend()
	}
	return n, err
}

// abort ends a response of which a part was sent: the caller must not take it for a complete one.
func (x *exchange) abort(broken any) {
	x.outcome = "broken"
	if x.request.Context().Err() != nil {
		x.outcome = "cancelled"
	}
	if !x.request.ProtoAtLeast(1, 1) { // the end of the connection would be that of the response
		reset(x.request.Context().Value(connKey{}))
	}
	panic(broken) // net/http ends the connection, or the stream
}

// reset makes the end of a connection visible as one of an error.
func reset(conn any) {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = secure.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// end counts and logs the request.
func (x *exchange) end() {
	x.stopTimer()
	if x.request.Body != http.NoBody && !x.complete.Load() && x.outcome != "tunnel" { // net/http reads what is left of it
		_ = x.control.SetReadDeadline(time.Now().Add(x.proxy.stallTimeout))
	}
	p, took := x.proxy, time.Since(x.begin)
	if x.outcome == "" {
		x.outcome = strconv.Itoa(x.status/100) + "xx"
	}
	p.metrics.inFlight.Add(-1)
	switch x.outcome {
	case "dropped", "circuit_broken", "unavailable": // others name clusters that do not exist
		x.stats = p.metrics.of(x.route.cluster)
	}
	x.stats.ended(x.outcome, took, x.attempts.Load())
	attributes := []any{
		"cluster", x.route.cluster, "method", x.request.Method, "outcome", x.outcome, "status", x.status,
		"attempts", x.attempts.Load(), "took", took.Round(time.Microsecond),
	}
	if address := x.address.Load(); address != nil {
		attributes = append(attributes, "endpoint", *address)
	}
	p.log.Debug("request", attributes...)
}

// limiter permits a few lines a second.
type limiter struct{ second, n, skipped atomic.Int64 }

const linesPerSecond = 10

// warn logs a failure. Of many, it logs some: the metrics have them all.
func (p *proxy) warn(failure string, attributes ...any) {
	l := &p.failing
	if now := time.Now().Unix(); l.second.Swap(now) != now {
		l.n.Store(0)
	}
	if l.n.Add(1) > linesPerSecond {
		l.skipped.Add(1)
		return
	}
	if skipped := l.skipped.Swap(0); skipped > 0 {
		attributes = append(attributes, slog.Int64("failures_not_logged", skipped))
	}
	p.log.Warn(failure, attributes...) //nolint:sloglint // its callers have literals
}

// endpoint names the endpoint of the last try for messages.
func (x *exchange) endpoint() string {
	if address := x.address.Load(); address != nil {
		return fmt.Sprintf("endpoint %s (%d tried): ", *address, x.attempts.Load())
	}
	return ""
}
