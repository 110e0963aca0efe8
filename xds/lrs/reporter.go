package lrs

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/xds/bootstrap"
)

const (
	// sendAllClusters is the client feature that lets a server ask for the load of
	// all clusters without naming them.
	sendAllClusters = "envoy.lrs.supports_send_all_clusters"
	// closeTimeout bounds the last reports, as gRPC's.
	closeTimeout = time.Second
	// maxLeft is how many clusters that are no longer reported are kept until their
	// last load is.
	maxLeft = 1000
)

// Options are what a Reporter is made of.
type Options struct {
	// Node says who reports: the bootstrap's.
	Node *corev3.Node
	// Loads is where load is counted.
	Loads Loads
	// Logger is told when a server begins to take reports, and why it does not.
	Logger *slog.Logger
	// Dial connects to a server; nil for [bootstrap.Server.Dial].
	Dial func(bootstrap.Server) (*grpc.ClientConn, error)
	// Backoff is how long to wait after so many streams in a row, from 0 on, that
	// the server did not answer on; nil for gRPC's: from 1 s, times 1.6, to 2 min.
	Backoff func(retries int) time.Duration
}

// Reporter reports load until it is closed. Its methods may be called by any
// goroutine; none but Close waits for a server.
type Reporter struct {
	options Options
	node    *corev3.Node // with all features of the client
	ctx     context.Context
	cancel  context.CancelFunc
	streams sync.WaitGroup

	mu       sync.Mutex
	clusters map[Key]*cluster
	servers  map[string]*server // by their keys; those that have clusters
	stops    uint64             // how many clusters were stopped so far
	left     int                // how many of clusters are stopped
	closed   bool
}

// cluster is one whose load is reported, or was and has not been to its end.
type cluster struct {
	key Key

	// Of whoever made it busy, else guarded by the Reporter's mu.
	counters Counters
	since    time.Time // the end of the last report

	// Guarded by the Reporter's mu.
	server  *server
	busy    bool   // a report is made of it or under way
	stopped uint64 // the number of its stop; 0 while it is to be reported
}

// New returns a Reporter that has nothing to report yet.
func New(o Options) *Reporter {
	node := proto.CloneOf(o.Node)
	if !slices.Contains(node.GetClientFeatures(), sendAllClusters) {
		node.ClientFeatures = append(node.ClientFeatures, sendAllClusters)
	}
	if o.Dial == nil {
		o.Dial = func(s bootstrap.Server) (*grpc.ClientConn, error) { return s.Dial() }
	}
	if o.Backoff == nil {
		o.Backoff = backoff
	}
	r := &Reporter{
		options: o, node: node,
		clusters: make(map[Key]*cluster), servers: make(map[string]*server),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Report begins to report the load of clusters to s, from what is counted from now
// on: it is called before picks reach them. Those that are reported to another
// server go on with s, with what the other was not sent.
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
			r.left--
		}
		if c.server == to {
			continue
		}
		if c.server != nil {
			delete(c.server.clusters, c)
			c.server.stir()
		}
		c.server = to
		to.clusters[c] = struct{}{}
	}
}

// Stop ends the reports of clusters, once what they have come to until now, and
// what is in progress, has been reported. Those without load end at once.
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
		r.left++
		r.settle(c)
		c.server.stir()
	}
	if r.left > maxLeft {
		r.giveUp()
	}
}

// settle drops a cluster that is stopped once it has nothing left to report. It is
// called under mu.
func (r *Reporter) settle(c *cluster) {
	if c.stopped != 0 && !c.busy && c.counters.Read().Empty() {
		r.drop(c)
	}
}

// drop forgets a cluster that is stopped. It is called under mu.
func (r *Reporter) drop(c *cluster) {
	r.left--
	delete(r.clusters, c.key)
	delete(c.server.clusters, c)
	c.counters.Close()
}

// giveUp drops the clusters that were stopped first, of those that are too many:
// their servers have taken no report for long. It is called under mu.
func (r *Reporter) giveUp() {
	var stopped []*cluster
	for _, c := range r.clusters {
		if c.stopped != 0 && !c.busy {
			stopped = append(stopped, c)
		}
	}
	slices.SortFunc(stopped, func(a, b *cluster) int { return cmp.Compare(a.stopped, b.stopped) })
	for _, c := range stopped[:min(len(stopped), r.left-maxLeft)] {
		r.options.Logger.Warn("the last load of a cluster is given up: too many wait for their server",
			"cluster", c.key.Cluster, "server", c.server.URI)
		r.drop(c)
		c.server.stir()
	}
}

// Close sends what there is to report to the servers that take it within a second,
// and returns when no stream is left.
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
