package client

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/backoff"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

type adsStream struct {
	requests   chan request // capacity 1: the owner never blocks
	answered   atomic.Bool  // written by the owner: the server has responded
	processing atomic.Bool  // written by the transport: a response is being decoded or handled

	handling sync.Mutex // held by the transport while it decodes a response, and until its updates were taken
	// unread are the last responses of their types for which there was no memory.
	unread   map[resource.Type]*discoveryv3.DiscoveryResponse // guarded by handling
	retrying bool                                             // the same: a goroutine reads them again

	// owner only
	sending         bool // a request is being sent
	nodeSent        bool
	awaitsResources bool // it requested resources for the first time
	warned          bool // of a type that was not requested
}

func newADSStream() *adsStream {
	return &adsStream{requests: make(chan request, 1), unread: map[resource.Type]*discoveryv3.DiscoveryResponse{}}
}

// request is a request with the state that it was made from.
type request struct {
	message       *discoveryv3.DiscoveryRequest
	subscriptions *subscriptions
	fresh         []*subscription // see subscriptions.nextRequest
}

// streamHandler handles the events of a transport. The owner calls it.
type streamHandler interface {
	streamOpened(*adsStream)
	requestSent(*adsStream, request)
	responseReceived(*adsStream, *response)
	streamEnded(answered bool, err error)
}

// transport keeps a connection to a server, with one stream at a time. It opens a new
// stream with back-off when one ends.
type transport struct {
	server      *bootstrap.Server
	dialOptions []grpc.DialOption
	jitter      func() float64 // in [0, 1)
	overload    *overload.Monitor
	handler     streamHandler
	// decode fails if the context ends.
	decode func(ctx context.Context, server string, m *discoveryv3.DiscoveryResponse) (*response, error)
	// post has the owner call a function. postAndWait also returns a channel that is
	// closed when the updates that the function caused were taken.
	post        func(func())
	postAndWait func(func()) <-chan struct{}
}

func (t *transport) run(ctx context.Context) {
	var conn *grpc.ClientConn
	closeConn := func() {
		if conn != nil {
			_ = conn.Close() // no call is left on it
			conn = nil
		}
	}
	defer closeConn()
	for retries := 0; ; retries++ {
		start := time.Now()
		answered := false
		var err error
		if conn == nil {
			conn, err = t.server.Dial(t.dialOptions...)
		}
		if err == nil {
			answered, err = t.runStream(ctx, conn)
		}
		if ctx.Err() != nil {
			return
		}
		wait := backoff.Wait(retries, t.jitter)
		if t.localShortage(err) {
			// The server is not unreachable: its resources stay, without fallback. The
			// next attempt needs a new connection: this one could repeat its last error.
			closeConn()
			retries--
			wait = overload.Pause(overload.RetryPause)
		} else {
			t.post(func() { t.handler.streamEnded(answered, err) })
		}
		if answered {
			// No back-off, but at most one stream per second.
			retries, wait = -1, time.Second-time.Since(start)
		}
		if !backoff.Sleep(ctx, wait) {
			return
		}
	}
}

// runStream opens a stream and receives until it ends. It reports whether the server
// responded. A response is received when the updates of the last one were taken: this
// is the flow control.
func (t *transport) runStream(ctx context.Context, conn *grpc.ClientConn) (answered bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	call, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		cancel(nil)
		return false, &openError{err}
	}
	st := newADSStream()
	var running sync.WaitGroup
	running.Go(func() { t.send(ctx, cancel, st, call) })
	defer func() { cancel(nil); running.Wait() }()
	t.post(func() { t.handler.streamOpened(st) })
	for {
		m, err := call.Recv()
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return st.answered.Load(), errStreamEnded
		case ctx.Err() != nil:
			return st.answered.Load(), context.Cause(ctx)
		default:
			// A new stream would exceed the limit again.
			return st.answered.Load() && status.Code(err) != codes.ResourceExhausted, err
		}
		st.handling.Lock()
		t.handle(ctx, st, m)
		if len(st.unread) > 0 && !st.retrying {
			st.retrying = true
			running.Go(func() { t.retry(ctx, st) })
		}
		st.handling.Unlock()
		if ctx.Err() != nil {
			return st.answered.Load(), context.Cause(ctx)
		}
	}
}

// handle decodes a response and has the owner handle it. One for which there is no memory stays in st.unread, and is
// rejected the first time. It is called under st.handling.
func (t *transport) handle(ctx context.Context, st *adsStream, m *discoveryv3.DiscoveryResponse) {
	st.processing.Store(true)
	defer st.processing.Store(false)
	r, err := t.decode(ctx, t.server.URI, m)
	if err != nil {
		return
	}
	switch {
	case !r.unread:
		defer r.release()
		delete(st.unread, r.kind)
	case st.unread[r.kind] == m:
		return
	default:
		st.unread[r.kind] = m
	}
	select {
	case <-t.postAndWait(func() { t.handler.responseReceived(st, r) }):
	case <-ctx.Done():
	}
}

// retry handles responses again for which there was no memory, until none is left. The server need not send them again.
func (t *transport) retry(ctx context.Context, st *adsStream) {
	for more := true; more && backoff.Sleep(ctx, overload.Pause(overload.RetryPause)); {
		st.handling.Lock()
		for _, m := range st.unread {
			t.handle(ctx, st, m)
		}
		more = len(st.unread) > 0
		st.retrying = more
		st.handling.Unlock()
	}
}

func (t *transport) send(ctx context.Context, cancel context.CancelCauseFunc, st *adsStream, call discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient) {
	for {
		select {
		case r := <-st.requests:
			switch err := call.Send(r.message); {
			case errors.Is(err, io.EOF):
				return // Recv returns the reason
			case err != nil:
				cancel(err)
				return
			}
			t.post(func() { t.handler.requestSent(st, r) })
		case <-ctx.Done():
			return
		}
	}
}

// openError is the error of an attempt to open a stream.
type openError struct{ err error }

func (e *openError) Error() string { return e.err.Error() }

func (e *openError) Unwrap() error { return e.err }

var errStreamEnded = errors.New("the server ended the stream")

// Texts in gRPC's error if a connection, or its TLS handshake, failed: a file of it
// could not be read.
const (
	dialFailed      = "Error while dialing"
	handshakeFailed = "transport: authentication handshake failed: "
)

// localShortage reports whether a stream could not be opened because lbd lacks a
// resource, such as descriptors, and reports it to the monitor. gRPC keeps only the text
// of the cause.
func (t *transport) localShortage(err error) bool {
	failed, ok := errors.AsType[*openError](err)
	if !ok || status.Code(failed.err) != codes.Unavailable ||
		!strings.Contains(failed.Error(), dialFailed) && !strings.Contains(failed.Error(), handshakeFailed) {
		return false
	}
	r, ok := overload.OfText(failed.Error())
	if ok {
		t.overload.Report(r, failed.err)
	}
	return ok
}
