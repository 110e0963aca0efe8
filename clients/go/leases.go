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
	// renewTick is the time between two looks at the leases that may have to be renewed.
	renewTick = 200 * time.Millisecond
)

// lease is a lease of a request in flight.
type lease struct {
	id      string
	ttl     time.Duration // fixed
	renewAt time.Duration // guarded by leases.mu
}

// endedLease is an element of POST /v1/leases/done.
type endedLease struct {
	ID      string  `json:"id"`
	Outcome Outcome `json:"outcome"`
}

// leases renews and ends the leases of a client, in one goroutine.
type leases struct {
	client *Client       // fixed
	wake   chan struct{} // has an element if ended has some

	mu      sync.Mutex
	held    map[string]*lease
	ended   []endedLease
	running bool
}

func newLeases(client *Client) *leases {
	return &leases{client: client, wake: make(chan struct{}, 1), held: map[string]*lease{}}
}

// hold renews a lease until it is ended.
func (l *leases) hold(id string, ttl time.Duration) *lease {
	held := &lease{id: id, ttl: ttl, renewAt: now() + ttl/2}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[id] = held
	if !l.running {
		l.running = l.client.start(l.run)
	}
	return held
}

// end ends a lease in the background.
func (l *leases) end(held *lease, outcome Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[held.id] != held {
		return
	}
	delete(l.held, held.id)
	if len(l.ended) < maxEnded {
		l.ended = append(l.ended, endedLease{held.id, outcome})
	}
	l.wakeUp()
}

func (l *leases) run() {
	ctx := l.client.ctx
	tick := time.NewTicker(renewTick)
	defer tick.Stop()
	for {
		select {
		case <-l.wake: // once for each part, so that renewals get their turn
			if l.sendEnded(ctx) != nil {
				sleep(ctx, renewTick)
			}
		case <-tick.C:
			l.renew(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// sendEnded ends the leases that wait for it, with one call, and wakes run if there are more. After an error, they still
// wait.
func (l *leases) sendEnded(ctx context.Context) error {
	l.mu.Lock()
	n := min(len(l.ended), leasesAtOnce)
	part := l.ended[:n:n]
	l.mu.Unlock()
	if n == 0 {
		return nil
	}
	err := l.client.api.do(ctx, call{
		method: http.MethodPost,
		path:   "/v1/leases/done",
		body: struct {
			Leases []endedLease `json:"leases"`
		}{part},
		timeout: callTimeout,
		key:     new(string), // the second end of a lease gets the answer of the first
	}, &struct{}{})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil || codeOf(err) == "invalid_argument" { // that would be the answer to the next try, too
		l.ended, err = l.ended[n:], nil
	}
	if len(l.ended) > 0 {
		l.wakeUp()
	}
	return err
}

func (l *leases) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// renew renews the leases that have had half of their time.
func (l *leases) renew(ctx context.Context) {
	at := now()
	var due []*lease
	l.mu.Lock()
	for _, held := range l.held {
		if at >= held.renewAt {
			due = append(due, held)
		}
	}
	l.mu.Unlock()
	for _, held := range due {
		err := l.client.api.do(ctx, call{
			method:  http.MethodPost,
			path:    "/v1/leases/" + url.PathEscape(held.id) + "/renew",
			query:   url.Values{"ttl": {milliseconds(held.ttl)}},
			timeout: callTimeout,
			key:     new(string),
		}, &struct{}{})
		expired := codeOf(err) == "unknown_lease"
		if err != nil && !expired {
			if codeOf(err) == "" {
				return // lbd is unreachable: the next tick tries again
			}
			continue // lbd rejects it, but maybe not the others
		}
		l.mu.Lock()
		held.renewAt = now() + held.ttl/2
		if expired {
			delete(l.held, held.id) // the request goes on without it
		}
		l.mu.Unlock()
	}
}

// close ends all leases, after the goroutine has ended.
func (l *leases) close(ctx context.Context) {
	l.mu.Lock()
	for id := range l.held {
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
