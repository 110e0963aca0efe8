package lrs_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/lrs"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeServer is an LRS server that the test controls.
type fakeServer struct {
	lrsv3.UnimplementedLoadReportingServiceServer

	server  *grpc.Server
	streams chan *serverStream // in the order in which they were opened
}

// serverStream is one stream to a management server.
type serverStream struct {
	t         testing.TB
	stream    lrsv3.LoadReportingService_StreamLoadStatsServer
	requests  chan *lrsv3.LoadStatsRequest // closed when the client ends the stream
	staysOpen bool                         // does not end with the client
	paused    atomic.Bool                  // receives one more request, until resume
	resume    chan struct{}
	end       chan error // error to end the stream
}

func (m *fakeServer) StreamLoadStats(stream lrsv3.LoadReportingService_StreamLoadStatsServer) error {
	s := &serverStream{
		stream: stream, requests: make(chan *lrsv3.LoadStatsRequest, 1000),
		resume: make(chan struct{}), end: make(chan error, 1),
	}
	m.streams <- s
	go func() {
		defer close(s.requests)
		for {
			request, err := stream.Recv()
			if err != nil {
				if !s.staysOpen {
					s.end <- nil
				}
				return
			}
			s.requests <- request
			if s.paused.Load() {
				select {
				case <-s.resume:
				case <-stream.Context().Done():
				}
			}
		}
	}()
	select {
	case err := <-s.end:
		return err
	case <-stream.Context().Done():
		return stream.Context().Err()
	}
}

func serve(l net.Listener) *fakeServer {
	fixed := grpc.InitialWindowSize(1 << 16) // a fixed window
	m := &fakeServer{server: grpc.NewServer(fixed), streams: make(chan *serverStream, 100)}
	lrsv3.RegisterLoadReportingServiceServer(m.server, m)
	go func() { _ = m.server.Serve(l) }()
	return m
}

// kit is a Reporter with management servers in a synctest bubble: connections are
// in memory, and the test advances the time.
type kit struct {
	*testing.T
	*lrs.Reporter

	counts *counts
	log    *strings.Builder

	mu        sync.Mutex // guards what Dial reads
	listeners map[string]*bufconn.Listener
	servers   map[string]*fakeServer
}

var node = &corev3.Node{Id: "n", UserAgentName: "lbd", ClientFeatures: []string{"a", "b"}}

// runTest runs f in a bubble, with server "one" running.
func runTest(t *testing.T, f func(k *kit), change ...func(*lrs.Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, change...)
		k.start("one")
		f(k)
	})
}

func newKit(t *testing.T, change ...func(*lrs.Options)) *kit {
	k := &kit{
		T: t, counts: &counts{of: map[resource.ServiceKey]*count{}}, log: new(strings.Builder),
		listeners: map[string]*bufconn.Listener{}, servers: map[string]*fakeServer{},
	}
	o := lrs.Options{
		Node: node, Loads: k.counts, Logger: slog.New(slog.NewTextHandler(k.log, nil)),
		Dial: func(s bootstrap.Server) (*grpc.ClientConn, error) {
			return s.Dial(grpc.WithContextDialer(func(ctx context.Context, name string) (net.Conn, error) {
				k.mu.Lock()
				l := k.listeners[name]
				k.mu.Unlock()
				if l == nil {
					return nil, errors.New("not listening")
				}
				return l.DialContext(ctx)
			}))
		},
	}
	for _, f := range change {
		f(&o)
	}
	k.Reporter = lrs.New(o)
	t.Cleanup(func() {
		k.Close()
		k.stopAll()
		k.counts.allClosed(t)
	})
	return k
}

func (k *kit) start(name string) {
	l := bufconn.Listen(1 << 20)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listeners[name], k.servers[name] = l, serve(l)
}

func (k *kit) stop(name string) {
	k.mu.Lock()
	m := k.servers[name]
	delete(k.servers, name)
	delete(k.listeners, name)
	k.mu.Unlock()
	m.server.Stop()
}

func (k *kit) stopAll() {
	for _, name := range slices.Collect(maps.Keys(k.servers)) {
		k.stop(name)
	}
}

// server is a management server as the bootstrap names it.
func server(t testing.TB, uri string) bootstrap.Server {
	t.Helper()
	c, err := bootstrap.Parse([]byte(`{"node":{"id":"n"},"xds_servers":[{"server_uri":"`+uri+`","channel_creds":[{"type":"insecure"}]}]}`), bootstrap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c.Servers[0]
}

func (k *kit) at(name string) bootstrap.Server { return server(k, "passthrough:///"+name) }

func keys(names ...string) (out []resource.ServiceKey) {
	for _, n := range names {
		out = append(out, resource.ServiceKey{Cluster: n, EDSServiceName: n + "-eds"})
	}
	return out
}

// pass advances the time, and waits until all goroutines block.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// stream returns the server's next stream, after its first request; nil if there is none.
func (k *kit) stream(name string) *serverStream {
	k.Helper()
	synctest.Wait()
	select {
	case s := <-k.servers[name].streams:
		s.t = k
		if first := <-s.requests; first.GetNode() == nil || len(first.GetClusterStats()) > 0 {
			k.Errorf("the first request is %v", first)
		}
		return s
	default:
		return nil
	}
}

// answered returns the next stream of a server, after a response that requests all clusters.
func (k *kit) answered(name string, every time.Duration) *serverStream {
	k.Helper()
	s := k.stream(name)
	if s == nil {
		k.Fatalf("%s has no new stream", name)
	}
	s.answer(every)
	return s
}

// answer requests reports of some clusters, or of all.
func (s *serverStream) answer(every time.Duration, clusters ...string) {
	s.t.Helper()
	m := &lrsv3.LoadStatsResponse{LoadReportingInterval: durationpb.New(every), Clusters: clusters, SendAllClusters: len(clusters) == 0}
	s.send(m)
}

func (s *serverStream) send(m *lrsv3.LoadStatsResponse) {
	s.t.Helper()
	if err := s.stream.Send(m); err != nil {
		s.t.Fatal(err)
	}
	synctest.Wait()
}

// reports returns the received reports as texts.
func (s *serverStream) reports() (out []string) {
	synctest.Wait()
	for {
		select {
		case r, ok := <-s.requests:
			if !ok {
				return append(out, "end")
			}
			if r.GetNode() != nil {
				out = append(out, "with a node")
			}
			out = append(out, report(r))
		default:
			return out
		}
	}
}

// expect checks the received reports.
func (s *serverStream) expect(want ...string) {
	s.t.Helper()
	if got := s.reports(); !slices.Equal(got, want) {
		s.t.Fatalf("reports:\n%q\nwant:\n%q", got, want)
	}
}

// report describes a report, each cluster as "cluster/service 10s dropped=2 x=1
// zone issued/ok/failed/now cpu=1/0.5 metric=1/2", with semicolons between.
func report(r *lrsv3.LoadStatsRequest) string {
	var parts []string
	for _, c := range r.GetClusterStats() {
		var s strings.Builder
		s.WriteString(fmt.Sprintf("%s/%s %v", c.GetClusterName(), c.GetClusterServiceName(), c.GetLoadReportInterval().AsDuration()))
		if n := c.GetTotalDroppedRequests(); n > 0 {
			s.WriteString(fmt.Sprintf(" dropped=%d", n))
		}
		for _, d := range c.GetDroppedRequests() {
			s.WriteString(fmt.Sprintf(" %s=%d", d.GetCategory(), d.GetDroppedCount()))
		}
		for _, l := range c.GetUpstreamLocalityStats() {
			id := l.GetLocality()
			s.WriteString(fmt.Sprintf(" %s%s%s %d/%d/%d/%d", id.GetRegion(), id.GetZone(), id.GetSubZone(), l.GetTotalIssuedRequests(),
				l.GetTotalSuccessfulRequests(), l.GetTotalErrorRequests(), l.GetTotalRequestsInProgress()))
			for name, m := range map[string]*endpointv3.UnnamedEndpointLoadMetricStats{
				"cpu": l.GetCpuUtilization(), "mem": l.GetMemUtilization(), "application": l.GetApplicationUtilization(),
			} {
				if m != nil {
					s.WriteString(fmt.Sprintf(" %s=%d/%g", name, m.GetNumRequestsFinishedWithMetric(), m.GetTotalMetricValue()))
				}
			}
			for _, m := range l.GetLoadMetricStats() {
				s.WriteString(fmt.Sprintf(" %s=%d/%g", m.GetMetricName(), m.GetNumRequestsFinishedWithMetric(), m.GetTotalMetricValue()))
			}
		}
		parts = append(parts, s.String())
	}
	return strings.Join(parts, "; ")
}

// status is the status of the only server.
func (k *kit) status() lrs.ServerStatus {
	k.Helper()
	all := k.Status()
	if len(all) != 1 {
		k.Fatalf("status %+v, want one server", all)
	}
	return all[0]
}

// drain yields the received reports.
func drain(s *serverStream) iter.Seq[*lrsv3.LoadStatsRequest] {
	return func(yield func(*lrsv3.LoadStatsRequest) bool) {
		for {
			select {
			case r, ok := <-s.requests:
				if !ok || !yield(r) {
					return
				}
			default:
				return
			}
		}
	}
}
