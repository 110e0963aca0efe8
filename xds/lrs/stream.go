package lrs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/grpc"
)

// minInterval is the minimum interval of reports, also if the server requests a shorter one.
const minInterval = 50 * time.Millisecond

// stream is one stream to a server. The goroutine of the server owns it; receive has its own.
type stream struct {
	*server

	grpc    lrsv3.LoadReportingService_StreamLoadStatsClient
	answers chan *lrsv3.LoadStatsResponse
	end     chan error    // capacity 1: the error of Recv
	done    chan struct{} // closed when receive has returned

	answered  bool
	requested requestedClusters
	interval  time.Duration
	ticks     *time.Ticker // stopped before the first response
}

// requestedClusters are those that a server requested; all if it is empty.
type requestedClusters map[string]struct{}

func (a requestedClusters) has(cluster string) bool {
	if len(a) == 0 {
		return true
	}
	_, ok := a[cluster]
	return ok
}

// open opens a stream, which ends with ctx.
func (s *server) open(ctx context.Context, conn *grpc.ClientConn) (*stream, error) {
	client, err := lrsv3.NewLoadReportingServiceClient(conn).StreamLoadStats(ctx)
	if err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	st := &stream{
		server: s, grpc: client, ticks: time.NewTicker(time.Hour),
		answers: make(chan *lrsv3.LoadStatsResponse), end: make(chan error, 1), done: make(chan struct{}),
	}
	st.ticks.Stop()
	go st.receive(ctx)
	return st, nil
}

func (st *stream) receive(ctx context.Context) {
	defer close(st.done)
	for {
		m, err := st.grpc.Recv()
		if err != nil {
			st.end <- err
			return
		}
		select {
		case st.answers <- m:
		case <-ctx.Done():
			return
		}
	}
}

// report sends the node, and then reports as the server requests until the stream ends. The
// error is nil if lbd ended it.
func (st *stream) report() error {
	if err := st.send(&lrsv3.LoadStatsRequest{Node: st.reporter.node}); err != nil {
		return err
	}
	defer st.ticks.Stop()
	quit := st.quit
	for {
		last := false // the stream ends after this report
		select {
		case m := <-st.answers:
			if err := st.answer(m); err != nil {
				return err
			}
			if quit != nil {
				continue
			}
			last = true // the response that Close waited for
		case <-st.ticks.C:
		case <-st.wake:
			if st.hasCluster(cluster.isActive) || !st.answered && !st.idle() {
				continue
			}
		case err := <-st.end:
			return ended(err)
		case <-quit:
			if !st.answered && st.hasCluster(cluster.hasLoad) {
				quit = nil // wait for the first response
				continue
			}
			last = true
		}
		if st.answered && !st.idle() {
			if err := st.sendLoads(); err != nil {
				return err
			}
		}
		if last || st.idle() {
			return st.finish()
		}
	}
}

func (st *stream) answer(m *lrsv3.LoadStatsResponse) error {
	interval := m.GetLoadReportingInterval()
	if err := interval.CheckValid(); err != nil {
		return fmt.Errorf("load_reporting_interval: %w", err)
	}
	every := interval.AsDuration()
	if every <= 0 {
		return fmt.Errorf("load_reporting_interval is %v: it must be above 0", every)
	}
	st.requested = nil
	if !m.GetSendAllClusters() {
		st.requested = make(requestedClusters, len(m.GetClusters()))
		for _, name := range m.GetClusters() {
			st.requested[name] = struct{}{}
		}
	}
	if every != st.interval {
		st.ticks.Reset(max(every, minInterval))
	}
	st.interval, st.answered = every, true
	st.connected(every, st.requested)
	return nil
}

// finish ends the stream, and waits until the server has received all reports.
func (st *stream) finish() error {
	if err := st.grpc.CloseSend(); err != nil {
		return fmt.Errorf("end of the stream: %w", err)
	}
	timeout := time.After(closeTimeout)
	for {
		select {
		case <-st.answers:
		case err := <-st.end:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return ended(err)
		case <-timeout:
			return nil
		}
	}
}

// send sends one message. If the server ended the stream, the error is the server's.
func (st *stream) send(m *lrsv3.LoadStatsRequest) error {
	err := st.grpc.Send(m)
	if !errors.Is(err, io.EOF) {
		return err
	}
	for {
		select {
		case <-st.answers:
		case err := <-st.end:
			return ended(err)
		}
	}
}

func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the server ended the stream")
	}
	return fmt.Errorf("stream: %w", err)
}
