package lbdclient

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"
)

// Attempt is a try of a request that has ended.
type Attempt struct {
	// Choice is what lbd has chosen; its Attempt is the number of the try.
	Choice
	Outcome Outcome
	// Duration is the time until status and headers were there, or the try had failed.
	Duration time.Duration
	// Request is the request of [Transport], and Status and Err are its result: a status, or an error. They are not set
	// for [Client.Pick].
	Request *http.Request
	Status  int
	Err     error
}

// State is how calls to lbd end.
type State string

const (
	// StateUnreachable means that a call to lbd has failed. In ModeBatch, requests go on with the last batch.
	StateUnreachable State = "unreachable"
	// StateStale means that lbd is unreachable, and the last batch is older than StaleFor: requests fail, or go to the
	// fallback.
	StateStale State = "stale"
	// StateRecovered means that lbd has answered again.
	StateRecovered State = "recovered"
)

// newAttempt returns nil without a hook or logger for attempts.
func (c *Client) newAttempt() *Attempt {
	if c.config.OnAttempt == nil && (c.config.Logger == nil || !c.config.Logger.Enabled(c.ctx, slog.LevelDebug)) {
		return nil
	}
	return new(Attempt)
}

// attempted tells of the end of a try.
func (p *Pick) attempted(a *Attempt) {
	c := p.cluster.client
	a.Choice, a.Outcome, a.Duration = p.Choice(), p.outcome, now()-p.begin
	log(c.config.Logger, slog.LevelDebug, "lbd: a try has ended", "cluster", a.Cluster, "address", a.Address,
		"attempt", a.Choice.Attempt, "outcome", a.Outcome, "duration", a.Duration)
	if c.config.OnAttempt != nil {
		defer c.recovered()
		c.config.OnAttempt(*a)
	}
}

// reached tells of changes of the state, by how a call to lbd has ended.
func (c *Client) reached(err error) {
	is, answered := c.is.Load(), err == nil || codeOf(err) != ""
	switch away := is == StateUnreachable || is == StateStale; {
	case away && answered:
		c.changed(StateRecovered, nil)
	case !away && !answered:
		c.changed(StateUnreachable, err)
	}
}

// changed tells of a state, unless it is the old one. While lbd answers for other clusters, none is stale.
func (c *Client) changed(state State, err error) {
	if state == StateStale && !c.is.CompareAndSwap(StateUnreachable, state) ||
		state != StateStale && c.is.Swap(state) == state || c.ctx.Err() != nil {
		return
	}
	if err == nil {
		log(c.config.Logger, slog.LevelInfo, "lbd: lbd answers again")
	} else {
		log(c.config.Logger, slog.LevelWarn, "lbd: lbd does not answer", "state", state, "error", err)
	}
	if c.config.OnState != nil {
		defer c.recovered()
		c.config.OnState(state)
	}
}

// recovered keeps a hook that panics from breaking a request.
func (c *Client) recovered() {
	if reason := recover(); reason != nil {
		log(cmp.Or(c.config.Logger, slog.Default()), slog.LevelError, "lbd: a hook has panicked", "reason", reason)
	}
}

// log logs unless logger is nil. A handler that panics breaks no request.
func log(logger *slog.Logger, level slog.Level, text string, args ...any) {
	if logger != nil {
		defer func() { _ = recover() }()
		logger.Log(context.Background(), level, text, args...) //nolint:sloglint // text is a constant of the caller
	}
}
