package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/quota"
)

// work is how much a route costs, and when it is shed.
type work int

const (
	// light routes cost little, and are never shed: picks are among them.
	light work = iota
	// reading routes return many resources.
	reading
	// snapshot routes read or change the resources of many clusters.
	snapshotting
	// pushing routes change resources of one cluster or target.
	pushing
	// streaming routes are watches.
	streaming
)

// doing returns a router for routes of a kind of work.
func (r router) doing(w work) *router {
	r.permission.work = w
	return &r
}

// Limits are those of what callers use. The zero value limits nothing.
type Limits struct {
	// Quotas has the accounts of callers; nil for no quotas.
	Quotas *quota.Manager
	// MaxTTL limits the ttl of leases; 0 is [picks.MaxTTL].
	MaxTTL time.Duration
	// Wait is the default of the parameter wait of picks.
	Wait time.Duration
	// Turns is the budget of large responses; nil for no limit.
	Turns *overload.Turns
	// Shedding rejects and ends work while lbd is overloaded; nil for never.
	Shedding *Shedding
}

// The time after which to retry a request that was rejected because a limit was reached.
const retryAfter = time.Second

// accountOf returns the account of who makes a request: of an identity by its name, of a
// caller without one by [listen.PeerOf]. Callers on loopback share one, which may use all: lbd cannot
// distinguish them.
func (l *Limits) accountOf(w *recorder, r *http.Request, now time.Time) *quota.Account {
	c := w.caller
	if c != nil && c.Name != "" {
		return l.Quotas.EnterIdentity(c.Name, c.Quota, now)
	}
	if _, _, known := listen.ProcessOf(r); w.policy.Local && !known {
		return l.Quotas.Enter(listen.PeerOf(r), l.Quotas.Whole(), now)
	}
	return l.Quotas.Enter(listen.PeerOf(r), nil, now)
}

// admit counts a request against the quotas of its caller, and rejects work that is shed.
// [recorder.finish] releases what it acquires.
func (e *route) admit(w *recorder, r *http.Request, now time.Time) error {
	l := &e.router.limits
	if err := l.shed(e.permission.work, w.caller); err != nil {
		return err
	}
	if l.Quotas == nil {
		return nil
	}
	w.account = l.accountOf(w, r, now)
	if err := w.account.Request(1, now); err != nil {
		return limitProblem(err, 1)
	}
	resource := quota.Bulk
	switch e.permission.work {
	case light:
		return nil
	case streaming:
		resource = quota.Streams
	default:
	}
	return w.acquire(resource, 1)
}

// shed returns an error if work is shed.
func (l *Limits) shed(k work, c *access.Caller) error {
	var level overload.Level
	switch {
	case k == streaming && c.Name == "":
		level = overload.ShedStreams
	case k == snapshotting:
		level = overload.ShedSnapshots
	case k == pushing:
		level = overload.ShedPushes
	default:
		return nil
	}
	return l.Shedding.rejects(level)
}

func shedProblem(level overload.Level, retry time.Duration) error {
	return fault.Errorf(overloaded, "lbd is overloaded: %s. GET /readyz?verbose names the cause", level).Retry(retry)
}

// limitProblem returns an error of package quota as that of a request that asks for n in total.
func limitProblem(err error, n int64) *fault.Error {
	f := &fault.Error{Code: fault.RateLimited, Detail: err.Error(), RetryAfter: retryAfter}
	if e, ok := errors.AsType[*quota.RateError](err); ok {
		f.RetryAfter = e.RetryAfter
	}
	if e, ok := errors.AsType[*quota.LimitError](err); ok {
		if !e.Own {
			f.Code = overloaded
		}
		if n > e.Limit {
			f.RetryAfter, f.Detail = 0, fmt.Sprintf("%s: this request alone needs %d, and a retry does not help", f.Detail, n)
		}
	}
	return f
}

// acquire acquires n of a resource until finish.
func (w *recorder) acquire(r quota.Resource, n int64) error {
	if err := w.account.Acquire(r, n); err != nil {
		return limitProblem(err, w.acquired[r]+n)
	}
	w.acquired[r] += n
	if r != quota.Bytes {
		return nil
	}
	return w.reserve(n)
}

// reserve reserves bytes of the memory of all requests until finish, or until the answer is complete.
func (w *recorder) reserve(bytes int64) error {
	if err := w.router.limits.Shedding.budget().Reserve(bytes, w.reserved); err != nil {
		refused := fault.Errorf(overloaded, "the request %v", err)
		if e, ok := errors.AsType[*overload.MemoryError](err); !ok || !e.Never() {
			refused.RetryAfter = retryAfter
		}
		return refused
	}
	w.reserved += bytes
	return nil
}

// reserving returns the context of a request for work that reserves what it takes.
func reserving(w *recorder, r *http.Request) context.Context {
	return overload.WithReserve(r.Context(), w.reserve)
}

// answered acquires a complete answer instead of what it took to compute it.
func (w *recorder) answered(bytes int64) error {
	if err := w.account.Acquire(quota.Bytes, bytes); err != nil {
		return limitProblem(err, w.acquired[quota.Bytes]+bytes)
	}
	w.acquired[quota.Bytes] += bytes
	if more := bytes - w.reserved; more > 0 {
		return w.reserve(more)
	}
	w.router.limits.Shedding.budget().Release(w.reserved - bytes)
	w.reserved = bytes
	return nil
}

// release releases n of a resource that the request has acquired.
func (w *recorder) release(r quota.Resource, n int64) {
	w.acquired[r] -= n
	w.account.Release(r, n)
}

// awaiting runs the wait of a request. It counts as a stream meanwhile, and not as bulk work, so that
// long polls do not use up what pushes and lists need, and is shed as one. The context of wait ends with
// the identity of the caller.
func awaiting(w *recorder, r *http.Request, wait func(context.Context) error) error {
	limits := &w.router.limits
	if err := limits.shed(streaming, w.caller); err != nil {
		return err
	}
	bulk, streams := w.acquired[quota.Bulk], 1-min(w.acquired[quota.Streams], 1)
	w.release(quota.Bulk, bulk)
	if err := w.acquire(quota.Streams, streams); err != nil {
		return err
	}
	ctx, cancel := whileValid(r.Context(), w.caller)
	defer cancel()
	shed := limits.Shedding.add(w.caller, cancel)
	defer shed.leave()
	if err := wait(ctx); err != nil {
		if shed.isEnded() {
			return shedProblem(overload.ShedStreams, shedRetry())
		}
		return err
	}
	w.release(quota.Streams, streams)
	return w.acquire(quota.Bulk, bulk)
}

// whileValid returns a context that ends when the identity of the caller does: when it expires or
// is revoked.
func whileValid(ctx context.Context, c *access.Caller) (context.Context, context.CancelFunc) {
	end := c.Expires
	if end.IsZero() {
		end = time.Now().Add(100 * 365 * 24 * time.Hour)
	}
	ctx, cancel := context.WithDeadline(ctx, end)
	if c.Revoked() != nil {
		go func() {
			select {
			case <-c.Revoked():
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}

// finish releases what the request has acquired.
func (w *recorder) finish() {
	w.endTurn()
	if w.reserved > 0 {
		w.router.limits.Shedding.budget().Release(w.reserved)
	}
	if w.account == nil {
		return
	}
	for r, n := range w.acquired {
		if n > 0 {
			w.account.Release(quota.Resource(r), n)
		}
	}
	w.account.Leave()
}

// takeTurn waits for the turn to compute a large response, so that a CPU remains for picks.
// The turn ends before the response is written: a caller that reads slowly holds none.
func takeTurn(w *recorder, r *http.Request) error {
	turn, err := w.router.limits.Turns.Begin(r.Context(), overload.ResponseWork, turnName(w, r))
	if err != nil {
		return fault.FromContext(err)
	}
	w.turn = turn
	return nil
}

// About what the description of a cluster without its endpoints takes until it is written, and that of an endpoint.
const (
	clusterBytes  = 4 << 10
	endpointBytes = 1 << 10
)

// takeTurnOf is takeTurn for what describes n clusters or endpoints, and reserves so many bytes for each. Few need no turn.
func takeTurnOf(w *recorder, r *http.Request, n, bytes int) error {
	if n <= overload.SmallClusters {
		return nil
	}
	if err := takeTurn(w, r); err != nil {
		return err
	}
	return w.reserve(int64(n) * int64(bytes))
}

// takeSlot waits for one of a few slots, because what the request computes takes much memory.
func (w *recorder) takeSlot(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		w.slot = slots
		return nil
	case <-ctx.Done():
		return fault.FromContext(ctx.Err())
	}
}

// endTurn ends the turn and the slot of the request, if it has them.
func (w *recorder) endTurn() {
	w.turn.End()
	w.turn = nil
	if w.slot != nil {
		<-w.slot
		w.slot = nil
	}
}

// turnName identifies the caller among those that wait for turns.
func turnName(w *recorder, r *http.Request) string {
	if c := w.caller; c != nil && c.Name != "" {
		return c.Name
	}
	return listen.PeerOf(r)
}
