package lbdclient

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// leasesAtOnce is the number of leases that one call ends, at most.
	leasesAtOnce = 1000
	// maxEnded is the number of ends that wait for lbd, at most. The other leases expire.
	maxEnded = 100_000
	// endPause is the time after which leases are ended again whose end lbd has not got.
	endPause = 500 * time.Millisecond
	// maxRenewPause is the time between two tries to renew a lease, at most.
	maxRenewPause = time.Second
	// endsAtOnce and renewalsAtOnce are the numbers of calls that wait for lbd at the same time, at most.
	endsAtOnce, renewalsAtOnce = 8, 100
)

// lease is a lease of a request in flight.
type lease struct {
	id      string        // fixed
	ttl     time.Duration // fixed
	renewal *time.Timer   // guarded by leases.mu
}

// endedLease is an element of POST /v1/leases/done.
type endedLease struct {
	ID      string  `json:"id"`
	Outcome Outcome `json:"outcome"`
}

// leases renews and ends the leases of a client, in the background.
type leases struct {
	client *Client       // fixed
	wake   chan struct{} // has an element if ended has some
	slots  chan struct{} // has an element for each renewal that waits for lbd

	once sync.Once // starts the goroutines that end leases

	mu    sync.Mutex
	held  map[string]*lease
	ended []endedLease
}

func newLeases(client *Client) *leases {
	return &leases{client: client, wake: make(chan struct{}, 1), slots: make(chan struct{}, renewalsAtOnce), held: map[string]*lease{}}
}

// hold renews a lease until it is ended.
func (l *leases) hold(id string, ttl time.Duration) *lease {
	held := &lease{id: id, ttl: ttl}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[id] = held
	held.renewal = time.AfterFunc(ttl/2, func() { l.client.start(func() { l.renew(held) }) })
	l.once.Do(func() {
		for range endsAtOnce {
			l.client.start(l.endAll)
		}
	})
	return held
}

// end ends a lease in the background, unless it is nil.
func (l *leases) end(held *lease, outcome Outcome) {
	if held == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[held.id] != held {
		return
	}
	held.renewal.Stop()
	delete(l.held, held.id)
	if len(l.ended) < maxEnded {
		l.ended = append(l.ended, endedLease{held.id, outcome})
	}
	l.wakeUp()
}

// endFailed ends the lease of a try that failed, and waits for lbd. It reports whether lbd has confirmed it while the
// request and the client go on: if not, lbd would not grant another lease, either. In any case, end does it again: lbd
// answers the second end of a lease like the first.
func (l *leases) endFailed(ctx context.Context, held *lease, outcome Outcome) bool {
	// Without the values of ctx: a trace of the request is not one of calls to lbd.
	called, cancel := context.WithCancel(l.client.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	return l.done(called, []endedLease{{held.id, outcome}}) == nil && ctx.Err() == nil && l.client.ctx.Err() == nil
}

// endAll is one of the goroutines that end leases.
func (l *leases) endAll() {
	ctx := l.client.ctx
	for {
		select {
		case <-l.wake:
			if l.sendEnded(ctx) != nil {
				sleep(ctx, endPause)
				l.wakeUp()
			}
		case <-ctx.Done():
			return
		}
	}
}

// sendEnded ends leases that wait for it, with one call. Another goroutine ends those that are left. After an error, they
// wait again.
func (l *leases) sendEnded(ctx context.Context) error {
	l.mu.Lock()
	n := min(len(l.ended), leasesAtOnce)
	part := l.ended[:n:n]
	l.ended = l.ended[n:]
	if len(l.ended) > 0 {
		l.wakeUp()
	}
	l.mu.Unlock()
	if n == 0 {
		return nil
	}
	err := l.done(ctx, part)
	if err == nil || codeOf(err) == "invalid_argument" { // that would be the answer to the next try, too
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = append(l.ended, part[:min(n, max(0, maxEnded-len(l.ended)))]...)
	return err
}

// done tells lbd that leases have ended.
func (l *leases) done(ctx context.Context, ended []endedLease) error {
	return l.client.api.do(ctx, call{
		method: http.MethodPost,
		path:   "/v1/leases/done",
		body: struct {
			Leases []endedLease `json:"leases"`
		}{ended},
		timeout: callTimeout,
		key:     new(string), // the second end of a lease gets the answer of the first
	}, &struct{}{})
}

func (l *leases) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// renew renews a lease. If that fails, it is tried again, unless the lease has expired: the request goes on without it.
func (l *leases) renew(held *lease) {
	ctx := l.client.ctx
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return
	}
	l.mu.Lock()
	ended := l.held[held.id] != held
	l.mu.Unlock()
	if ended {
		return
	}
	err := l.client.api.do(ctx, call{
		method:  http.MethodPost,
		path:    "/v1/leases/" + url.PathEscape(held.id) + "/renew",
		query:   url.Values{"ttl": {milliseconds(held.ttl)}},
		timeout: callTimeout,
		key:     new(string),
	}, &struct{}{})
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		held.renewal.Reset(held.ttl / 2)
	case codeOf(err) == "unknown_lease":
		delete(l.held, held.id)
	default:
		held.renewal.Reset(min(maxRenewPause, held.ttl/8))
	}
}

// close ends all leases, after the goroutines have ended.
func (l *leases) close(ctx context.Context) {
	l.mu.Lock()
	for id, held := range l.held {
		held.renewal.Stop()
		l.ended = append(l.ended, endedLease{id, Cancelled})
	}
	clear(l.held)
	left := len(l.ended)
	l.mu.Unlock()
	for ; left > 0; left -= leasesAtOnce {
		if l.sendEnded(ctx) != nil {
			return // lbd ends the others when their ttl has passed
		}
	}
}
