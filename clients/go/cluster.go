package lbdclient

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A batch has the picks for batchTime, at least minBatch and at most maxBatch; the first one, firstBatch.
	batchTime                      = 2 * time.Second
	minBatch, firstBatch, maxBatch = 20, 100, 1000
	// fetchWait is how long lbd may wait for an endpoint, before it answers that there is none.
	fetchWait = time.Second
	// refusedAge is the age after which a batch of nothing but refusals is replaced.
	refusedAge = time.Second
	// followPause is the time between two calls that follow a cluster, at least.
	followPause = 100 * time.Millisecond
	// maxFollow is the wait of a call that follows a cluster, at most.
	maxFollow = 30 * time.Second

	firstBackoff  = 100 * time.Millisecond
	maxBackoff    = 5 * time.Second
	maxRetryAfter = time.Minute

	// otherTime is how long a request waits for other endpoints after none that is known has answered.
	// In the modes without a batch, it asks again after otherPause.
	otherTime, otherPause = time.Second, 200 * time.Millisecond

	// idleTime is the time without a request after which a cluster is no longer followed.
	idleTime = 5 * time.Minute
)

// cluster is what a client knows of one cluster.
type cluster struct {
	client   *Client // fixed
	name     string  // fixed
	target   string  // fixed: the target that name is; "" for a cluster
	counts   counts
	budget   budget
	asides   asides
	connects connects
	asked    asked

	used   atomic.Bool  // since the goroutine has looked
	picked atomic.Int64 // when lbd gave it an endpoint last; 0 for never. In the modes without a batch

	// Written with mu held.
	batch atomic.Pointer[batch] // nil unless the goroutine runs
	err   atomic.Pointer[Error] // why the last call to lbd failed; nil if it did not

	mu      sync.Mutex
	tried   chan struct{} // closed after the first try to get a batch; nil if the goroutine has never run, or was idle
	refused time.Duration // until when err is the answer to requests, without a goroutine; 0 if it runs
	next    chan struct{} // closed with the next batch; nil without a waiting request
}

func newCluster(client *Client, name string) *cluster {
	c := &cluster{client: client, name: name}
	if target, ok := strings.CutPrefix(name, targetPrefix); ok {
		c.target = target
	}
	c.asked.calls = map[string]*askedCall{}
	c.counts.init()
	c.budget.init(client.config.MaxTokens)
	return c
}

// usable returns the batch, unless there is none, or it is too old and lbd is unreachable.
func (c *cluster) usable(at time.Duration) *batch {
	if !c.used.Load() {
		c.used.Store(true)
	}
	b := c.batch.Load()
	if b == nil || at-b.made < c.client.config.StaleFor {
		return b
	}
	if err := c.err.Load(); err != nil {
		if err.Code == "" {
			c.client.changed(StateStale, err)
		}
		return nil
	}
	return b
}

// wait starts the goroutine that follows the cluster, unless it runs, waits for the end of its first try to get a batch,
// and returns that for a query; another one if lbd is unreachable and any will do.
func (c *cluster) wait(ctx context.Context, query string, others bool) (*batch, error) {
	c.mu.Lock()
	if c.tried == nil || c.refused != 0 && now() > c.refused {
		tried := make(chan struct{})
		c.asked.mu.Lock()
		c.asked.answered(query) // the first one, before any answer
		c.asked.mu.Unlock()
		if !c.client.start(c.run) {
			c.mu.Unlock()
			return nil, c.client.closedError(c.name)
		}
		c.tried, c.refused = tried, 0
	}
	tried := c.tried
	c.mu.Unlock()
	select {
	case <-tried:
	case <-ctx.Done():
		return nil, unavailable(c.name, "lbd did not answer in time", ctx.Err())
	case <-c.client.ctx.Done():
		return nil, c.client.closedError(c.name)
	}
	known := c.asked.get(query)
	if b := c.usable(now()); b != nil {
		if b.query == "" && query == "" {
			return b, nil
		}
		return c.ask(ctx, query, known, b, others)
	}
	if err := c.err.Load(); err != nil {
		if err.Code == "no_route" || err.Code == "invalid_argument" && c.target != "" { // of another request
			return c.ask(ctx, query, known, nil, false)
		}
		return nil, err
	}
	return nil, unavailable(c.name, "the cluster is no longer followed", nil)
}

// run follows the cluster until it is idle or forgotten, lbd does not permit it, or the client is closed.
func (c *cluster) run() {
	c.client.startReports()
	ctx := c.client.ctx
	backoff, used, n, most, refused := firstBackoff, now(), firstBatch, maxBatch, time.Duration(0)
	for {
		began, query, size := now(), c.asked.query(), n
		if query != "" {
			size = minBatch
		}
		b, err := c.fetch(ctx, query, size)
		if size > firstBatch && codeOf(err) == "invalid_argument" { // more than the quota of the caller permits
			n, most = firstBatch, firstBatch
			continue
		}
		if err == nil {
			c.publish(b, nil)
			err = c.follow(ctx, b)
			if age := now() - b.made; age >= followPause {
				n = min(max(int(float64(b.turn.Load())*batchTime.Seconds()/age.Seconds()), minBatch), most)
				c.budget.fit(n)
			}
		}
		pause := max(0, followPause-(now()-began))
		if err != nil && ctx.Err() == nil {
			rejection := errorOf(c.name, err)
			c.publish(nil, rejection)
			if c.batch.Load() == nil && rejection.isFinal() { // names are often input
				refused = now() + refusedAge
				break
			}
			pause = max(jitter(backoff), min(rejection.RetryAfter, maxRetryAfter))
			backoff = min(2*backoff, maxBackoff)
		} else {
			backoff = firstBackoff
		}
		if c.used.Swap(false) {
			used = now()
		}
		forgotten := (*c.client.clusters.Load())[c.name] != c
		if forgotten || now()-used > idleTime || !sleep(ctx, pause) {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batch.Store(nil)
	c.asked.clear()
	if c.refused = refused; refused == 0 {
		c.err.Store(nil)
		c.tried = nil
	}
}

// publish makes a batch, or the reason why there is no new one, visible to requests.
func (c *cluster) publish(b *batch, err *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b != nil {
		c.batch.Store(b)
		c.asked.put(b, true)
		c.asides.forget(func(address string) bool {
			return b.generation != 0 && b.query == "" && !slices.ContainsFunc(b.elements, func(e element) bool { return e.address == address })
		})
	}
	c.err.Store(err)
	if b != nil && c.next != nil {
		close(c.next)
		c.next = nil
	}
	select {
	case <-c.tried:
	default:
		close(c.tried)
	}
}

// other waits for another batch than b, and reports whether there is one.
func (c *cluster) other(ctx context.Context, b *batch) bool {
	c.mu.Lock()
	if c.batch.Load() != b {
		c.mu.Unlock()
		return true
	}
	if c.next == nil {
		c.next = make(chan struct{})
	}
	next := c.next
	c.mu.Unlock()
	select {
	case <-next:
		return true
	case <-ctx.Done():
	case <-c.client.ctx.Done():
	}
	return false
}

// param returns the cluster, or the target, as a parameter.
func (c *cluster) param() url.Values {
	if c.target != "" {
		return url.Values{"target": {c.target}}
	}
	return url.Values{"cluster": {c.name}}
}

func (c *cluster) fetch(ctx context.Context, query string, n int) (*batch, error) {
	var answer answered
	params := c.param()
	params.Set("n", strconv.Itoa(n))
	params.Set("reports", "true")
	params.Set("wait", milliseconds(fetchWait))
	err := c.client.api.do(ctx, call{
		method:  http.MethodGet,
		path:    "/v1/pick",
		query:   params,
		asks:    query,
		cluster: c.name,
		timeout: fetchWait + waitGrace,
	}, &answer)
	if errors.Is(err, ErrDropped) || errors.Is(err, ErrCircuitBroken) {
		return refusedBatch(query, errorOf(c.name, err), c.client.config.MaxAge), nil
	}
	if err != nil {
		return nil, err
	}
	return c.batchOf(query, answer)
}

// follow returns when it is time for a new batch.
func (c *cluster) follow(ctx context.Context, b *batch) error {
	if b.generation == 0 {
		sleep(ctx, b.until-now())
		return nil
	}
	for {
		left := b.until - now()
		if left <= 0 {
			return nil
		}
		began := now()
		state, err := c.client.state(ctx, b.cluster, c.target, b.generation, left, false)
		if err != nil || state.Generation != b.generation {
			return err
		}
		sleep(ctx, min(left, followPause-(now()-began)))
	}
}

// sleep returns false if ctx is done before.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// spread returns 80 % to 100 % of d: clients that got their batches at the same time, after a change of the cluster, get
// the next ones at different times.
func spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.2*rand.Float64()))
}

// jitter returns d ± 20 %.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
