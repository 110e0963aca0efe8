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

// minInterval is the shortest time between reports, whatever is asked for: what a
// server asks for is a minimum too.
const minInterval = 50 * time.Millisecond

// stream is one stream to a server. All but what receive does belongs to the
// server's goroutine.
type stream struct {
	*server

	grpc    lrsv3.LoadReportingService_StreamLoadStatsClient
	answers chan *lrsv3.LoadStatsResponse
	end     chan error    // of size 1: why the server says no more
	done    chan struct{} // closed when receive has returned

	answered bool
	asked    asked
	interval time.Duration
	ticks    *time.Ticker // nil before the first answer
}

// asked are the clusters that a server wants to hear of: all where it names none.
type asked map[string]struct{}

func (a asked) has(cluster string) bool {
	if len(a) == 0 {
		return true
	}
	_, ok := a[cluster]
	return ok
}

// open begins a stream, which ends with ctx.
func (s *server) open(ctx context.Context, conn *grpc.ClientConn) (*stream, error) {
	client, err := lrsv3.NewLoadReportingServiceClient(conn).StreamLoadStats(ctx)
	if err != nil {
		return nil, fmt.Errorf("stream: %w", err)
	}
	st := &stream{
		server: s, grpc: client,
		answers: make(chan *lrsv3.LoadStatsResponse), end: make(chan error, 1), done: make(chan struct{}),
	}
	go st.receive(ctx)
	return st, nil
}

// receive takes what the server says, until it says no more.
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

// report introduces itself and then reports as the server asks, to the stream's
// end. Its error is why that was not wanted.
func (st *stream) report() error {
	if err := st.send(&lrsv3.LoadStatsRequest{Node: st.reporter.node}); err != nil {
		return err
	}
	var ticks <-chan time.Time
	defer func() {
		if st.ticks != nil {
			st.ticks.Stop()
		}
	}()
	quit := st.quit
	for {
		last := false // whether this is all that there is to say
		select {
		case m := <-st.answers:
			if err := st.answer(m); err != nil {
				return err
			}
			ticks = st.ticks.C
			if quit != nil {
				continue
			}
			last = true // the answer that Close waited for
		case <-ticks:
		case <-st.stirred:
			if st.wanted() || !st.answered && !st.idle() {
				continue
			}
		case err := <-st.end:
			return ended(err)
		case <-quit:
			if !st.answered && st.loaded() {
				quit = nil // the server may yet answer
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
			return st.hangUp()
		}
	}
}

// answer takes what the server asks for.
func (st *stream) answer(m *lrsv3.LoadStatsResponse) error {
	interval := m.GetLoadReportingInterval()
	if err := interval.CheckValid(); err != nil {
		return fmt.Errorf("load_reporting_interval: %w", err)
	}
	every := interval.AsDuration()
	if every <= 0 {
		return fmt.Errorf("load_reporting_interval is %v: it must be more than 0", every)
	}
	st.asked = nil
	if !m.GetSendAllClusters() {
		st.asked = make(asked, len(m.GetClusters()))
		for _, name := range m.GetClusters() {
			st.asked[name] = struct{}{}
		}
	}
	switch used := max(every, minInterval); {
	case st.ticks == nil:
		st.ticks = time.NewTicker(used)
	case every != st.interval:
		st.ticks.Reset(used)
	}
	st.interval, st.answered = every, true
	st.connected(every, st.asked)
	return nil
}

// hangUp ends the stream, and waits until the server has taken all of it.
func (st *stream) hangUp() error {
	if err := st.grpc.CloseSend(); err != nil {
		return fmt.Errorf("end of the stream: %w", err)
	}
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	for {
		select {
		case <-st.answers:
		case err := <-st.end:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return ended(err)
		case <-timer.C:
			return nil
		}
	}
}

// send sends one message. Its error is the server's, where the server has ended
// the stream.
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

// ended is why the stream is at its end.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the server has ended the stream")
	}
	return fmt.Errorf("stream: %w", err)
}
