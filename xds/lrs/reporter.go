package lrs

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/xds/backoff"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/wake"
)

const (
	// sendAllClusters is the client feature for servers that request all clusters.
	sendAllClusters = "envoy.lrs.supports_send_all_clusters"
	// closeTimeout limits the time of the last reports, as in gRPC.
	closeTimeout = time.Second
	// maxStopped is the maximum number of stopped clusters whose last load is not reported.
	maxStopped = 1000
)

// Options are the parameters of a Reporter.
type Options struct {
	// Node is that of the bootstrap.
	Node *corev3.Node
	// Loads has the counters.
	Loads Loads
	// Logger logs the first response of a server, and errors.
	Logger *slog.Logger
	// Dial connects to a server; nil for [bootstrap.Server.Dial].
	Dial func(bootstrap.Server) (*grpc.ClientConn, error)
	// Backoff returns the wait after a stream without a response, given the number of such
	// streams before it; nil for backoff.Wait.
	Backoff func(retries int) time.Duration
}

// Reporter reports load until it is closed. Its methods are safe for concurrent use. Only
// Close waits for servers.
type Reporter struct {
	options Options
	node    *corev3.Node // with all features of the client
	ctx     context.Context
	cancel  context.CancelFunc
	streams sync.WaitGroup

	mu       sync.Mutex
	clusters map[resource.ServiceKey]cluster
	servers  map[string]*server // those with clusters, by key
	stops    uint64             // calls of Stop, by cluster
	stopped  int                // stopped clusters
	closed   bool
}

// cluster is a cluster whose load is reported, or that is stopped with load left.
type cluster struct {
	server   *server
	counters Counters  // used by the stream that reports them while busy
	since    time.Time // the end of the last report
	busy     bool      // it is in a report that is being sent
	stopped  uint64    // number of its stop; 0 if it is not stopped
}

func (c cluster) isActive() bool { return c.stopped == 0 }

func (c cluster) hasLoad() bool { return !c.busy && !c.counters.Read().Empty() }

// New returns a Reporter without clusters. The caller closes it.
func New(o Options) *Reporter {
	node := proto.CloneOf(o.Node)
	if !slices.Contains(node.GetClientFeatures(), sendAllClusters) {
		node.ClientFeatures = append(node.ClientFeatures, sendAllClusters)
	}
	if o.Dial == nil {
		o.Dial = func(s bootstrap.Server) (*grpc.ClientConn, error) { return s.Dial() }
	}
	if o.Backoff == nil {
		o.Backoff = func(retries int) time.Duration { return backoff.Wait(retries, rand.Float64) }
	}
	r := &Reporter{options: o, node: node, clusters: make(map[resource.ServiceKey]cluster), servers: make(map[string]*server)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Report reports the load of clusters to s from now on; call it before the first pick. A
// cluster that is reported to another server moves to s, with the load that was not sent.
func (r *Reporter) Report(s bootstrap.Server, clusters ...resource.ServiceKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(clusters) == 0 {
		return
	}
	to := r.servers[s.Key()]
	if to == nil {
		to = &server{
			Server: s, reporter: r, wake: wake.NewOne(), quit: make(chan struct{}),
			status: ServerStatus{URI: s.URI, Since: time.Now()},
		}
		r.servers[s.Key()] = to
		r.streams.Go(to.run)
	}
	for _, key := range clusters {
		c, ok := r.clusters[key]
		if !ok {
			c = cluster{server: to, counters: r.options.Loads.Open(key), since: time.Now()}
		}
		if c.stopped != 0 {
			c.stopped = 0
			r.stopped--
		}
		if c.server != to {
			c.server.wake.Wake()
			c.server = to
		}
		r.clusters[key] = c
	}
}

// Stop ends the reports of clusters when their load, with the requests in progress, was
// reported. Clusters without load end at once.
func (r *Reporter) Stop(clusters ...resource.ServiceKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range clusters {
		c, ok := r.clusters[key]
		if !ok || c.stopped != 0 {
			continue
		}
		r.stops++
		r.stopped++
		c.stopped = r.stops
		r.set(key, c)
		c.server.wake.Wake()
	}
	if r.stopped > maxStopped {
		r.dropOldest()
	}
}

// set updates a cluster, or removes a stopped one without load. The caller holds mu.
func (r *Reporter) set(key resource.ServiceKey, c cluster) {
	r.clusters[key] = c
	if c.stopped != 0 && !c.busy && c.counters.Read().Empty() {
		r.remove(key)
	}
}

// remove removes a stopped cluster. The caller holds mu.
func (r *Reporter) remove(key resource.ServiceKey) {
	r.stopped--
	r.clusters[key].counters.Close()
	delete(r.clusters, key)
}

// dropOldest removes the first stopped clusters above maxStopped. The caller holds mu.
func (r *Reporter) dropOldest() {
	var stopped []resource.ServiceKey
	for key, c := range r.clusters {
		if c.stopped != 0 && !c.busy {
			stopped = append(stopped, key)
		}
	}
	slices.SortFunc(stopped, func(a, b resource.ServiceKey) int { return cmp.Compare(r.clusters[a].stopped, r.clusters[b].stopped) })
	for _, key := range stopped[:min(len(stopped), r.stopped-maxStopped)] {
		s := r.clusters[key].server
		r.options.Logger.Warn("dropped the last load of a cluster: limit of stopped clusters reached",
			"cluster", key.Cluster, "server", s.URI)
		r.remove(key)
		s.wake.Wake()
	}
}

// report is the load of a cluster in a report that is being sent.
type report struct {
	key      resource.ServiceKey
	counters Counters
	since    time.Time // the end of the last report
}

// acquire marks the clusters that a server requested as busy, and returns them by name.
func (r *Reporter) acquire(s *server, requested requestedClusters) []report {
	r.mu.Lock()
	defer r.mu.Unlock()
	var batch []report
	for key, c := range r.clusters {
		if c.server == s && !c.busy && requested.has(key.Cluster) {
			c.busy = true
			r.clusters[key] = c
			batch = append(batch, report{key, c.counters, c.since})
		}
	}
	slices.SortFunc(batch, func(a, b report) int {
		return cmp.Or(cmp.Compare(a.key.Cluster, b.key.Cluster), cmp.Compare(a.key.EDSServiceName, b.key.EDSServiceName))
	})
	return batch
}

// release ends acquire. It removes stopped clusters that have no more load, or that the
// server did not request.
func (r *Reporter) release(s *server, requested requestedClusters, batch []report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sent := range batch {
		c := r.clusters[sent.key]
		c.busy, c.since = false, sent.since
		r.set(sent.key, c)
	}
	for key, c := range r.clusters {
		if c.server == s && c.stopped != 0 && !c.busy && !requested.has(key.Cluster) {
			r.remove(key)
		}
	}
}

// has reports whether a server has a cluster for which is returns true. The caller holds mu.
func (r *Reporter) has(s *server, is func(cluster) bool) bool {
	for _, c := range r.clusters {
		if c.server == s && is(c) {
			return true
		}
	}
	return false
}

// retire removes a server without clusters. It reports whether its goroutine must end.
func (r *Reporter) retire(s *server) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.has(s, anyCluster) {
		return r.closed
	}
	delete(r.servers, s.Key())
	return true
}

// Close sends the last reports, for at most a second, and returns when all streams have
// ended.
func (r *Reporter) Close() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		for _, s := range r.servers {
			close(s.quit)
		}
	}
	r.mu.Unlock()
	timer := time.AfterFunc(closeTimeout, r.cancel)
	r.streams.Wait()
	timer.Stop()
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clusters {
		c.counters.Close()
	}
	clear(r.clusters)
	clear(r.servers)
}

// Loads has the counters of load. A key is not opened again before its Counters are closed.
type Loads interface {
	// Open returns new counters of a cluster, from zero.
	Open(resource.ServiceKey) Counters
}

// Counters are the load of one cluster. One goroutine at a time uses them. They neither
// block nor call the Reporter.
type Counters interface {
	// Read returns the load since the last acknowledged Read, and the requests in
	// progress.
	Read() resource.Load
	// Acknowledge marks the load of the last Read as reported.
	Acknowledge()
	// Close releases the counters.
	Close()
}
