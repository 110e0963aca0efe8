package sources

import (
	"context"
	"errors"
	"fmt"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// Format is how a resource is written.
type Format = decode.Format

// The formats of resources.
const (
	JSON     = decode.FormatJSON
	YAML     = decode.FormatYAML
	Protobuf = decode.FormatProtobuf
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
	// Lenient accepts unknown fields of JSON and YAML with a warning.
	Lenient bool
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
func (s *Sources) Push(ctx context.Context, r *PushRequest) (*PushResult, error) {
	key := resource.Key{Type: r.Kind, Name: r.Cluster}
	c := &change{
		cluster: r.Cluster, dryRun: r.DryRun, precondition: r.Precondition, from: r.From, current: keyed(key),
	}
	item, warnings, notes, err := s.read(ctx, r)
	if err != nil {
		s.told(c, err)
		return nil, err
	}
	c.pushed = map[resource.Key]resource.Item{key: item}
	c.res = &PushResult{Hash: hash(item.Raw), Changes: []difference.Change{}, Warnings: list(warnings), Notes: list(notes)}
	c.run = func(tx *store.Tx) error {
		_, exists := tx.Get(key)
		c.res.New = !exists
		if changed, err := put(tx, item, c.res); err != nil || !changed {
			return err
		}
		if r.Kind == Config {
			if err := s.unsecured(tx, r.Cluster, c.pushed); err != nil {
				return err
			}
		}
		if r.AllowEmpty {
			return nil
		}
		return misspelled(s.blocked(tx, item, c.pushed), warnings, func(unknown []fault.Problem) {
			decode.Place(r.Body, r.Format, true, unknown)
		})
	}
	return s.change(ctx, c)
}

// Delete takes one resource of a cluster away. It fails with UnknownCluster
// where there is none, and with Blocked if connections of the cluster would lose TLS.
func (s *Sources) Delete(ctx context.Context, r *DeleteRequest) (*PushResult, error) {
	key := resource.Key{Type: r.Kind, Name: r.Cluster}
	c := &change{
		cluster: r.Cluster, dryRun: r.DryRun, precondition: r.Precondition, from: r.From, current: keyed(key),
		res: &PushResult{Warnings: []fault.Problem{}},
	}
	c.run = func(tx *store.Tx) error {
		if !tx.Delete(key) {
			return notPushed(key)
		}
		if r.Kind == Config {
			tx.Delete(resource.Key{Type: securedType, Name: r.Cluster})
		}
		c.res.Changes = []difference.Change{{Resource: key.String(), Change: "removed"}}
		if r.Kind == Config {
			return s.unsecured(tx, r.Cluster, nil)
		}
		return nil
	}
	return s.change(ctx, c)
}

// read decodes what is pushed, once it is its turn.
func (s *Sources) read(ctx context.Context, r *PushRequest) (item resource.Item, warnings, notes []fault.Problem, err error) {
	if err := s.reading.enter(ctx); err != nil {
		return item, nil, nil, err
	}
	defer s.reading.leave()
	o := s.decoding(r.Format, r.Lenient, r.DryRun)
	o.Name = r.Cluster
	item.Key = resource.Key{Type: r.Kind, Name: r.Cluster}
	if r.Kind == Config {
		d, err := decode.Cluster(r.Body, o)
		if err != nil {
			return item, nil, nil, decodeError(string(r.Kind), r.Cluster, err)
		}
		item.Raw, item.Cluster = d.Raw, d.Value
		return item, d.Warnings, d.Notes, nil
	}
	d, err := decode.Assignment(r.Body, o)
	if err != nil {
		return item, nil, nil, decodeError(string(r.Kind), r.Cluster, err)
	}
	item.Raw, item.Assignment = d.Raw, d.Value
	return item, d.Warnings, d.Notes, nil
}

// decoding returns the options with which a push is decoded. The places of warnings
// are for dry runs: a push that is made does not read its body twice.
func (s *Sources) decoding(f Format, lenient, dryRun bool) decode.Options {
	return decode.Options{
		Origin: decode.ByHand, Format: f, Lenient: lenient, Places: dryRun,
		Policies: lb.PolicyConfig, Certificates: s.options.Bootstrap.Instances(),
	}
}

// list is a list that JSON shows as one even where it is empty.
func list[V any](vs []V) []V {
	if vs == nil {
		return []V{}
	}
	return vs
}

func decodeError(what, cluster string, err error) error {
	e := &fault.Error{Code: fault.InvalidArgument, Cluster: cluster, Detail: err.Error()}
	if syntax, ok := errors.AsType[*decode.SyntaxError](err); ok && syntax.Line > 0 {
		e.Problems = []fault.Problem{{Resource: what, Field: syntax.Field, Reason: syntax.Reason, Line: syntax.Line, Column: syntax.Column}}
	}
	if _, ok := errors.AsType[*decode.SizeError](err); ok {
		e.Code = fault.TooLarge
	}
	if invalid, ok := errors.AsType[*decode.InvalidError](err); ok {
		e.Code, e.Problems = fault.InvalidResource, invalid.Problems
		e.Detail = what + " breaks a rule"
		if n := len(invalid.Problems); n > 1 {
			e.Detail = fmt.Sprintf("%s breaks %d rules", what, n)
		}
		e.Detail += ": " + invalid.Problems[0].String()
	}
	return e
}

func notPushed(key resource.Key) error {
	e := fault.Errorf(fault.UnknownCluster, "%s was not pushed", key)
	e.Cluster = key.Name
	return e
}

// Pushed returns a resource as it was pushed, in a format. It fails with
// UnknownCluster where nothing was.
func (s *Sources) Pushed(kind Kind, cluster string, f Format) (*Stored, error) {
	st, err := s.open()
	if err != nil {
		return nil, err
	}
	key := resource.Key{Type: kind, Name: cluster}
	entry, ok := st.Snapshot().Get(key)
	if !ok {
		return nil, notPushed(key)
	}
	body, err := decode.Render(kind, entry.Raw, f)
	if err != nil {
		return nil, fault.Errorf(fault.Internal, "%v", err)
	}
	return &Stored{Body: body, Hash: hash(entry.Raw)}, nil
}
