package client

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lbd-dev/lbd/overload"
)

// stream is one ADS stream.
type stream struct {
	requests chan sending // has room for one: the owner never waits
	answered atomic.Bool  // the owner writes it
	taking   atomic.Bool  // the runner writes it: a response is being decoded, or told

	// owner only
	sending bool // a request is with the sender
	greeted bool // the node was sent
	owes    bool // it was asked for something that it had not sent before
	warned  bool // that it sends what was not asked for
}

// sending is a request on its way to the server.
type sending struct {
	request       *discoveryv3.DiscoveryRequest
	subscriptions *subscriptions  // those of its type
	fresh         []*subscription // see subscriptions.nextRequest
}

// run is the runner: it keeps a stream open until ctx ends.
func (s *server) run(ctx context.Context) {
	var conn *grpc.ClientConn
	defer func() {
		if conn != nil {
			_ = conn.Close() // nothing is left to be lost
		}
	}()
	for retries := 0; ; retries++ {
		began := time.Now()
		answered := false
		var err error
		if conn == nil {
			conn, err = s.config.Dial(s.client.options.dial...)
		}
		if err == nil {
			answered, err = s.follow(ctx, conn)
		}
		if ctx.Err() != nil {
			return
		}
		if s.lacking(err) {
			// The server is not unreachable: what was received stays, and no other server
			// takes its place.
			retries--
			// The next attempt dials on a channel of its own: this one could answer it with
			// the error of its last dial, which costs another pause.
			if conn != nil {
				_ = conn.Close() // nothing is left to be lost
				conn = nil
			}
			select {
			case <-time.After(overload.Pause(overload.RetryPause)):
			case <-ctx.Done():
			}
			continue
		}
		s.client.post(func() { s.ended(answered, err) })
		wait := backOff(retries, s.client.options.draw)
		if answered {
			// It may go on at once, but no more often than once a second.
			retries, wait = -1, backOffBase-time.Since(began)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// follow opens a stream and follows it to its end. It reports whether the server
// answered.
func (s *server) follow(ctx context.Context, conn *grpc.ClientConn) (answered bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	calls, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		cancel(nil)
		return false, &openError{err}
	}
	st := &stream{requests: make(chan sending, 1)}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		s.send(ctx, cancel, st, calls)
	}()
	defer func() { cancel(nil); <-gone }()
	s.client.post(func() { s.opened(st) })
	for {
		m, err := calls.Recv()
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return st.answered.Load(), errEnded
		case ctx.Err() != nil:
			return st.answered.Load(), context.Cause(ctx)
		default:
			// What is too much for either side would be so at once again.
			return st.answered.Load() && status.Code(err) != codes.ResourceExhausted, err
		}
		st.taking.Store(true)
		r := decodeResponse(m, s.client.decoding, s.client.recall(ctx, m))
		taken := newReceipt()
		s.client.post(func() { s.receive(st, r, taken) })
		select {
		case <-taken.taken:
		case <-ctx.Done():
			return st.answered.Load(), ctx.Err()
		}
		st.taking.Store(false)
	}
}

// openError is why a stream could not be opened.
type openError struct{ err error }

func (e *openError) Error() string { return e.err.Error() }

func (e *openError) Unwrap() error { return e.err }

// lacking reports whether a stream could not be opened because lbd lacks something. gRPC
// keeps only the text of what a connection failed with.
func (s *server) lacking(err error) bool {
	failed, ok := errors.AsType[*openError](err)
	if !ok || status.Code(failed.err) != codes.Unavailable ||
		!strings.Contains(failed.Error(), dialFailed) && !strings.Contains(failed.Error(), handshakeFailed) {
		return false
	}
	r, ok := overload.OfText(failed.Error())
	if ok {
		s.client.options.Overload.Report(r, failed.err)
	}
	return ok
}

// What is in the text of gRPC's error where no connection could be made, or none of TLS:
// its files could not be read.
const (
	dialFailed      = "Error while dialing"
	handshakeFailed = "transport: authentication handshake failed: "
)

// errEnded is how a stream ends that the server ends without an error.
var errEnded = errors.New("the server ended the stream")

// send is the sender.
func (s *server) send(ctx context.Context, cancel context.CancelCauseFunc, st *stream, calls discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient) {
	for {
		select {
		case next := <-st.requests:
			switch err := calls.Send(next.request); {
			case errors.Is(err, io.EOF):
				return // the stream is over: Recv says why
			case err != nil:
				cancel(err)
				return
			}
			s.client.post(func() { s.sent(st, next) })
		case <-ctx.Done():
			return
		}
	}
}
