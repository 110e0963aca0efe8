package sources

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/forecast"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/proposal"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// Precondition guards a change against the changes of others.
type Precondition struct {
	// IfMatch are content hashes: the present content must have one of them, or, if one
	// is "*", must exist. Nil requires nothing.
	IfMatch []string
	// IfNoneMatch requires that there is no content.
	IfNoneMatch bool
}

func (p Precondition) required() bool { return p.IfMatch != nil || p.IfNoneMatch }

func (p Precondition) check(name, now string, exists bool) error {
	if p.IfNoneMatch && exists {
		return fault.Errorf(fault.PreconditionFailed, "If-None-Match: %s exists already, as %s", name, now)
	}
	if p.IfMatch == nil {
		return nil
	}
	if !exists {
		return fault.Errorf(fault.PreconditionFailed, "If-Match: %s does not exist", name)
	}
	if slices.Contains(p.IfMatch, "*") || slices.Contains(p.IfMatch, now) {
		return nil
	}
	return fault.Errorf(fault.PreconditionFailed, "If-Match: %s has changed: it is %s now", name, now)
}

// ChangeOptions are the options of every change of what is pushed or hosted.
type ChangeOptions struct {
	// DryRun validates, reports what would change and predicts the effect on picks, and changes nothing.
	DryRun bool
	// AllowEmpty permits a change that leaves a cluster, or an assignment, without a usable endpoint.
	AllowEmpty bool
	// MaxShift refuses a change that moves more of the picks of a cluster: 0 to 1; nil for no limit.
	MaxShift     *float64
	Precondition Precondition
	// MayName returns an error if the caller may not use what a resource of the change names; nil permits all names.
	MayName func(by, named resource.Key) error
	// From is the caller, for events.
	From string
	// Caller identifies the caller among those that wait for their turns: unlike From, it is
	// the same for all connections of a caller.
	Caller string
	// Name, Address and Message are for the history: the name of the caller's identity, if there
	// is one, its address, and what it says about the change.
	Name, Address, Message string
}

// PushResult describes what a change did.
type PushResult struct {
	// New is true if the pushed content did not exist.
	New bool
	// Generation is the cluster's; zero for a change of several.
	Generation int64
	// Index is that of the store's commit that has the change, or of a later one. If nothing was
	// changed, it is that of the last commit.
	Index uint64
	// Hash is the content's; empty after a deletion.
	Hash     string
	Changes  []difference.Change
	Warnings []fault.Problem
	// Notes are the values that were filled in because they are absent.
	Notes []fault.Problem
	// Effect is what a change would do to picks; only of a dry run that changes something.
	Effect *forecast.Effect
}

// hash is a content's strong tag: equal content has an equal one.
func hash(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// change is one change of the pushed resources, or of the targets hosted by name.
type change struct {
	options ChangeOptions
	cluster string // empty for a change of several
	target  string // the full name of a target that is hosted or dropped
	// pushed are the resources of a snapshot.
	pushed map[resource.Key]resource.Item
	// current returns the name and the hash of the content that the precondition is
	// about, and whether it exists. It is called only if there is a precondition.
	current func(tx *store.Tx) (name, hash string, exists bool)
	// run makes the change, and sets res.
	run func(tx *store.Tx) error

	res *PushResult
	// replaced are the resources that it changes, in the order of res.Changes.
	replaced []changelog.Replaced
	// restored is the index that a restore restores; 0 for another change.
	restored uint64
	// event is the type of its event; empty for EventPushed.
	event observe.EventType
	// own is true for a change that lbd itself makes.
	own bool
	// misspelled, if it is not nil, explains an error of clusters without a usable endpoint.
	misspelled func(error) error
	// evaluated is set by each run that changes something. predicted, if it is not nil, is what the change must do.
	evaluated *proposal.Outcome
	predicted *prediction
}

func keyed(key resource.Key) func(*store.Tx) (string, string, bool) {
	return func(tx *store.Tx) (string, string, bool) {
		e, ok := tx.Get(key)
		return key.String(), hash(e.Raw), ok
	}
}

// subject is the full name of the target that the change is about; of a change of
// several, a name that no target has.
func (c *change) subject() string {
	if c.target != "" {
		return c.target
	}
	return resolver.Target(c.cluster)
}

// put stores an entry, whose value is that of an xDS resource, and adds to the result what that changes. Every
// change stores what it has with put, and so names only what its caller may use.
func (p *pushes) put(tx *store.Tx, c *change, i resource.Item) error {
	if c.options.MayName != nil {
		for _, named := range i.References() {
			if err := c.options.MayName(i.Key, named); err != nil {
				return err
			}
		}
	}
	before, exists := tx.Get(i.Key)
	after := store.Entry{Key: i.Key, Raw: i.Raw}
	if isResource(i.Key) {
		after.Value = i
	}
	unchanged := exists && bytes.Equal(before.Raw, i.Raw)
	if !unchanged {
		how := "added"
		if exists {
			how = "modified"
			if w, lost := p.lostFields(c, &before, i.Raw); lost && len(c.res.Warnings) < decode.MaxProblems {
				c.res.Warnings = append(c.res.Warnings, w)
			}
		}
		p.changed(c, how, before, after)
	}
	p.withResolver(func(r *resolver.Resolver) {
		if w, ok := coverWarning(r, i); ok && len(c.res.Warnings) < decode.MaxProblems {
			c.res.Warnings = append(c.res.Warnings, w)
		}
		if unchanged && r.Waits(i.Key) && len(c.res.Warnings) < decode.MaxProblems {
			c.res.Warnings = append(c.res.Warnings, notInForce(i.Key))
		}
	})
	return tx.PutValue(i.Key, i.Raw, after.Value) // unchanged content fails unless the disk has it
}

// remove deletes an entry, and adds that to the result. It reports false if there is none.
func (p *pushes) remove(tx *store.Tx, c *change, key resource.Key) bool {
	before, exists := tx.Get(key)
	if exists {
		p.changed(c, "removed", before, store.Entry{Key: key})
		tx.Delete(key)
	}
	return exists
}

// changed adds a change of an entry to the result, the first few with words. An entry has no Raw where it does not
// exist.
func (p *pushes) changed(c *change, how string, before, after store.Entry) {
	d := difference.Change{Resource: after.Key.String(), Change: how}
	if is := kinds[after.Key.Type]; is.describe != nil && len(c.res.Changes) < difference.MaxListed {
		d.Difference = difference.Clip(is.describe(p, before, after), difference.MaxSentence)
	}
	c.res.Changes = append(c.res.Changes, d)
	c.replaced = append(c.replaced, changelog.Replaced{Key: after.Key, Change: d, Before: before.Raw, After: after.Raw})
}

// inFlight are the changes that the store's writer runs. It commits several together.
type inFlight struct {
	mu      sync.Mutex
	changes map[*change]landed
}

// landed is what a commit has done.
type landed struct {
	affected []string       // targets with new configs
	waits    []resource.Key // what targets do not use yet
}

// begin is called by the writer, before it commits c.
func (f *inFlight) begin(c *change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes[c] = landed{}
}

func (f *inFlight) committed(is landed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c, all := range f.changes {
		f.changes[c] = landed{append(all.affected, is.affected...), append(all.waits, is.waits...)}
	}
}

// end returns what the commit of c has done, and perhaps the one after it.
func (f *inFlight) end(c *change) landed {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer delete(f.changes, c)
	return f.changes[c]
}

// apply checks and makes a change. When it returns without error, the change is durable
// and picks see it.
func (p *pushes) apply(ctx context.Context, c *change) (*PushResult, error) {
	do := p.make
	switch {
	case c.options.DryRun:
		do = p.dryRun
	case c.options.MaxShift != nil:
		do = p.guarded
	}
	err := do(ctx, c)
	p.report(c, err)
	if err != nil {
		return nil, err
	}
	return c.res, nil
}

func (p *pushes) make(ctx context.Context, c *change) error {
	if p.RequireIfMatch && !c.own && !c.options.Precondition.required() {
		return fault.Errorf(fault.PreconditionRequired, "If-Match or If-None-Match is required (--require-if-match): send If-Match with the ETag of the present content, or If-None-Match: *")
	}
	st, err := p.open()
	if err != nil {
		return err
	}
	initial := *c.res
	initial.Changes, initial.Warnings = slices.Clip(initial.Changes), slices.Clip(initial.Warnings)
	after, err := p.transact(ctx, st, func(tx *store.Tx) error {
		*c.res, c.replaced, c.evaluated = initial, nil, new(proposal.Outcome) // a store may run this again
		if c.options.Precondition.required() {
			if err := c.options.Precondition.check(c.current(tx)); err != nil {
				return err
			}
		}
		if err := c.run(tx); err != nil {
			return err
		}
		if len(c.replaced) > 0 {
			if err := p.evaluate(tx, c); err != nil {
				return err
			}
		}
		if c.options.DryRun {
			return errDryRun
		}
		if c.isOutdated() {
			return errOutdated
		}
		p.inFlight.begin(c)
		return p.record(tx, st, c)
	})
	is := p.inFlight.end(c)
	p.deciding.Lock()
	delete(p.permitted, c)
	p.deciding.Unlock()
	if err == nil && len(c.res.Changes) > 0 || errors.Is(err, store.ErrCannotWrite) && st.Err() == nil {
		p.storeHealth.wrote(err)
	}
	if errors.Is(err, errOutdated) {
		return err
	}
	if err != nil && !errors.Is(err, errDryRun) {
		return storeError(err)
	}
	// The change is durable: an error because the caller did not wait for the trees
	// would be wrong. It may affect several targets: an assignment can serve more clusters
	// than the one of its name. Unchanged content may have been pushed a moment ago.
	if len(c.res.Changes) == 0 || c.options.DryRun {
		is.affected = nil
	}
	if err := p.Ledger.Settle(context.WithoutCancel(ctx), append(is.affected, c.subject())); err != nil {
		return fault.Errorf(fault.Internal, "the change is stored, and a tree rejected it: %v", err)
	}
	c.res.Index = p.served.now()
	if after != nil { // no dry run
		p.served.check(p.Ledger.Settled)
		c.res.Index = after.Index()
		for _, key := range is.waits {
			if slices.ContainsFunc(c.replaced, func(r changelog.Replaced) bool { return r.Key == key }) && len(c.res.Warnings) < decode.MaxProblems {
				c.res.Warnings = append(c.res.Warnings, notInForce(key))
			}
		}
	}
	if t := p.Ledger.Hosted().Named(c.subject()); t != nil {
		c.res.Generation = t.Channel.Generation()
	}
	return nil
}

// transact is [store.Store.Update]. If the resolver is behind the store, it waits a moment and tries again.
func (p *pushes) transact(ctx context.Context, st store.Store, fn func(tx *store.Tx) error) (after *store.Snapshot, err error) {
	for n := 1; n <= maxAttempts; n++ {
		if after, err = st.Update(ctx, fn); !errors.Is(err, errBehind) {
			return after, err
		}
		select {
		case <-time.After(time.Duration(n*n) * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, fault.Errorf(fault.StoreUnavailable, "%v; try again", errBehind).Retry(time.Second)
}

// storeError returns the error of a change that the store did not commit. A deadline within an
// error of the store is the store's own, not that of the caller.
func storeError(err error) error {
	if own, ok := errors.AsType[*fault.Error](err); ok {
		return own
	}
	switch {
	case errors.Is(err, store.ErrClosed):
		return fault.Errorf(fault.ShuttingDown, "lbd is shutting down and accepts no pushes")
	case errors.Is(err, store.ErrNewer):
		return fault.Errorf(fault.Blocked, "the change has no effect: %v", err)
	case errors.Is(err, store.ErrCannotWrite):
		return fault.Errorf(fault.StorageFailed, "the push was not stored and has no effect: %v", err)
	case errors.As(err, new(*store.UnknownOutcomeError)):
		return fault.Errorf(fault.StoreUnavailable, "%v; read the resource before you push it again", err).Retry(time.Second)
	case errors.Is(err, store.ErrUnavailable):
		return fault.Errorf(fault.StoreUnavailable, "the push was not stored and has no effect: %v", err).Retry(time.Second)
	case errors.Is(err, store.ErrTooLarge):
		return fault.Errorf(fault.TooLarge, "%v", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.FromContext(err)
	default:
		return fault.Errorf(fault.Internal, "the push was not stored: %v", err)
	}
}

// pushOutcome is the result of a push in metrics: one of these, or the code of its error.
type pushOutcome string

const (
	pushApplied            pushOutcome = "applied"
	pushUnchanged          pushOutcome = "unchanged"
	pushDryRun             pushOutcome = "dry_run" // with any result
	pushRejected           pushOutcome = "rejected"
	pushPreconditionFailed pushOutcome = "precondition_failed"
	pushNotFound           pushOutcome = "not_found"
)

var pushOutcomes = []pushOutcome{
	pushApplied, pushUnchanged, pushDryRun, pushRejected, pushPreconditionFailed, pushNotFound,
	pushOutcome(fault.Blocked), pushOutcome(fault.StorageFailed), pushOutcome(fault.StoreUnavailable), pushOutcome(fault.Internal),
	pushOutcome(fault.RateLimited), pushOutcome(fault.ShuttingDown), pushOutcome(fault.CallerGone),
}

func newResults(registry *prometheus.Registry) *prometheus.CounterVec {
	results := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lbd_pushes_total",
		Help: "Pushes by result: applied, unchanged, dry_run, rejected (the push is invalid), not_found (nothing to delete), or the code of the error.",
	}, []string{"result"})
	for _, r := range pushOutcomes {
		results.WithLabelValues(string(r))
	}
	registry.MustRegister(results)
	return results
}

func (c *change) outcome(err error) pushOutcome {
	e, refused := errors.AsType[*fault.Error](err)
	switch {
	case c.options.DryRun:
		return pushDryRun
	case err == nil && len(c.res.Changes) == 0:
		return pushUnchanged
	case err == nil:
		return pushApplied
	case !refused:
		return pushOutcome(fault.Internal)
	}
	switch code := pushOutcome(e.Code); {
	case e.Code == fault.PreconditionRequired:
		return pushPreconditionFailed
	case e.Code == fault.UnknownCluster, e.Code == fault.UnknownTarget, e.Code == fault.UnknownEndpoint: // of a deletion
		return pushNotFound
	case slices.Contains(pushOutcomes, code):
		return code
	default: // the caller must push something else
		return pushRejected
	}
}

// report counts a change, logs it and adds an event. The error of a dry run and a deletion
// of nothing concern only the caller.
func (p *pushes) report(c *change, err error) {
	outcome := c.outcome(err)
	p.results.WithLabelValues(string(outcome)).Inc()
	switch outcome {
	case pushDryRun, pushUnchanged, pushNotFound:
	case pushApplied:
		listed := difference.WithoutWords(c.res.Changes)
		p.Events.Add(observe.Event{
			Type: cmp.Or(c.event, observe.EventPushed), Cluster: c.cluster, Target: c.target, Says: difference.Summary(c.res.Changes), By: c.options.From, Changes: listed,
		})
		p.Logger.Info("resources pushed", "changes", len(c.res.Changes), "first", listed[0].Resource,
			"change", listed[0].Change, "from", c.options.From)
	default:
		e, ok := errors.AsType[*fault.Error](err)
		if !ok {
			e = fault.Errorf(fault.Internal, "%v", err)
		}
		p.Events.Add(observe.Event{
			Type: observe.EventPushRefused, Cluster: c.cluster, Target: c.target, Says: "a push was refused: " + string(e.Code),
			Reason: string(e.Code), Error: e.Detail, By: c.options.From,
		})
		p.Logger.Info("push rejected", "cluster", c.cluster, "code", string(e.Code), "error", e.Detail, "from", c.options.From)
	}
}
