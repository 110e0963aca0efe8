package sources

import (
	"context"
	"errors"
	"fmt"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// ChangeOptions are the options of every change of what is pushed or hosted.
type ChangeOptions struct {
	// DryRun validates and reports what would change, and changes nothing.
	DryRun       bool
	Precondition Precondition
	// From is the caller, for events.
	From string
}

// PushRequest pushes one resource of a cluster.
type PushRequest struct {
	ChangeOptions

	Kind    Kind
	Cluster string
	Body    []byte
	Format  Format
	// Lenient accepts unknown fields of JSON and YAML with a warning.
	Lenient bool
	// AllowEmpty permits a push that leaves the cluster without a usable endpoint.
	AllowEmpty bool
}

// Push validates and stores one resource of a cluster. When it returns, the resource
// is durable and picks see it; the same content again changes nothing.
func (p *pushes) Push(ctx context.Context, r *PushRequest) (*PushResult, error) {
	key := resource.Key{Type: r.Kind, Name: r.Cluster}
	c := &change{ChangeOptions: r.ChangeOptions, cluster: r.Cluster, current: keyed(key)}
	item, warnings, notes, err := p.read(ctx, r)
	if err != nil {
		p.report(c, err)
		return nil, err
	}
	c.pushed = map[resource.Key]resource.Item{key: item}
	c.res = &PushResult{Hash: hash(item.Raw), Changes: []difference.Change{}, Warnings: list(warnings), Notes: list(notes)}
	c.run = func(tx *store.Tx) error {
		_, exists := tx.Get(key)
		c.res.New = !exists
		if changed, err := c.put(tx, item); err != nil || !changed {
			return err
		}
		if r.Kind == Config {
			if err := p.unsecured(tx, r.Cluster); err != nil {
				return err
			}
		}
		if r.AllowEmpty {
			return nil
		}
		return misspelled(p.blocked(tx, item), warnings, func(unknown []fault.Problem) {
			decode.Place(r.Body, r.Format, true, unknown)
		})
	}
	return p.apply(ctx, c)
}

// Delete deletes one resource of a cluster. It fails with UnknownCluster if there is
// none, and with Blocked if connections of the cluster would lose TLS.
func (p *pushes) Delete(ctx context.Context, kind Kind, cluster string, o ChangeOptions) (*PushResult, error) {
	key := resource.Key{Type: kind, Name: cluster}
	c := &change{ChangeOptions: o, cluster: cluster, current: keyed(key), res: &PushResult{Warnings: []fault.Problem{}}}
	c.run = func(tx *store.Tx) error {
		if !c.remove(tx, key) {
			return notPushed(key)
		}
		if kind == Config {
			return p.unsecured(tx, cluster)
		}
		return nil
	}
	return p.apply(ctx, c)
}

// read decodes the body of a push. It waits for its turn.
func (p *pushes) read(ctx context.Context, r *PushRequest) (item resource.Item, warnings, notes []fault.Problem, err error) {
	if err := p.bodies.acquire(ctx); err != nil {
		return item, nil, nil, err
	}
	defer p.bodies.release()
	o := p.pushDecoding(r.Format, r.Lenient, r.DryRun)
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

// pushDecoding returns the options with which a push is decoded. Only a dry run locates
// its warnings: that reads the body twice.
func (p *pushes) pushDecoding(f Format, lenient, dryRun bool) decode.Options {
	o := p.decoding(f)
	o.Lenient, o.Places = lenient, dryRun
	return o
}

// list returns a list that is not null in JSON.
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
	return fault.Errorf(fault.UnknownCluster, "%s was not pushed", key).Of(key.Name, "")
}

// Stored is what was pushed.
type Stored struct {
	Body []byte // in the requested format
	Hash string
}

// Pushed returns a pushed resource in a format. It fails with UnknownCluster if there
// is none.
func (p *pushes) Pushed(kind Kind, cluster string, f Format) (*Stored, error) {
	st, err := p.open()
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
