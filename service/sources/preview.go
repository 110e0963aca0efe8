package sources

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/forecast"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// RecentSpan is the time of the picks that a forecast considers.
const RecentSpan = 5 * time.Minute

// maxPreviews limits how often a change is previewed because others change the same resources.
const maxPreviews = 10

// MaxForecasts limits the forecasts that run, or wait for their turns with the resources of their changes:
// together, they cost at most as much as so many of the largest changes.
const MaxForecasts = 8

// errOutdated rolls back a change that was previewed with other contents.
var errOutdated = errors.New("the resources were changed while the effect was computed")

// preview is what a change would do, as a dry run has found it.
type preview struct {
	proposal resolver.Proposal
	replaced []changelog.Replaced
}

// previewed makes a preview of a change that a transaction holds.
func (p *pushes) previewed(tx *store.Tx, c *change) *preview {
	out := &preview{replaced: slices.Clone(c.replaced)}
	entries := make([]store.Entry, len(c.replaced))
	for i, r := range c.replaced {
		entries[i], _ = tx.Get(r.Key)
		entries[i].Key = r.Key
	}
	is := p.updates(tx.Get, entries, func(resource.Key, fault.Problem) {})
	out.proposal.Updates = is.updates
	for i := range is.updates {
		is.updates[i].Updated = time.Now()
	}
	out.proposal.Hosted = make(map[string]bool)
	for _, h := range is.hosts {
		out.proposal.Hosted[h.name] = h.on || slices.Contains(p.Targets, h.name)
	}
	if len(is.overlaid) > 0 {
		out.proposal.Overlays = p.overlaid(is.overlaid, c.replaced)
	}
	return out
}

// overlaid returns the overlays that clusters have after changes.
func (p *pushes) overlaid(clusters []string, changes []changelog.Replaced) map[string][]*resource.Overlay {
	out := make(map[string][]*resource.Overlay)
	now, err := p.contents()
	if err != nil {
		return out
	}
	for _, cluster := range clusters {
		out[cluster] = overlays.Of(overlays.Entries(now), cluster, time.Now())
	}
	for _, r := range changes {
		if r.Key.Type != overlay.Type {
			continue
		}
		cluster := overlay.ClusterOf(r.Key)
		list := slices.DeleteFunc(out[cluster], func(o *resource.Overlay) bool { return o.ID == overlay.IDOf(r.Key) })
		if o, err := overlays.Decode(store.Entry{Key: r.Key, Raw: r.After}); r.After != nil && err == nil {
			list = append(list, o)
			slices.SortStableFunc(list, func(a, b *resource.Overlay) int { return a.Created.Compare(b.Created) })
		}
		out[cluster] = list
	}
	return out
}

// propose returns what a change would make of the targets. current is false if picks do not use yet, or
// no longer, what the change replaces.
func (p *pushes) propose(is *preview) (previews []resolver.Preview, more int, current bool) {
	st, err := p.open()
	if err != nil {
		return nil, 0, false
	}
	p.committing.Lock() // nothing is published meanwhile
	defer p.committing.Unlock()
	s := st.Snapshot()
	current = p.served.newest() == s.Index() && !slices.ContainsFunc(is.replaced, func(r changelog.Replaced) bool {
		e, _ := s.Get(r.Key)
		return !bytes.Equal(e.Raw, r.Before)
	})
	p.withResolver(func(r *resolver.Resolver) { previews, more = r.Preview(&is.proposal, forecast.MaxTargets) })
	return previews, more, current
}

// effect predicts what a change would do to picks. It waits for its turn.
func (p *pushes) effect(ctx context.Context, caller string, previews []resolver.Preview, more int) (*forecast.Effect, error) {
	r := &forecast.Request{Previews: previews, More: more, Ledger: p.Ledger, ConnectMode: p.ConnectMode}
	if p.Recent != nil {
		r.Recent = func(cluster string) observe.Recent { return p.Recent(cluster, RecentSpan) }
	}
	cost := forecast.Cost(r.Previews)
	if cost > overload.SmallWork {
		defer p.forecasts.Add(int64(-cost))
		if p.forecasts.Add(int64(cost)) > MaxForecasts*forecast.LargestCost {
			return nil, fault.Errorf(fault.RateLimited, "limit of forecasts reached: those of %d of the largest changes", MaxForecasts).Retry(time.Second)
		}
	}
	turn, err := p.Turns.BeginSized(ctx, overload.PushWork, caller, cost)
	if err != nil {
		return nil, fault.FromContext(err)
	}
	defer turn.End()
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
	initial := *c.res
	initial.Warnings = slices.Clip(initial.Warnings)
	asked := c.DryRun
	c.DryRun = true
	defer func() { c.DryRun = asked }()
	for n := 1; ; n++ {
		*c.res = initial
		if err := p.commit(ctx, c); err != nil || len(c.res.Changes) == 0 {
			return err
		}
		previews, more, current := p.propose(c.preview)
		switch {
		case current:
		case n < maxPreviews: // the store may be about to commit what others have changed
			select {
			case <-time.After(time.Duration(n*n) * time.Millisecond):
			case <-ctx.Done():
				return fault.FromContext(ctx.Err())
			}
			continue
		case c.MaxShift != nil:
			return outdated(c)
		}
		var err error
		if c.res.Effect, err = p.effect(ctx, c.Caller, previews, more); err != nil {
			return err
		}
		return c.tooMuch(c.res.Effect)
	}
}

// tooMuch returns an error if a change moves more of the picks of a cluster than it permits.
func (c *change) tooMuch(e *forecast.Effect) error {
	if c.MaxShift == nil {
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
			of, percent(*c.MaxShift))
	case shift > *c.MaxShift:
		return block(c.cluster, "the change would move %s of the picks of %s, and max_shift permits %s", percent(shift), of, percent(*c.MaxShift))
	}
	return nil
}

// percent writes a part of 1.
func percent(part float64) string { return strconv.FormatFloat(100*part, 'g', 3, 64) + " %" }

// guarded is commit for a change with MaxShift: it commits what it has predicted the effect of.
func (p *pushes) guarded(ctx context.Context, c *change) error {
	initial := *c.res
	initial.Warnings = slices.Clip(initial.Warnings)
	for range maxPreviews {
		*c.res = initial
		if err := p.dryRun(ctx, c); err != nil {
			return err
		}
		*c.res, c.expected = initial, c.preview
		if err := p.commit(ctx, c); !errors.Is(err, errOutdated) {
			return err
		}
	}
	return outdated(c)
}

func outdated(c *change) error {
	return fault.Errorf(fault.PreconditionFailed, "max_shift: %v %d times; try again", errOutdated, maxPreviews).Of(c.cluster, c.target)
}

// isOutdated reports whether a change does something else than when its effect was predicted.
func (c *change) isOutdated() bool {
	return c.expected != nil && !slices.EqualFunc(c.expected.replaced, c.replaced, func(a, b changelog.Replaced) bool {
		return a.Key == b.Key && bytes.Equal(a.Before, b.Before) && bytes.Equal(a.After, b.After)
	})
}
