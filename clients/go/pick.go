package lbdclient

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"
)

// Outcome is how a request ended.
type Outcome string

const (
	// Success is the outcome of a request that was answered, with any status below 500.
	Success Outcome = "success"
	// Failure is the outcome of a request without an answer in time, or with a status from 500 on. Outlier detection
	// counts it.
	Failure Outcome = "error"
	// Cancelled is the outcome of a request that its caller gave up, or whose deadline passed before it was sent.
	Cancelled Outcome = "cancelled"
	// Unreachable is the outcome of a try of which nothing was sent, because there was no connection. lbd looks at the
	// endpoint at once.
	Unreachable Outcome = "unreachable"
)

const (
	// maxWait is how long a pick may queue in lbd.
	maxWait = 5 * time.Second
	// ttlGrace is the time of a lease beyond the deadline of its request.
	ttlGrace = 5 * time.Second
	// maxTTL is what lbd permits by default. Leases of longer requests are renewed.
	maxTTL = 10 * time.Minute
	// maxTried is the number of addresses that lbd excludes, at most.
	maxTried = 100
)

var (
	// ErrWait is the error of [Client.TryPick] if a pick has to wait for lbd.
	ErrWait = errors.New("the pick has to wait for lbd")
	// ErrNotAccepted is the error of [Client.TryPick] if no address of the batch is accepted.
	ErrNotAccepted = errors.New("no address of the batch is accepted")
	// ErrNoRetry is the error of [Pick.Retry] if the result of the last try is that of the request.
	ErrNoRetry = errors.New("no retry is permitted, or there is no other address")
)

// Pick is an endpoint for one try of a request. The request counts as in flight until End.
type Pick struct {
	cluster *cluster // or target
	query   string   // what the request asks
	choice  *Choice
	count   *count        // of ModeBatch, else nil
	lease   *lease        // of ModeLease, else nil
	before  *Pick         // the try before
	attempt *Attempt      // nil without a hook or logger
	begin   time.Duration // of the try
	outcome Outcome       // "" until it is known
	retries int32         // tries before of which something was sent
	moves   int32         // tries before that were not sent
	lost    bool          // the connection ended after something was sent, before an answer
	hurries bool          // the connect has less time, as there may be other endpoints
	cut     bool          // for want of that time, this try or one before was not sent
	anew    bool          // it may have an address that was tried before
	// fallback is true if the address is not from lbd.
	fallback bool
	ended    atomic.Bool
}

// Address returns HOST:PORT of the endpoint.
func (p *Pick) Address() string { return p.choice.Address }

// Choice returns what lbd has chosen.
func (p *Pick) Choice() Choice {
	c := *p.choice
	c.Attempt = int(1 + p.moves + p.retries)
	return c
}

// Pick returns an endpoint of a cluster for one request. The name xds:///NAME is a target, whose routes choose the
// cluster. [WithAsk] gives ctx a hash key, and what routes match. Call [Pick.End] when the request has ended. The deadline
// of ctx is that of the request.
//
// In [ModeBatch], only the first picks of a cluster wait for lbd. All errors are an [*Error].
func (c *Client) Pick(ctx context.Context, cluster string) (*Pick, error) {
	p := &Pick{query: new(Host).query(cluster, nil, AskOf(ctx))}
	if err := c.pick(ctx, cluster, p); err != nil {
		return nil, err
	}
	p.endIfForgotten()
	return p, nil
}

// TryPick is [Client.Pick] for callers that must not wait: its error is [ErrWait] if a pick has to wait for lbd, as all
// do unless the mode is [ModeBatch]. If accept does not permit the address of the pick, TryPick takes the next one in
// the batch that accept permits; if there is none, the error is [ErrNotAccepted].
func (c *Client) TryPick(cluster string, accept func(address string) bool) (*Pick, error) {
	if c.config.Mode != ModeBatch {
		return nil, ErrWait
	}
	known, err := c.cluster(cluster)
	if err != nil {
		return nil, err
	}
	at := now()
	b := known.usable(at)
	if b == nil || b.query != "" {
		return nil, ErrWait
	}
	p := &Pick{cluster: known, attempt: c.newAttempt()}
	if err := p.takeFrom(b, at, accept); err != nil {
		return nil, err
	}
	return p, nil
}

// pick fills in p.
func (c *Client) pick(ctx context.Context, name string, p *Pick) error {
	if len(name) > maxName || len(p.query) > maxQuery {
		detail := "the name of the cluster has more than 512 bytes, or path, headers and hash key of the request more than 24 KiB"
		return problem{Code: "invalid_argument", Detail: detail}.error(name[:min(len(name), maxName)], 0, 0)
	}
	known, err := c.cluster(name)
	if err != nil {
		return err
	}
	p.cluster, p.hurries, p.attempt = known, true, c.newAttempt()
	err = p.get(ctx)
	if err != nil && c.config.Fallback != "" && codeOf(err) == "" && ctx.Err() == nil && c.ctx.Err() == nil {
		p.choice = &Choice{Cluster: name, Address: c.config.Fallback}
		p.fallback, p.hurries, p.begin = true, false, now()
		return nil
	}
	return err
}

func (p *Pick) get(ctx context.Context) error {
	switch {
	case p.cluster.client.config.Mode != ModeBatch:
		return p.ask(ctx)
	case p.query != "" || p.before != nil:
		return p.takeAsked(ctx)
	default:
		return p.take(ctx)
	}
}

// picked is lbd's answer to a pick.
type picked struct {
	Choice
	Lease struct {
		ID string `json:"id"`
	} `json:"lease"`
}

func (p *picked) isComplete() bool { return p.Address != "" }

// ask asks lbd for a pick.
func (p *Pick) ask(ctx context.Context) error {
	c := p.cluster.client
	if c.ctx.Err() != nil {
		return c.closedError(p.cluster.name)
	}
	wait, ttl := maxWait, c.config.TTL
	if deadline, ok := ctx.Deadline(); ok {
		left := max(0, time.Until(deadline))
		wait, ttl = min(wait, left), left+ttlGrace
	}
	request := call{
		method:  http.MethodGet,
		path:    "/v1/pick",
		query:   p.cluster.param(),
		asks:    p.query,
		cluster: p.cluster.name,
		timeout: wait + waitGrace,
	}
	request.query.Set("wait", milliseconds(wait))
	err := p.excluding(func(exclude []string) error {
		request.query["exclude"] = exclude
		if c.config.Mode == ModeLease {
			return p.takeLease(ctx, request, min(ttl, maxTTL))
		}
		var answer picked
		err := c.api.do(ctx, request, &answer)
		return p.answer(ctx, answer, err)
	})
	if err == nil {
		p.cluster.asides.avoids(p.choice.Address, now()) // it may be the trial
	}
	return err
}

// answer checks an answer to ask.
func (p *Pick) answer(ctx context.Context, answer picked, err error) error {
	switch {
	case ctx.Err() != nil: // no endpoint is to blame
		return unavailable(p.cluster.name, "lbd did not answer in time", ctx.Err())
	case err != nil:
		return errorOf(p.cluster.name, err)
	case p.cluster.client.config.Mode == ModeLease && answer.Lease.ID == "":
		return unavailable(p.cluster.name, "lbd is unreachable", errors.New("the answer has no lease"))
	}
	p.choice, p.begin = &answer.Choice, now()
	p.cluster.picked.Store(int64(p.begin))
	p.choice.Cluster = cmp.Or(p.choice.Cluster, p.cluster.name)
	return nil
}

// takeLease takes a lease. If the caller gives the request up in the meantime, the lease is ended as soon as lbd has
// granted it.
func (p *Pick) takeLease(ctx context.Context, request call, ttl time.Duration) error {
	c := p.cluster.client
	key := rand.Text()
	request.method, request.key = http.MethodPost, &key
	request.query.Set("ttl", milliseconds(ttl))
	request.query.Set("owner", c.config.Owner)
	type result struct {
		lease  *lease
		answer picked
		err    error
	}
	results := make(chan result)
	started := c.start(func() {
		var r result
		if r.err = c.api.do(c.ctx, request, &r.answer); r.err == nil && r.answer.Lease.ID != "" {
			r.lease = c.leases.hold(r.answer.Lease.ID, ttl)
		}
		select {
		case results <- r:
		case <-ctx.Done():
			c.leases.end(r.lease, Cancelled)
		}
	})
	if !started {
		return c.closedError(p.cluster.name)
	}
	var r result
	select {
	case r = <-results:
	case <-ctx.Done():
		return p.answer(ctx, picked{}, ctx.Err())
	}
	p.lease = r.lease
	err := p.answer(ctx, r.answer, r.err)
	if err != nil {
		c.leases.end(p.lease, Cancelled)
	}
	return err
}

// Answered says how the request ended, while its body is still in flight. Later outcomes are ignored.
func (p *Pick) Answered(outcome Outcome) {
	if outcome == Success && p.outcome == "" {
		p.cluster.budget.succeeded()
		p.cluster.asides.answered(p.choice.Address)
	}
	p.answered(outcome)
}

func (p *Pick) answered(outcome Outcome) {
	if p.outcome != "" {
		return
	}
	p.outcome = outcome
	switch {
	case outcome == Unreachable:
		p.failed(false)
		if p.lease == nil && !p.fallback {
			p.cluster.client.unreachable(p.choice.Cluster, p.choice.Address)
		}
	case p.count != nil:
		p.count.answered(outcome, now()-p.begin)
	}
	if p.attempt != nil {
		p.attempted(p.attempt)
	}
}

// uncount ends a try whose deadline passed before it was sent: lbd hears nothing of it. Later outcomes are ignored.
func (p *Pick) uncount() {
	p.outcome = Cancelled
	if p.attempt != nil {
		p.attempted(p.attempt)
	}
}

// failed may set the address aside: the try was not sent, or there was no answer to it.
func (p *Pick) failed(sent bool) {
	most := maxTried
	if b := p.cluster.batch.Load(); b != nil && b.query == "" { // what is asked may have one endpoint of many
		most = b.endpoints / 2
	}
	if !p.fallback {
		p.cluster.asides.failed(p.choice.Address, sent, most)
	}
}

// End says that the request is no longer in flight, and how it ended, unless Answered has said so. Further calls do
// nothing. It does not wait for lbd.
func (p *Pick) End(outcome Outcome) {
	if p.ended.Swap(true) {
		return
	}
	p.Answered(outcome)
	if p.count != nil {
		p.count.end(now())
	}
	if p.lease != nil {
		p.cluster.client.leases.end(p.lease, p.outcome)
	}
}

// endIfForgotten ends the lease of a pick that its caller loses without a call of End.
func (p *Pick) endIfForgotten() {
	if p.lease == nil {
		return
	}
	leases := p.cluster.client.leases
	runtime.AddCleanup(p, func(held *lease) { leases.end(held, Cancelled) }, p.lease)
}

// Retry ends the try as a Failure, and returns an endpoint for the next one: one that the tries before have not had. Its
// error is [ErrNoRetry] if the request has had all of its retries, if the budget of retries of the cluster is used up,
// or if there is no other endpoint. Call it for requests that are idempotent, when an endpoint ended the connection or
// was overloaded, but not after a timeout of the request.
func (p *Pick) Retry(ctx context.Context) (*Pick, error) { return p.again(ctx, Failure) }

// Move ends the try as Unreachable, and returns an endpoint for the next one, as Retry does. It is for any request,
// needs no budget, and is no retry: its error is [ErrNoRetry] only if there is no other endpoint.
func (p *Pick) Move(ctx context.Context) (*Pick, error) { return p.again(ctx, Unreachable) }

func (p *Pick) again(ctx context.Context, outcome Outcome) (*Pick, error) {
	next := new(Pick)
	p.answered(outcome)
	again := p.next(ctx, next, true)
	p.End(outcome)
	if !again {
		return nil, ErrNoRetry
	}
	next.endIfForgotten()
	return next, nil
}

// next fills in the next try of a request whose try has failed, if it may be sent again. repeatable says whether that is
// so if something was sent, which takes a token of the budget.
func (p *Pick) next(ctx context.Context, next *Pick, repeatable bool) bool {
	c := p.cluster.client
	if p.outcome != Unreachable {
		if permitted := p.cluster.budget.failed(); !permitted || !repeatable || int(p.retries) >= c.config.Retries {
			return false
		}
	}
	if p.fallback || p.moves+p.retries == maxTried || ctx.Err() != nil || c.ctx.Err() != nil {
		return false
	}
	next.cluster, next.query, next.before, next.retries, next.moves = p.cluster, p.query, p, p.retries, p.moves
	next.attempt = c.newAttempt()
	if p.outcome == Unreachable {
		next.moves++
	} else {
		next.retries++
	}
	b := p.cluster.batch.Load()
	if c.config.Mode != ModeBatch || p.query != "" || b != nil && b.query != "" {
		return p.askAgain(ctx, next)
	}
	if p.moveTo(b, next) {
		return true
	}
	if !p.mayMove() {
		return false
	}
	// lbd hears now of connects that failed, and may choose endpoints of another priority.
	ctx, cancel := context.WithTimeout(ctx, otherTime)
	defer cancel()
	for p.cluster.other(ctx, b) {
		if b = p.cluster.batch.Load(); p.moveTo(b, next) {
			return true
		}
	}
	return false
}

// moveTo fills in the next try with an address of a batch that the request has not tried.
func (p *Pick) moveTo(b *batch, next *Pick) bool {
	if b == nil {
		return false
	}
	at := now()
	e := b.takeAccepted(&p.cluster.asides, at, func(address string) bool { return !p.tried(address) })
	if e == nil && p.cut {
		e = b.draw(p.tried)
	} else {
		next.hurry(p.cut)
	}
	if e == nil {
		return false
	}
	next.start(e, at)
	return true
}

// hurry decides how much time the connect has.
func (p *Pick) hurry(cut bool) { p.hurries, p.cut = p.moves+p.retries < hurried, cut }

// mayMove reports whether a try that failed is worth a wait for other endpoints: there was no answer to it.
func (p *Pick) mayMove() bool { return p.outcome == Unreachable || p.lost }

// askAgain asks lbd for an endpoint that the request has not tried.
func (p *Pick) askAgain(ctx context.Context, next *Pick) bool {
	c := p.cluster.client
	if p.lease != nil && !c.leases.endFailed(ctx, p.lease, p.outcome) { // lbd may need its place in the circuit breaker
		return false
	}
	next.hurry(p.cut)
	err := next.get(ctx)
	if p.cut && codeOf(err) == "all_excluded" {
		next.hurries, next.cut, next.anew = false, false, true
		err = next.get(ctx)
	}
	for end := now() + otherTime; p.mayMove() && codeOf(err) == "all_excluded" && now() < end && sleep(ctx, otherPause); {
		err = next.get(ctx)
	}
	if err != nil {
		return false
	}
	if p.tried(next.choice.Address) && !next.anew {
		next.End(Cancelled)
		return false
	}
	return true
}

// tried reports whether this try or one before had an address.
func (p *Pick) tried(address string) bool {
	for ; p != nil; p = p.before {
		if p.choice.Address == address {
			return true
		}
	}
	return false
}
