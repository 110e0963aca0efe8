package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// exchange is a request of a caller and its response. It writes the response.
type exchange struct {
	http.ResponseWriter
	deadlines

	proxy   *proxy
	request *http.Request
	route   route
	begun   time.Time
	stats   *clusterMetrics
	status  int
	outcome string // a code of problems; "" if an endpoint has answered

	attempts atomic.Int64
	address  atomic.Pointer[string] // of the last try
	bodyErr  atomic.Pointer[error]  // of the body of the request
	tunnel   *tunnel                // nil for none
	leaves   bool                   // the body to others than net/http
	kept     int64                  // bytes of the body
	counted  bool
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	return ctx.Value(exchangeKey{}).(*exchange) //nolint:errcheck,forcetypeassert // all requests have one
}

// exchangeContext is the context of a request on its way to an endpoint. It has no deadline
// while the caller sends the body, and after the answer.
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
	at, _ := c.x.deadline()
	return at, !at.IsZero()
}

// tries notes a try, and the address that it has.
func (x *exchange) tries(address string) {
	if x.attempts.Add(1) == 1 {
		x.picked(address)
	}
	x.address.Store(&address)
}

// picked notes that lbd knows the cluster, unless the address is not from lbd.
func (x *exchange) picked(address string) {
	x.stats = x.proxy.metrics.of(x.route.cluster, address != x.proxy.options.client.Fallback)
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// WriteHeader writes the status.
func (x *exchange) WriteHeader(status int) {
	if status >= http.StatusOK {
		x.status = status
	} else { // it is sent at once
		removeForged(x.Header(), proxyStatus)
		x.writing(true)
		defer x.writing(false)
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write writes a part of the body.
func (x *exchange) Write(p []byte) (int, error) {
	x.writing(true)
	n, err := x.ResponseWriter.Write(p)
	x.stats.response.Add(int64(n))
	return n, err
}

// FlushError sends what was written.
func (x *exchange) FlushError() error {
	x.writing(true)
	defer x.writing(false)
	return x.control.Flush()
}

// requestBody is the body that the caller sends.
type requestBody struct {
	io.ReadCloser

	x *exchange
}

// Read reads the body.
func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.x.read(b.ReadCloser, p)
	if b.x.attempts.Load() > 0 { // else it is kept
		b.x.stats.request.Add(int64(n))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.x.bodyErr.CompareAndSwap(nil, &err)
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

// end ends the exchange.
func (x *exchange) end() {
	x.deadlines.end()
	if x.request.Body != http.NoBody && !x.complete && x.outcome != "tunnel" {
		x.leave()
	}
	x.count()
}

// count counts and logs the request when it has ended, or when its tunnel begins.
func (x *exchange) count() {
	if x.counted {
		return
	}
	x.counted = true
	p, took := x.proxy, time.Since(x.begun)
	if x.outcome == "" {
		x.outcome = strconv.Itoa(x.status/100) + "xx"
	}
	p.metrics.inFlight.Add(-1)
	if x.attempts.Load() == 0 {
		x.stats = p.metrics.of(x.route.cluster, x.outcome == "dropped" || x.outcome == "circuit_broken")
	}
	x.stats.request.Add(x.kept)
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

// leave lets net/http read what is left of the body, but no other request: what comes may still belong to this one.
func (x *exchange) leave() {
	if x.outcome == "broken" || x.outcome == "cancelled" {
		return
	}
	_ = x.control.SetReadDeadline(time.Now().Add(x.stall))
	if x.leaves { // else net/http closes the connection itself
		limited := http.MaxBytesReader(x.ResponseWriter, io.NopCloser(strings.NewReader("x")), 0)
		_, _ = limited.Read(make([]byte, 1)) // beyond its limit, it makes net/http close the connection
	}
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
