package lbdclient

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// discardBytes of a response are read before a retry, at most, in discardTime.
const discardBytes, discardTime = 4 << 10, 50 * time.Millisecond

// Transport is an http.RoundTripper that sends requests to hosts CLUSTER.lbd to the endpoints that lbd picks. It is safe
// for concurrent use, if Base is.
//
// If there is no connection to an endpoint, any request is sent to another one. A request of which something was sent is
// retried at another endpoint if it is idempotent, as net/http defines it (GET, HEAD, OPTIONS, PUT, DELETE,
// or a header Idempotency-Key or X-Idempotency-Key, which is not sent if its value is nil), if it has no body or a
// GetBody, and if the connection failed before the status line, or the status is 502, 503 or 504. The deadline of its
// context holds for all tries together.
//
// The request counts as in flight until the body of the response is read to its end or closed. If lbd has no endpoint
// for a request, the error is an [*Error].
type Transport struct {
	// Client picks the endpoints. It is required.
	Client *Client
	// Base sends the requests. Default: for clusters, an http.Transport without a proxy that keeps 100 idle connections
	// to each endpoint, and connects within ConnectTimeout of the client; for other hosts, http.DefaultTransport.
	//
	// Base sees the address of the endpoint in URL, and the host of the cluster in Host. It should dial with
	// [Client.DialContext]. Its errors count as those of the endpoint: a RoundTripper that calls other servers, such as
	// one that gets tokens, belongs around Transport. With https, the certificate of the endpoint is verified for the host
	// of the cluster, if Base is an *http.Transport.
	Base http.RoundTripper
}

// RoundTrip sends a request.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	var host Host
	cluster := ""
	if request.URL != nil {
		host, cluster = t.Client.hostOf(request.URL.Hostname())
	}
	if cluster == "" {
		if t.Base == nil {
			return http.DefaultTransport.RoundTrip(request)
		}
		return t.Base.RoundTrip(request)
	}
	ctx := request.Context()
	current, ask := new(try), AskOf(ctx)
	if ask != nil || host.Hash != "" || strings.HasPrefix(cluster, targetPrefix) {
		current.pick.query = host.query(cluster, request, ask)
	}
	err := ctx.Err() // no endpoint is to blame
	if err == nil {
		err = t.Client.pick(ctx, cluster, &current.pick)
	}
	if err != nil {
		if request.Body != nil {
			request.Body.Close()
		}
		return nil, err
	}
	base, body, repeatable := t.base(request.URL), request.Body, repeatable(request)
	for {
		if ask != nil && ask.Choice != nil {
			*ask.Choice = current.pick.Choice()
		}
		response, err := base.RoundTrip(current.prepare(request, body))
		if !current.answered(ctx, request, response, err) {
			return current.result(request, response, err)
		}
		unread := current.pick.outcome == Unreachable && current.sent.unread()
		next := new(try)
		if !unread && !isEmpty(request) && request.GetBody == nil || !current.pick.next(ctx, &next.pick, repeatable) {
			return current.result(request, response, err)
		}
		if !unread && request.GetBody != nil {
			again, bodyErr := request.GetBody()
			if bodyErr != nil {
				next.pick.End(Cancelled)
				return current.result(request, response, err)
			}
			body = again
			current.sent.release()
		}
		if response != nil {
			discard(response.Body)
		}
		current.pick.End(Failure)
		current = next
	}
}

// discard closes the body of a response. A short one is read before, so that the connection is kept.
func discard(body io.ReadCloser) {
	timer := time.AfterFunc(discardTime, func() { body.Close() })
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, body, discardBytes)
	body.Close()
}

// CloseIdleConnections closes the connections of Base that are not in use.
func (t *Transport) CloseIdleConnections() {
	base := t.sender()
	if closer, ok := base.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
	t.Client.clones.closeIdle(base)
}

// sender returns Base, or its default.
func (t *Transport) sender() http.RoundTripper {
	if t.Base == nil {
		return t.Client.upstream
	}
	return t.Base
}

// base returns the RoundTripper for requests to a cluster.
func (t *Transport) base(target *url.URL) http.RoundTripper {
	base := t.sender()
	if plain, ok := base.(*http.Transport); ok && target.Scheme == "https" {
		return t.Client.clones.of(plain, strings.ToLower(target.Hostname()))
	}
	return base
}

func isEmpty(request *http.Request) bool { return request.Body == nil || request.Body == http.NoBody }

// repeatable reports whether a request may be sent again after a part of it was sent.
func repeatable(request *http.Request) bool {
	switch request.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete:
		return true
	}
	_, marked := request.Header["Idempotency-Key"]
	_, markedX := request.Header["X-Idempotency-Key"]
	return marked || markedX
}

// try is one try of a request, in one allocation. It is the body of its response.
type try struct {
	pick     Pick
	request  http.Request
	url      url.URL
	sent     requestBody
	response io.ReadCloser // body of the response
	ctx      tryContext
	// connecting is true while there is no connection that would be made for this try.
	connecting atomic.Bool
}

// tryContext is the context of a try: [Client.DialContext] finds the try in it.
type tryContext struct {
	context.Context

	try *try
}

type tryKey struct{}

// Value returns the try for tryKey.
func (c *tryContext) Value(key any) any {
	if key == (tryKey{}) {
		return c.try
	}
	return c.Context.Value(key)
}

// prepare returns the request for the endpoint: RoundTrippers must not change that of their caller.
func (t *try) prepare(original *http.Request, body io.ReadCloser) *http.Request {
	t.url = *original.URL
	t.ctx = tryContext{original.Context(), t}
	var ctx context.Context = &t.ctx
	if original.URL.Scheme == "https" {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			TLSHandshakeStart: func() { t.connecting.Store(true) },
			TLSHandshakeDone:  func(tls.ConnectionState, error) { t.connecting.Store(false) },
		})
	}
	t.request = *original.WithContext(ctx)
	t.request.URL = &t.url
	t.url.Host = t.pick.choice.Address
	if t.request.Host == "" {
		t.request.Host = original.URL.Host
	}
	t.request.Body = body
	if body != nil && body != http.NoBody {
		t.sent.body = body
		t.request.Body = &t.sent
	}
	return &t.request
}

// answered tells lbd how the try ended, and reports whether a retry may help.
func (t *try) answered(ctx context.Context, original *http.Request, response *http.Response, err error) (failed bool) {
	if a := t.pick.attempt; a != nil {
		if a.Request, a.Err = original, err; err == nil {
			a.Status = response.StatusCode
		}
	}
	switch {
	case err == nil && response.StatusCode >= http.StatusInternalServerError:
		t.pick.answered(Failure)
		t.pick.cluster.asides.answered(t.pick.choice.Address)
		switch response.StatusCode {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true // another endpoint may do better
		}
		t.pick.cluster.budget.succeeded()
		return false
	case err == nil:
		t.pick.Answered(Success)
		return false
	case deadlinePassed(ctx):
		if t.connecting.Load() || isNotSent(err) {
			t.pick.uncount()
		}
		t.pick.answered(Failure)
		t.pick.failed(true)
		return false
	case ctx.Err() != nil || t.sent.failed.Load() || !isConnection(err):
		t.pick.answered(Cancelled)
		return false
	case isNotSent(err):
		t.pick.missedHurry(err)
		t.pick.answered(Unreachable)
		return true
	default:
		t.pick.lost = true
		t.pick.answered(Failure)
		t.pick.failed(true)
		return true
	}
}

// deadlinePassed is for errors that http.Client causes at the deadline, maybe before ctx is done.
func deadlinePassed(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

// result returns what RoundTrip returns. The try ends with the body of the response.
func (t *try) result(original *http.Request, response *http.Response, err error) (*http.Response, error) {
	t.sent.release()
	if err != nil {
		t.pick.End(Cancelled)
		return nil, err
	}
	response.Request = original
	if response.Body == nil || response.Body == http.NoBody {
		t.pick.End(Success)
		return response, nil
	}
	t.response = response.Body
	if writer, ok := response.Body.(io.Writer); ok { // the connection, after 101 Switching Protocols
		response.Body = &upgraded{t, writer}
		return response, nil
	}
	if t.pick.lease == nil {
		response.Body = t
		return response, nil
	}
	// The connection refers to the try, and to the response of Base, but not to what the caller gets.
	copied := *response
	body := &leasedBody{t, response, &copied}
	copied.Body = body
	runtime.AddCleanup(body, func(t *try) { go func() { _ = t.Close() }() }, t)
	return &copied, nil
}

// leasedBody is the body of a response with a lease. If its caller loses it, it is closed, so that the lease ends.
type leasedBody struct {
	*try

	original, copied *http.Response
}

// Read reads the body of the response.
func (b *leasedBody) Read(p []byte) (int, error) {
	n, err := b.try.Read(p)
	if err != nil {
		b.copied.Trailer = b.original.Trailer // maybe it was not announced
	}
	return n, err
}

// Read reads the body of the response.
func (t *try) Read(p []byte) (int, error) {
	n, err := t.response.Read(p)
	if err != nil {
		t.pick.End(Success)
	}
	return n, err
}

// Close closes the body of the response.
func (t *try) Close() error {
	err := t.response.Close()
	t.pick.End(Success)
	return err
}

// upgraded is the connection of a response with the status 101.
type upgraded struct {
	*try
	io.Writer
}

// CloseWrite ends what is sent, if the connection can do so while it receives.
func (u *upgraded) CloseWrite() error {
	if half, ok := u.Writer.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// requestBody is the body of a request. It knows whether it is the reason why the request failed. If Base closes it
// before it was read, it stays open for the next try, until it is released.
type requestBody struct {
	body                           io.ReadCloser // nil for none
	read, failed, closed, released atomic.Bool
}

// Read reads the body of the request.
func (b *requestBody) Read(p []byte) (int, error) {
	b.read.Store(true)
	n, err := b.body.Read(p)
	if err != nil && err != io.EOF && !b.closed.Load() {
		b.failed.Store(true)
	}
	return n, err
}

// Close closes the body of the request. Base calls it when the connection has failed, maybe during a Read.
func (b *requestBody) Close() error {
	b.closed.Store(true)
	if b.read.Load() || b.released.Load() {
		return b.body.Close()
	}
	return nil
}

// release closes the body if Base has done so.
func (b *requestBody) release() {
	b.released.Store(true)
	if b.closed.Load() && !b.read.Load() {
		b.body.Close()
	}
}

// unread reports whether the next try can send the body.
func (b *requestBody) unread() bool { return b.body != nil && !b.read.Load() }
