package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/lbd-dev/lbd/lb"
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

// Push validates one resource of a cluster and makes it hold. When it returns,
// the resource is durable and picks see it; the same content again changes
// nothing.
func (s *Service) Push(ctx context.Context, r *PushRequest) (*PushResult, error) {
	key := resource.Key{Type: r.Kind, Name: r.Cluster}
	c := &change{
		cluster: r.Cluster, dryRun: r.DryRun, precondition: r.Precondition, from: r.From, current: keyed(key),
	}
	p, err := decode(r)
	if err != nil {
		s.told(c, err)
		return nil, err
	}
	c.res = &PushResult{Hash: hash(p.raw), Changes: []Change{}, Warnings: list(p.warnings)}
	c.run = func(tx *store.Tx) error {
		_, exists := tx.Get(key)
		c.res.New = !exists
		before := usable(tx, r.Cluster)
		if err := put(tx, key, p.raw, c.res); err != nil || len(c.res.Changes) == 0 || r.AllowEmpty {
			return err
		}
		return blocked(tx, r.Cluster, before, p.assignment)
	}
	return s.change(ctx, c)
}

// Delete takes one resource of a cluster away. It fails with UnknownCluster
// where there is none.
func (s *Service) Delete(ctx context.Context, r *DeleteRequest) (*PushResult, error) {
	key := resource.Key{Type: r.Kind, Name: r.Cluster}
	c := &change{
		cluster: r.Cluster, dryRun: r.DryRun, precondition: r.Precondition, from: r.From, current: keyed(key),
		res: &PushResult{Warnings: []Problem{}},
	}
	c.run = func(tx *store.Tx) error {
		if !tx.Delete(key) {
			return notPushed(key)
		}
		c.res.Changes = []Change{{Resource: key.String(), Change: "removed"}}
		return nil
	}
	return s.change(ctx, c)
}

// pushed is a pushed resource, decoded.
type pushed struct {
	raw        []byte
	warnings   []Problem
	assignment *resource.Assignment // nil for Config
}

func decode(r *PushRequest) (*pushed, error) {
	o := resource.Options{Origin: resource.ByHand, Format: r.Format, Strict: r.Strict, Name: r.Cluster, Custom: lb.Foreign}
	if r.Kind == Config {
		d, err := resource.DecodeCluster(r.Body, o)
		if err != nil {
			return nil, decodeError(string(r.Kind), r.Cluster, err)
		}
		return &pushed{raw: d.Raw, warnings: d.Warnings}, nil
	}
	d, err := resource.DecodeAssignment(r.Body, o)
	if err != nil {
		return nil, decodeError(string(r.Kind), r.Cluster, err)
	}
	return &pushed{raw: d.Raw, warnings: d.Warnings, assignment: d.Value}, nil
}

// list is a list that JSON shows as one even where it is empty.
func list(ps []Problem) []Problem {
	if ps == nil {
		return []Problem{}
	}
	return ps
}

func decodeError(what, cluster string, err error) error {
	e := &Error{Code: InvalidArgument, Cluster: cluster, Detail: err.Error()}
	if invalid, ok := errors.AsType[*resource.InvalidError](err); ok {
		e.Code, e.Problems = InvalidResource, invalid.Problems
		e.Detail = what + " breaks a rule"
		if n := len(invalid.Problems); n > 1 {
			e.Detail = fmt.Sprintf("%s breaks %d rules", what, n)
		}
		e.Detail += ": " + invalid.Problems[0].String()
	}
	return e
}

// blocked refuses a push that leaves a cluster without a usable endpoint: an
// assignment without one, or a configuration that leads from an assignment with
// some, before, to none. a is nil for a configuration.
func blocked(tx *store.Tx, cluster string, before int, a *resource.Assignment) error {
	e := &Error{Code: Blocked, Cluster: cluster}
	switch {
	case a != nil && a.Usable() == 0:
		e.Detail = fmt.Sprintf("the assignment of %q has no endpoint that picks may reach; allow_empty=true pushes it all the same", cluster)
	case a == nil && before > 0 && usable(tx, cluster) == 0:
		e.Detail = fmt.Sprintf("the configuration of %q takes its endpoints from an assignment that has none that picks may reach, where it had %d; allow_empty=true pushes it all the same", cluster, before)
	default:
		return nil
	}
	return e
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
