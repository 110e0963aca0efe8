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
	item, warnings, err := s.read(ctx, r)
	if err != nil {
		s.told(c, err)
		return nil, err
	}
	c.pushed = map[resource.Key]resource.Item{key: item}
	c.res = &PushResult{Hash: hash(item.Raw), Changes: []Change{}, Warnings: list(warnings)}
	c.run = func(tx *store.Tx) error {
		_, exists := tx.Get(key)
		c.res.New = !exists
		if changed, err := put(tx, item, c.res); err != nil || !changed || r.AllowEmpty {
			return err
		}
		return s.blocked(tx, item, c.pushed)
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

// read decodes what is pushed, once it is its turn.
func (s *Service) read(ctx context.Context, r *PushRequest) (resource.Item, []Problem, error) {
	if err := s.reading.enter(ctx); err != nil {
		return resource.Item{}, nil, err
	}
	defer s.reading.leave()
	o := resource.Options{
		Origin: resource.ByHand, Format: r.Format, Strict: r.Strict, Name: r.Cluster,
		Custom: lb.Foreign, Certificates: s.options.Bootstrap.HasCertificateProvider,
	}
	item := resource.Item{Key: resource.Key{Type: r.Kind, Name: r.Cluster}}
	if r.Kind == Config {
		d, err := resource.DecodeCluster(r.Body, o)
		if err != nil {
			return item, nil, decodeError(string(r.Kind), r.Cluster, err, sent{r.Body, r.Format, true})
		}
		item.Raw, item.Cluster = d.Raw, d.Value
		return item, warned(d.Warnings, sent{r.Body, r.Format, true}, r.DryRun), nil
	}
	d, err := resource.DecodeAssignment(r.Body, o)
	if err != nil {
		return item, nil, decodeError(string(r.Kind), r.Cluster, err, sent{r.Body, r.Format, true})
	}
	item.Raw, item.Assignment = d.Raw, d.Value
	return item, warned(d.Warnings, sent{r.Body, r.Format, true}, r.DryRun), nil
}

// list is a list that JSON shows as one even where it is empty.
func list(ps []Problem) []Problem {
	if ps == nil {
		return []Problem{}
	}
	return ps
}

func decodeError(what, cluster string, err error, body sent) error {
	e := &Error{Code: InvalidArgument, Cluster: cluster, Detail: err.Error()}
	if syntax, ok := errors.AsType[*resource.SyntaxError](err); ok && syntax.Line > 0 {
		e.Problems = []Problem{{Resource: what, Field: syntax.Field, Reason: syntax.Reason, Line: syntax.Line, Column: syntax.Column}}
	}
	if _, ok := errors.AsType[*resource.SizeError](err); ok {
		e.Code = TooLarge
	}
	if invalid, ok := errors.AsType[*resource.InvalidError](err); ok {
		e.Code, e.Problems = InvalidResource, body.locate(invalid.Problems)
		e.Detail = what + " breaks a rule"
		if n := len(invalid.Problems); n > 1 {
			e.Detail = fmt.Sprintf("%s breaks %d rules", what, n)
		}
		e.Detail += ": " + invalid.Problems[0].String()
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
