package sources

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// Precondition guards a change against the changes of others.
type Precondition struct {
	// IfMatch are content hashes, one of which what is changed must have; nil
	// asks nothing. "*" asks only that it exists.
	IfMatch []string
	// IfNoneMatch asks that what is changed does not exist.
	IfNoneMatch bool
}

// PushResult tells what a change did.
type PushResult struct {
	// New is true where what was pushed did not exist.
	New bool
	// Generation is the cluster's; zero for a change of several.
	Generation int64
	// Hash is the content's; empty after a deletion.
	Hash     string
	Changes  []difference.Change
	Warnings []fault.Problem
	// Notes are what was filled in because it is absent.
	Notes []fault.Problem
}

// Stored is what was pushed.
type Stored struct {
	Body []byte // in the format asked for
	Hash string
}

// pushOutcome is what became of a push, as metrics count it: one of these, or the
// code of its refusal.
type pushOutcome string

const (
	pushApplied            pushOutcome = "applied"
	pushUnchanged          pushOutcome = "unchanged"
	pushDryRun             pushOutcome = "dry_run" // whatever it found
	pushRejected           pushOutcome = "rejected"
	pushPreconditionFailed pushOutcome = "precondition_failed"
	pushNotFound           pushOutcome = "not_found"
)

// pushOutcomes are all that there are.
var pushOutcomes = []pushOutcome{
	pushApplied, pushUnchanged, pushDryRun, pushRejected, pushPreconditionFailed, pushNotFound,
	pushOutcome(fault.Blocked), pushOutcome(fault.StorageFailed), pushOutcome(fault.Internal),
	pushOutcome(fault.RateLimited), pushOutcome(fault.ShuttingDown), pushOutcome(fault.CallerGone),
}

// newPushes returns the count of pushes by outcome.
func newPushes(registry *prometheus.Registry) *prometheus.CounterVec {
	pushes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "lbd_pushes_total",
		Help: "What became of pushes? By result: applied, unchanged, dry_run; or why not: rejected breaks a rule, not_found was to be deleted, else the code of its refusal.",
	}, []string{"result"})
	for _, o := range pushOutcomes {
		pushes.WithLabelValues(string(o))
	}
	registry.MustRegister(pushes)
	return pushes
}

// outcome says what became of the change.
func (c *change) outcome(err error) pushOutcome {
	e, refused := errors.AsType[*fault.Error](err)
	switch {
	case c.dryRun:
		return pushDryRun
	case err == nil && len(c.res.Changes) == 0:
		return pushUnchanged
	case err == nil:
		return pushApplied
	case !refused:
		return pushOutcome(fault.Internal)
	}
	switch e.Code {
	case fault.PreconditionFailed, fault.PreconditionRequired:
		return pushPreconditionFailed
	case fault.UnknownCluster, fault.UnknownTarget: // a deletion of what is not there
		return pushNotFound
	case fault.Blocked, fault.StorageFailed, fault.Internal, fault.RateLimited, fault.ShuttingDown, fault.CallerGone:
		return pushOutcome(e.Code)
	default: // whoever pushes has to push something else
		return pushRejected
	}
}

// errDryRun rolls back what a dry run has tried.
var errDryRun = errors.New("dry run")

// hash is a content's strong tag: equal content has an equal one.
func hash(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// change is one change of what was pushed, on its way.
type change struct {
	cluster      string // empty for a change of several
	target       string // the full name of a target that is hosted or dropped
	dryRun       bool
	precondition Precondition
	from         string
	// pushed is what it brings.
	pushed map[resource.Key]resource.Item
	// current is the content that the precondition is about: its name, its
	// hash, and whether there is any. It is called only where there is a
	// precondition.
	current func(tx *store.Tx) (name, hash string, exists bool)
	// run makes the change, and fills res.
	run func(tx *store.Tx) error
	res *PushResult

	concerned []string            // targets; guarded by the underWay's mu
	versions  difference.Versions // what the commit changed; guarded by the underWay's mu
}

// underWay are the changes that the store's writer runs. It commits several
// together, and tells each which targets that concerned.
type underWay struct {
	mu      sync.Mutex
	changes map[*change]struct{}
}

// begin is called by the writer, before it commits c.
func (u *underWay) begin(c *change) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.changes[c] = struct{}{}
}

// commit notes the targets that a commit concerned, and what it changed.
func (u *underWay) commit(targets []string, vs difference.Versions) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c := range u.changes {
		c.concerned = append(c.concerned, targets...)
		if c.versions == nil { // else it is in the commit after its own
			c.versions = vs
		}
	}
}

// end returns the targets that the commit of c concerned, and perhaps those of
// the one after.
func (u *underWay) end(c *change) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.changes, c)
	return c.concerned
}

// keyed is the current content of one resource.
func keyed(key resource.Key) func(*store.Tx) (string, string, bool) {
	return func(tx *store.Tx) (string, string, bool) {
		e, ok := tx.Get(key)
		return key.String(), hash(e.Raw), ok
	}
}

// change makes a change hold: checked, durable, seen by picks.
func (s *Sources) change(ctx context.Context, c *change) (*PushResult, error) {
	err := s.commit(ctx, c)
	s.told(c, err)
	if err != nil {
		return nil, err
	}
	return c.res, nil
}

func (s *Sources) commit(ctx context.Context, c *change) error {
	if s.options.RequireIfMatch && !c.precondition.asks() {
		return fault.Errorf(fault.PreconditionRequired, "this daemon takes only changes that say what they replace: send If-Match with the ETag that you know, or If-None-Match: *")
	}
	st, err := s.open()
	if err != nil {
		return err
	}
	empty := *c.res
	empty.Changes, empty.Warnings = slices.Clip(empty.Changes), slices.Clip(empty.Warnings)
	_, err = st.Update(ctx, func(tx *store.Tx) error {
		*c.res = empty // a store may run this again
		if c.precondition.asks() {
			if err := c.precondition.check(c.current(tx)); err != nil {
				return err
			}
		}
		if err := c.run(tx); err != nil {
			return err
		}
		if c.dryRun {
			return errDryRun
		}
		s.underWay.begin(c)
		return nil
	})
	concerned := s.underWay.end(c)
	if err == nil && len(c.res.Changes) > 0 || errors.Is(err, store.ErrCannotWrite) {
		s.wrote(err)
	}
	if err != nil && !errors.Is(err, errDryRun) {
		return storeError(err)
	}
	s.describeChanges(c)
	// The change holds already: nobody may be told that it failed because the
	// caller would not wait for the trees. It may concern several: an
	// assignment can serve more clusters than the one of its name. What is
	// unchanged may have been pushed a moment ago.
	if len(c.res.Changes) == 0 || c.dryRun {
		concerned = nil
	}
	if err := s.targets.Settle(context.WithoutCancel(ctx), append(concerned, c.named())); err != nil {
		return fault.Errorf(fault.Internal, "the change is stored, and a tree refused it: %v", err)
	}
	if t := s.targets.Hosted().Named(c.named()); t != nil {
		c.res.Generation = t.Channel.Generation()
	}
	return nil
}

// named is the full name of the target that the change is about: of a change of
// several, a name that no target has.
func (c *change) named() string {
	if c.target != "" {
		return c.target
	}
	return resolver.Target(c.cluster)
}

func (p Precondition) asks() bool { return p.IfMatch != nil || p.IfNoneMatch }

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
	for _, h := range p.IfMatch {
		if h == "*" || h == now {
			return nil
		}
	}
	return fault.Errorf(fault.PreconditionFailed, "If-Match: %s has changed: it is %s now", name, now)
}

// storeError says in the service's terms why a change was not made.
func storeError(err error) error {
	if own, ok := errors.AsType[*fault.Error](err); ok {
		return own
	}
	switch {
	case errors.Is(err, store.ErrClosed):
		return fault.Errorf(fault.ShuttingDown, "no push is taken any more: shutting down")
	case errors.Is(err, store.ErrCannotWrite):
		return fault.Errorf(fault.StorageFailed, "the push was not stored, and nothing of it holds: %v", err)
	case errors.Is(err, store.ErrTooLarge):
		return fault.Errorf(fault.TooLarge, "%v", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.FromContext(err)
	default:
		return fault.Errorf(fault.Internal, "the push was not stored: %v", err)
	}
}

// told counts, remembers and logs what became of a change. That a dry run was
// refused is for whoever asked; that nothing was there to delete is as was asked for.
func (s *Sources) told(c *change, err error) {
	outcome := c.outcome(err)
	s.pushes.WithLabelValues(string(outcome)).Inc()
	switch outcome {
	case pushDryRun, pushUnchanged, pushNotFound:
	case pushApplied:
		listed := difference.WithoutWords(c.res.Changes)
		s.events.Add(observe.Event{
			Type: observe.EventPushed, Cluster: c.cluster, Target: c.target, Says: difference.Summary(c.res.Changes), By: c.from, Changes: listed,
		})
		s.options.Logger.Info("resources pushed", "changes", len(c.res.Changes), "first", listed[0].Resource,
			"change", listed[0].Change, "from", c.from)
	default:
		e, ok := errors.AsType[*fault.Error](err)
		if !ok {
			e = fault.Errorf(fault.Internal, "%v", err)
		}
		s.events.Add(observe.Event{
			Type: observe.EventPushRefused, Cluster: c.cluster, Target: c.target, Says: "a push was refused: " + string(e.Code),
			Reason: string(e.Code), Error: e.Detail, By: c.from,
		})
		s.options.Logger.Info("push refused", "cluster", c.cluster, "code", string(e.Code), "error", e.Detail, "from", c.from)
	}
}

// put stores a resource and notes in res what that changes.
func put(tx *store.Tx, i resource.Item, res *PushResult) (changed bool, err error) {
	if i.Key.Type == Config {
		if err := markSecured(tx, i.Key.Name, i.Raw, i.Cluster); err != nil {
			return false, err
		}
	}
	before, exists := tx.Get(i.Key)
	what := "modified"
	switch {
	case !exists:
		what = "added"
	case bytes.Equal(before.Raw, i.Raw):
		return false, tx.PutValue(i.Key, i.Raw, i) // which fails unless the disk has it
	}
	res.Changes = append(res.Changes, difference.Change{Resource: i.Key.String(), Change: what})
	return true, tx.PutValue(i.Key, i.Raw, i)
}
