package sources

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/forecast"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/proposal"
	"github.com/lbd-dev/lbd/service/registration"
	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// maxAttempts limits how often a change is tried because of the changes of others.
const maxAttempts = 10

var (
	// errBehind rolls back a change that cannot be evaluated yet: the resolver does not have all that is stored.
	errBehind = errors.New("what others have pushed is not in use yet")
	// errOutdated rolls back a change whose effect was predicted with other contents.
	errOutdated = errors.New("the resources were changed while the effect was computed")
	// errDryRun rolls back a dry run.
	errDryRun = errors.New("dry run")
)

// evaluate sets the outcome of a change that tx holds, after what the same commit has of others, and returns an
// error for what the change does not permit. The commit depends on all that the outcome depends on.
func (p *pushes) evaluate(tx *store.Tx, c *change) error {
	own := make([]resource.Key, len(c.replaced))
	for i, r := range c.replaced {
		own[i] = r.Key
	}
	is, before := p.propose(tx, own), p.propose(earlier{tx}, slices.Collect(maps.Keys(tx.Earlier())))
	p.deciding.Lock() // nothing is published meanwhile
	defer p.deciding.Unlock()
	if p.served.newest() < tx.Base().Index() {
		return errBehind
	}
	p.withResolver(func(r *resolver.Resolver) { c.evaluated = proposal.Evaluate(r, &is.Proposal, &before.Proposal) })
	if p.SharedStore {
		depend(tx, c.evaluated)
	}
	if err := p.registrationLimit(tx, c, is); err != nil {
		return err
	}
	err := c.refused(p.guard().Losses(c.evaluated))
	if err == nil && !c.options.DryRun {
		p.permitted[c] = &is.Proposal
	}
	return err
}

// depend makes a commit depend on what an outcome depends on: also on that no other daemon puts an overlay, and, where
// there are overlays, on that no other cluster begins to use an assignment.
func depend(tx *store.Tx, o *proposal.Outcome) {
	needs := o.Needs()
	for key := range needs {
		tx.Get(key)
	}
	overlaid := false
	for e := range tx.Of(overlay.Type) {
		if overlaid = true; needs[resource.Key{Type: Config, Name: overlay.ClusterOf(e.Key)}] {
			tx.Get(e.Key)
		}
	}
	if overlaid {
		tx.Of(Config)
	}
}

// registrationLimit returns an error if a change registers endpoints beyond the limit.
func (p *pushes) registrationLimit(tx *store.Tx, c *change, is *proposed) error {
	count := func(e store.Entry) int { return registration.Registered(p.item(e).Assignment) }
	added := 0
	for _, u := range is.Updates {
		added += registration.Registered(u.Assignment)
	}
	if added == 0 {
		return nil
	}
	for _, u := range is.Updates {
		if before, exists := (earlier{tx}).Get(u.Key); exists && u.Key.Type == Endpoints {
			added -= count(before)
		}
	}
	if added <= 0 {
		return nil
	}
	for key, e := range tx.Earlier() {
		if key.Type == Endpoints {
			before, _ := tx.Base().Get(key)
			if added -= count(before); e != nil {
				added += count(*e)
			}
		}
	}
	most := cmp.Or(p.MaxRegistrations, DefaultMaxRegistrations)
	if p.registered.Len()+added <= most {
		return nil
	}
	return fault.Errorf(fault.RateLimited, "limit of registered endpoints reached (%d)", most).Of(c.cluster, "").Retry(time.Minute)
}

// refused returns an error for the first loss that a change does not permit.
func (c *change) refused(losses []proposal.Loss) error {
	var first *proposal.Loss
	for i := range losses {
		l := &losses[i]
		if l.Kind != proposal.Unsecured && c.options.AllowEmpty {
			continue
		}
		// What cannot be permitted first, and what the caller has named.
		if order := func(l *proposal.Loss) int {
			switch {
			case l.Kind == proposal.Unsecured:
				return 0
			case l.Cluster == c.cluster:
				return 1
			}
			return 2
		}; first == nil || order(l) < order(first) {
			first = l
		}
	}
	if first == nil {
		return nil
	}
	if first.Kind == proposal.Unsecured {
		return block(first.Cluster, "%s", first.Reason)
	}
	reason, masked := first.Reason, first.Masked()
	if c.cluster != "" && first.Cluster != c.cluster { // the caller may not see it
		reason = "a cluster that uses it would have no usable endpoints"
		if masked != "" {
			masked = "the overlays of a cluster that uses it take all of them out of use (GET /v1/overlays)"
		}
	}
	if masked != "" {
		reason += "; " + masked
	}
	verb := "push"
	if c.event == observe.EventOverlaySet {
		verb = "put"
	}
	err := block(cmp.Or(c.cluster, first.Cluster), "%s; set allow_empty=true to %s it anyway", reason, verb)
	if c.misspelled != nil {
		return c.misspelled(err)
	}
	return err
}

func block(cluster, format string, args ...any) error {
	return fault.Errorf(fault.Blocked, format, args...).Of(cluster, "")
}

// effect predicts what a change would do to picks. It waits for its turn.
func (p *pushes) effect(ctx context.Context, c *change) (*forecast.Effect, error) {
	r := &forecast.Request{Outcome: c.evaluated, Ledger: p.Ledger, ConnectMode: p.ConnectMode}
	if p.Recent != nil {
		r.Recent = func(cluster string) observe.Recent { return p.Recent(cluster, RecentSpan) }
	}
	cost := forecast.Cost(c.evaluated)
	turn, err := p.Turns.BeginSized(ctx, overload.PushWork, c.options.Caller, cost)
	if err != nil {
		return nil, fault.FromContext(err)
	}
	defer turn.End()
	if err := overload.Reserve(ctx, cost); err != nil {
		return nil, err
	}
	r.Pause = turn.Pause
	e, err := forecast.Of(ctx, r)
	if err != nil {
		return nil, fault.FromContext(err)
	}
	return e, nil
}

// dryRun runs a change without making it, and predicts its effect. The change fails if more of the picks
// of a cluster would move than it permits.
func (p *pushes) dryRun(ctx context.Context, c *change) error {
	requested := c.options.DryRun
	c.options.DryRun = true
	err := p.make(ctx, c)
	c.options.DryRun = requested
	if err != nil || len(c.res.Changes) == 0 {
		return err
	}
	if c.res.Effect, err = p.effect(ctx, c); err != nil {
		return err
	}
	return c.shifted(c.res.Effect)
}

// shifted returns an error if a change moves more of the picks of a cluster than it permits.
func (c *change) shifted(e *forecast.Effect) error {
	if c.options.MaxShift == nil {
		return nil
	}
	shift, cluster, known := e.Shift()
	of := "a cluster"
	if cluster != "" && (cluster == c.cluster || c.cluster == "") {
		of = "cluster \"" + cluster + "\""
	}
	switch {
	case !known:
		return block(c.cluster, "it cannot be predicted how much of the picks of %s the change would move, and max_shift permits %s; see effect in the answer of dry_run=true without max_shift",
			of, percent(*c.options.MaxShift))
	case shift > *c.options.MaxShift:
		return block(c.cluster, "the change would move %s of the picks of %s, and max_shift permits %s", percent(shift), of, percent(*c.options.MaxShift))
	}
	return nil
}

// percent writes a part of 1.
func percent(part float64) string { return strconv.FormatFloat(100*part, 'g', 3, 64) + " %" }

// guarded is make for a change with MaxShift: it commits what it has predicted the effect of.
func (p *pushes) guarded(ctx context.Context, c *change) error {
	initial := *c.res
	initial.Warnings = slices.Clip(initial.Warnings)
	for range maxAttempts {
		*c.res = initial
		if err := p.dryRun(ctx, c); err != nil {
			return err
		}
		*c.res, c.predicted = initial, &prediction{c.evaluated, c.replaced}
		if err := p.make(ctx, c); !errors.Is(err, errOutdated) {
			return err
		}
	}
	return fault.Errorf(fault.PreconditionFailed, "max_shift: %v %d times; try again", errOutdated, maxAttempts).Of(c.cluster, c.target)
}

// prediction is what a change does as its effect was predicted.
type prediction struct {
	evaluated *proposal.Outcome
	replaced  []changelog.Replaced
}

// isOutdated reports whether a change does something else than when its effect was predicted, or finds other
// configs.
func (c *change) isOutdated() bool {
	was := c.predicted
	return was != nil && (!slices.EqualFunc(was.replaced, c.replaced, func(a, b changelog.Replaced) bool {
		return a.Key == b.Key && bytes.Equal(a.Before, b.Before) && bytes.Equal(a.After, b.After)
	}) || !slices.EqualFunc(was.evaluated.Targets, c.evaluated.Targets, func(a, b resolver.Preview) bool {
		return a.Target == b.Target && a.Before == b.Before
	}))
}

// misspelled returns err, which blocks a resource that leaves a cluster without a usable
// endpoint. If warnings name unknown fields of the resource, which may be the cause, the
// error names them instead of allow_empty. locate finds their lines.
func misspelled(err error, warnings []fault.Problem, locate func([]fault.Problem)) error {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	var unknown []fault.Problem
	for _, w := range warnings {
		of, _, _ := strings.Cut(w.Resource, "/")
		if w.UnknownField() && w.Resource == of+"/"+e.Cluster {
			w.Reason = strings.TrimSuffix(w.Reason, ": ignored")
			unknown = append(unknown, w)
		}
	}
	if unknown == nil {
		return err
	}
	locate(unknown)
	e.Detail, _, _ = strings.Cut(e.Detail, "; set allow_empty=true")
	e.Detail += "; it has an unknown field: " + unknown[0].String()
	e.Problems = unknown
	return e
}
