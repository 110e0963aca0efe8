package lbdclient

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxClusters of a client. Beyond it, those without a batch are forgotten; in the other modes, the one without an
	// endpoint for longest.
	maxClusters = 1000
	// closeTimeout is for the last report and the ends of leases.
	closeTimeout = time.Second
	// suffix of hosts that name a cluster.
	suffix = ".lbd"
)

// Client picks endpoints for requests, and tells lbd how they ended. It is safe for concurrent use.
//
// Go has no hook for the end of a process: call [Client.Close], or the last report is not sent, and leases end with
// their ttl.
type Client struct {
	config   Config // fixed
	reporter string // fixed
	api      *api
	leases   *leases
	upstream *http.Transport
	clones   clones          // of upstream, and of the Base of each Transport
	ctx      context.Context // done when the client is closed
	cancel   context.CancelFunc
	// Reports that are under way when the client is closed come to their end: lbd may have counted them.
	reports       context.Context
	cancelReports context.CancelFunc

	is       atomic.Value                        // State of lbd
	clusters atomic.Pointer[map[string]*cluster] // copied with mu held

	mu        sync.Mutex
	closed    bool
	reporting bool
	failures  map[failure]int64 // connects that lbd has to be told of; nil unless there is a goroutine for that
	work      sync.WaitGroup    // Add with mu held
}

// New returns a client. It does not call lbd: lbd may start later. The error is about a setting that is not valid.
func New(config Config) (*Client, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{config: config, reporter: reporter()}
	if c.api, err = newAPI(config, c.reached); err != nil {
		return nil, err
	}
	c.leases = newLeases(c)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.reports, c.cancelReports = context.WithCancel(context.Background())
	c.clones.known = map[cloneKey]*http.Transport{}
	c.clusters.Store(&map[string]*cluster{})
	c.upstream = &http.Transport{
		DialContext:           c.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   100,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   config.ConnectTimeout,
		ExpectContinueTimeout: time.Second,
	}
	return c, nil
}

// ClusterOf returns the cluster that a host names, without its port, or the target, as xds:///NAME; "" if requests to it
// are not for lbd. As in a URL, upper and lower case are the same.
func (c *Client) ClusterOf(host string) string {
	_, name := c.hostOf(host)
	return name
}

func (c *Client) hostOf(host string) (known Host, name string) {
	host = strings.ToLower(host)
	known = c.config.Hosts[host]
	if name, ok := strings.CutSuffix(host, suffix); ok && known.Cluster == "" {
		return known, name
	}
	return known, known.Cluster // withDefaults has set it
}

// Mode returns the mode of the client.
func (c *Client) Mode() Mode { return c.config.Mode }

// ConnectTimeout returns the maximum time to connect to an endpoint.
func (c *Client) ConnectTimeout() time.Duration { return c.config.ConnectTimeout }

// Retries returns the maximum number of retries of a request.
func (c *Client) Retries() int { return max(0, c.config.Retries) }

// RetryTokens returns what is left of the budget of retries of a cluster, of MaxTokens: there are retries while it is more
// than half.
func (c *Client) RetryTokens(cluster string) float64 {
	if known := (*c.clusters.Load())[cluster]; known != nil {
		return float64(known.budget.tokens.Load()) / 10
	}
	return c.config.MaxTokens
}

// cluster returns what the client knows of a cluster.
func (c *Client) cluster(name string) (*cluster, error) {
	if known := (*c.clusters.Load())[name]; known != nil {
		return known, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := *c.clusters.Load()
	if known := old[name]; known != nil {
		return known, nil
	}
	all := maps.Clone(old)
	if len(old) >= maxClusters && c.config.Mode == ModeBatch {
		maps.DeleteFunc(all, func(_ string, known *cluster) bool { return known.batch.Load() == nil })
	} else if len(old) >= maxClusters {
		delete(all, slices.MinFunc(slices.Collect(maps.Values(all)), func(a, b *cluster) int {
			return cmp.Compare(a.picked.Load(), b.picked.Load())
		}).name)
	}
	if len(all) >= maxClusters {
		return nil, unavailable(name, "the client has too many clusters", nil)
	}
	added := newCluster(c, name)
	all[name] = added
	c.clusters.Store(&all)
	return added, nil
}

// start runs f in a goroutine that Close waits for; false if the client is closed.
func (c *Client) start(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}

func (c *Client) closedError(cluster string) *Error {
	return unavailable(cluster, "the client is closed", nil)
}

// Close sends the last report, ends the leases that are held, and ends the goroutines of the client, within 1 s in all.
// Picks fail from then on. Further calls do nothing.
func (c *Client) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		c.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	c.cancelReports()
	c.report(ctx, false)
	c.leases.close(ctx)
	c.api.client.CloseIdleConnections()
	c.upstream.CloseIdleConnections()
	c.clones.closeIdle(nil)
}
