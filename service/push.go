package service

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// Format is how a resource is written.
type Format = resource.Format

// The formats of resources.
const (
	JSON     = resource.FormatJSON
	YAML     = resource.FormatYAML
	Protobuf = resource.FormatProtobuf
)

// Kind tells the two resources of a cluster apart.
type Kind = resource.Type

// The kinds.
const (
	Endpoints Kind = resource.TypeAssignment
	Config    Kind = resource.TypeCluster
)

// Precondition guards a change against the changes of others.
type Precondition struct {
	// IfMatch are content hashes, one of which the resource must have; nil
	// asks nothing. "*" asks only that it exists.
	IfMatch []string
	// IfNoneMatch asks that the resource does not exist.
	IfNoneMatch bool
}

// PushRequest brings one resource of a cluster.
type PushRequest struct {
	Kind    Kind
	Cluster string
	Body    []byte
	Format  Format
	// Strict makes unknown fields errors.
	Strict bool
	// DryRun validates and tells what would change, and changes nothing.
	DryRun bool
	// AllowEmpty lets the push leave the cluster without a usable endpoint.
	AllowEmpty   bool
	Precondition Precondition
	// From says who pushes, for events.
	From string
}

// DeleteRequest takes one resource of a cluster away.
type DeleteRequest struct {
	Kind         Kind
	Cluster      string
	DryRun       bool
	Precondition Precondition
	From         string
}

// PushResult tells what a push or a deletion did.
type PushResult struct {
	// New is true where the resource did not exist.
	New        bool
	Generation int64
	// Hash is the content's; empty after a deletion.
	Hash     string
	Changes  []Change
	Warnings []Problem
}

// Change is what happened to one resource.
type Change struct {
	Resource string `json:"resource"` // "ClusterLoadAssignment/orders"
	Change   string `json:"change" enums:"added,modified,removed"`
}

// Stored is a pushed resource.
type Stored struct {
	Body []byte // in the format asked for
	Hash string
}

// pushOutcome is what became of a push, as metrics count it.
type pushOutcome string

const (
	pushApplied            pushOutcome = "applied"
	pushUnchanged          pushOutcome = "unchanged"
	pushRejected           pushOutcome = "rejected"
	pushPreconditionFailed pushOutcome = "precondition_failed"
	pushDryRun             pushOutcome = "dry_run"
	pushBlocked            pushOutcome = "blocked"
)

// errDryRun rolls back what a dry run has tried.
var errDryRun = errors.New("dry run")

// hash is a content's strong tag: equal content has an equal one.
func hash(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

// Push validates one resource of a cluster and makes it hold. When it returns,
// the resource is durable and picks see it; the same content again changes
// nothing.
func (s *Service) Push(ctx context.Context, r *PushRequest) (*PushResult, error) {
	res, err := s.push(ctx, r)
	s.countPush(r.DryRun, res, err)
	return res, err
}

func (s *Service) push(ctx context.Context, r *PushRequest) (*PushResult, error) {
	p, err := decode(r)
	if err != nil {
		return nil, err
	}
	key := resource.Key{Type: r.Kind, Name: r.Cluster}
	res := &PushResult{Hash: hash(p.raw), Changes: []Change{}, Warnings: p.warnings}
	return s.change(ctx, res, change{
		key: key, dryRun: r.DryRun, precondition: r.Precondition, from: r.From,
		run: func(tx *store.Tx, old store.Entry, exists bool) error {
			res.New = !exists
			if exists && bytes.Equal(old.Raw, p.raw) {
				return nil
			}
			if !r.AllowEmpty {
				if err := p.blocked(tx, r); err != nil {
					return err
				}
			}
			what := "modified"
			if !exists {
				what = "added"
			}
			res.Changes = append(res.Changes, Change{Resource: key.String(), Change: what})
			return tx.Put(key, p.raw)
		},
	})
}

// Delete takes one resource of a cluster away. It fails with UnknownCluster
// where there is none.
func (s *Service) Delete(ctx context.Context, r *DeleteRequest) (*PushResult, error) {
	key := resource.Key{Type: r.Kind, Name: r.Cluster}
	res := &PushResult{Changes: []Change{}, Warnings: []Problem{}}
	res, err := s.change(ctx, res, change{
		key: key, dryRun: r.DryRun, precondition: r.Precondition, from: r.From,
		run: func(tx *store.Tx, _ store.Entry, exists bool) error {
			if !exists {
				return notPushed(key)
			}
			res.Changes = append(res.Changes, Change{Resource: key.String(), Change: "removed"})
			tx.Delete(key)
			return nil
		},
	})
	s.countPush(r.DryRun, res, err)
	return res, err
}

// change is one change of the store.
type change struct {
	key          resource.Key
	dryRun       bool
	precondition Precondition
	from         string
	// run makes the change, given what was there before.
	run func(tx *store.Tx, old store.Entry, exists bool) error
}

// change makes a change hold: checked, durable, seen by picks. res is what run
// fills.
func (s *Service) change(ctx context.Context, res *PushResult, c change) (*PushResult, error) {
	st, err := s.open()
	if err != nil {
		return nil, err
	}
	_, err = st.Update(ctx, func(tx *store.Tx) error {
		old, exists := tx.Get(c.key)
		if err := c.precondition.check(c.key, old, exists); err != nil {
			return err
		}
		if err := c.run(tx, old, exists); err != nil {
			return err
		}
		if c.dryRun {
			return errDryRun
		}
		return nil
	})
	if err != nil && !errors.Is(err, errDryRun) {
		return nil, storeError(err)
	}
	// The change holds already: nobody may be told that it failed because the
	// caller would not wait for the trees. It may concern several: an
	// assignment can serve more clusters than the one of its name.
	if err := s.targets.settle(context.WithoutCancel(ctx)); err != nil {
		return nil, errorf(Internal, "the change is stored, and a tree refused it: %v", err)
	}
	if t := s.targets.get(c.key.Name); t != nil {
		res.Generation = t.channel.Generation()
	}
	if !c.dryRun && len(res.Changes) > 0 {
		s.options.Logger.Info("resource changed", "resource", c.key.String(), "change", res.Changes[0].Change, "from", c.from)
	}
	return res, nil
}

// storeError says in the service's terms why a change was not made.
func storeError(err error) error {
	var own *Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, store.ErrClosed):
		return errorf(ShuttingDown, "no push is taken any more: shutting down")
	case errors.Is(err, store.ErrCannotWrite):
		return errorf(StorageFailed, "the push was not stored, and nothing of it holds: %v", err)
	case errors.Is(err, store.ErrTooLarge):
		return errorf(TooLarge, "%v", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return callerGone(err)
	default:
		return errorf(Internal, "the push was not stored: %v", err)
	}
}

func (p Precondition) check(key resource.Key, old store.Entry, exists bool) error {
	if p.IfNoneMatch && exists {
		return errorf(PreconditionFailed, "If-None-Match: %s exists already, as %s", key, hash(old.Raw))
	}
	if p.IfMatch == nil {
		return nil
	}
	if !exists {
		return errorf(PreconditionFailed, "If-Match: %s does not exist", key)
	}
	now := hash(old.Raw)
	for _, h := range p.IfMatch {
		if h == "*" || h == now {
			return nil
		}
	}
	return errorf(PreconditionFailed, "If-Match: %s has changed: it is %s now", key, now)
}

// pushed is a pushed resource, decoded.
type pushed struct {
	raw        []byte
	warnings   []Problem
	cluster    *resource.Cluster    // of Config
	assignment *resource.Assignment // of Endpoints
}

func decode(r *PushRequest) (*pushed, error) {
	o := resource.Options{Origin: resource.ByHand, Format: r.Format, Strict: r.Strict, Name: r.Cluster}
	if r.Kind == Config {
		d, err := resource.DecodeCluster(r.Body, o)
		if err != nil {
			return nil, decodeError(r, err)
		}
		return &pushed{raw: d.Raw, warnings: list(d.Warnings), cluster: d.Value}, nil
	}
	d, err := resource.DecodeAssignment(r.Body, o)
	if err != nil {
		return nil, decodeError(r, err)
	}
	return &pushed{raw: d.Raw, warnings: list(d.Warnings), assignment: d.Value}, nil
}

// list is a list that JSON shows as one even where it is empty.
func list(ps []Problem) []Problem {
	if ps == nil {
		return []Problem{}
	}
	return ps
}

func decodeError(r *PushRequest, err error) error {
	e := &Error{Code: InvalidArgument, Cluster: r.Cluster, Detail: err.Error()}
	if invalid, ok := errors.AsType[*resource.InvalidError](err); ok {
		e.Code, e.Problems = InvalidResource, invalid.Problems
		e.Detail = fmt.Sprintf("%s breaks a rule", r.Kind)
		if n := len(invalid.Problems); n > 1 {
			e.Detail = fmt.Sprintf("%s breaks %d rules", r.Kind, n)
		}
		e.Detail += ": " + invalid.Problems[0].String()
	}
	return e
}

// blocked refuses a push that leaves the cluster without a usable endpoint: an
// assignment without one, or a configuration that leads from an assignment
// with one to none.
func (p *pushed) blocked(tx *store.Tx, r *PushRequest) error {
	if p.assignment != nil {
		if p.assignment.Usable() > 0 {
			return nil
		}
		e := errorf(Blocked, "the assignment has no endpoint that picks may reach; allow_empty=true pushes it all the same")
		e.Cluster = r.Cluster
		return e
	}
	before := r.Cluster
	if old, ok := tx.Get(resource.Key{Type: Config, Name: r.Cluster}); ok {
		if d, err := resource.DecodeCluster(old.Raw, resource.Options{Format: Protobuf, Name: r.Cluster}); err == nil {
			before = d.Value.AssignmentName()
		}
	}
	after := p.cluster.AssignmentName()
	if before == after || usable(tx, before) == 0 || usable(tx, after) > 0 {
		return nil
	}
	e := errorf(Blocked, "the configuration takes its endpoints from %q, which has none that picks may reach, instead of %q; allow_empty=true pushes it all the same", after, before)
	e.Cluster = r.Cluster
	return e
}

// usable counts the endpoints of a stored assignment that picks may reach.
func usable(tx *store.Tx, name string) int {
	entry, ok := tx.Get(resource.Key{Type: Endpoints, Name: name})
	if !ok {
		return 0
	}
	d, err := resource.DecodeAssignment(entry.Raw, resource.Options{Format: Protobuf, Name: name})
	if err != nil {
		return 0
	}
	return d.Value.Usable()
}

func notPushed(key resource.Key) error {
	e := errorf(UnknownCluster, "%s was not pushed", key)
	e.Cluster = key.Name
	return e
}

// Pushed returns a resource as it was pushed, in a format. It fails with
// UnknownCluster where nothing was.
func (s *Service) Pushed(kind Kind, cluster string, f Format) (*Stored, error) {
	st, err := s.open()
	if err != nil {
		return nil, err
	}
	key := resource.Key{Type: kind, Name: cluster}
	entry, ok := st.Snapshot().Get(key)
	if !ok {
		return nil, notPushed(key)
	}
	body, err := resource.Render(kind, entry.Raw, f)
	if err != nil {
		return nil, errorf(Internal, "%v", err)
	}
	return &Stored{Body: body, Hash: hash(entry.Raw)}, nil
}

func (s *Service) countPush(dryRun bool, res *PushResult, err error) {
	outcome := pushApplied
	var e *Error
	switch {
	case errors.As(err, &e) && e.Code == Blocked:
		outcome = pushBlocked
	case errors.As(err, &e) && e.Code == PreconditionFailed:
		outcome = pushPreconditionFailed
	case err != nil:
		outcome = pushRejected
	case dryRun:
		outcome = pushDryRun
	case len(res.Changes) == 0:
		outcome = pushUnchanged
	}
	s.metrics.pushes.WithLabelValues(string(outcome)).Inc()
}
