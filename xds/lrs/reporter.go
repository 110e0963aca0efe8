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
	clusters map[Key]*cluster
	servers  map[string]*server // those with clusters, by key
	stops    uint64             // calls of Stop, by cluster
	stopped  int                // stopped clusters
	closed   bool
}

// cluster is a cluster whose load is reported, or that is stopped with load left.
type cluster struct {
	key Key

	// Owned by the goroutine that set busy; guarded by the Reporter's mu otherwise.
	counters Counters
	since    time.Time // the end of the last report

	// Guarded by the Reporter's mu.
	server  *server
	busy    bool   // it is in a report that is being sent
	stopped uint64 // number of its stop; 0 if it is not stopped
}

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
	r := &Reporter{
		options: o, node: node,
		clusters: make(map[Key]*cluster), servers: make(map[string]*server),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Report reports the load of clusters to s from now on; call it before the first pick. A
// cluster that is reported to another server moves to s, with the load that was not sent.
func (r *Reporter) Report(s bootstrap.Server, clusters ...Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(clusters) == 0 {
		return
	}
	to := r.servers[s.Key()]
	if to == nil {
		to = newServer(r, s)
		r.servers[s.Key()] = to
		r.streams.Go(to.run)
	}
	for _, key := range clusters {
		c := r.clusters[key]
		if c == nil {
			c = &cluster{key: key, counters: r.options.Loads.Open(key), since: time.Now()}
			r.clusters[key] = c
		}
		if c.stopped != 0 {
			c.stopped = 0
			r.stopped--
		}
		if c.server == to {
			continue
		}
		if c.server != nil {
			delete(c.server.clusters, c)
			c.server.wake()
		}
		c.server = to
		to.clusters[c] = struct{}{}
	}
}

// Stop ends the reports of clusters when their load, with the requests in progress, was
// reported. Clusters without load end at once.
func (r *Reporter) Stop(clusters ...Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range clusters {
		c := r.clusters[key]
		if c == nil || c.stopped != 0 {
			continue
		}
		r.stops++
		c.stopped = r.stops
		r.stopped++
		r.removeIfDone(c)
		c.server.wake()
	}
	if r.stopped > maxStopped {
		r.dropOldest()
	}
}

// removeIfDone removes a stopped cluster without load. The caller holds mu.
func (r *Reporter) removeIfDone(c *cluster) {
	if c.stopped != 0 && !c.busy && c.counters.Read().Empty() {
		r.remove(c)
	}
}

// remove removes a stopped cluster. The caller holds mu.
func (r *Reporter) remove(c *cluster) {
	r.stopped--
	delete(r.clusters, c.key)
	delete(c.server.clusters, c)
	c.counters.Close()
}

// dropOldest removes the clusters above maxStopped that were stopped first. The caller
// holds mu.
func (r *Reporter) dropOldest() {
	var stopped []*cluster
	for _, c := range r.clusters {
		if c.stopped != 0 && !c.busy {
			stopped = append(stopped, c)
		}
	}
	slices.SortFunc(stopped, func(a, b *cluster) int { return cmp.Compare(a.stopped, b.stopped) })
	for _, c := range stopped[:min(len(stopped), r.stopped-maxStopped)] {
		r.options.Logger.Warn("dropped the last load of a cluster: limit of stopped clusters reached",
			"cluster", c.key.Cluster, "server", c.server.URI)
		r.remove(c)
		c.server.wake()
	}
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
