package sources

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// PushRequest pushes one resource of a cluster.
type PushRequest struct {
	Options ChangeOptions
	Kind    Kind
	Cluster string
	Body    []byte
	Format  Format
	// Lenient accepts unknown fields of JSON and YAML with a warning.
	Lenient bool
}

// Push validates and stores one resource of a cluster. When it returns, the resource
// is durable and picks see it; the same content again changes nothing.
func (p *pushes) Push(ctx context.Context, r *PushRequest) (*PushResult, error) {
	key := resource.Key{Type: r.Kind, Name: r.Cluster}
	c := &change{options: r.Options, cluster: r.Cluster, current: keyed(key)}
	d, err := p.read(ctx, r)
	if err != nil {
		p.report(c, err)
		return nil, err
	}
	c.res = &PushResult{Hash: hash(d.Item.Raw), Warnings: p.judged(d.Warnings, nil), Notes: d.Notes}
	c.misspelled = func(err error) error {
		return misspelled(err, d.Warnings, func(unknown []fault.Problem) { decode.Place(r.Body, r.Format, true, unknown) })
	}
	c.run = func(tx *store.Tx) error {
		_, exists := tx.Get(key)
		c.res.New = !exists
		return p.put(tx, c, d.Item)
	}
	return p.apply(ctx, c)
}

// Delete deletes one resource of a cluster. It fails with UnknownCluster if there is
// none, and with Blocked if connections of the cluster would lose TLS.
func (p *pushes) Delete(ctx context.Context, kind Kind, cluster string, o ChangeOptions) (*PushResult, error) {
	key := resource.Key{Type: kind, Name: cluster}
	o.AllowEmpty = true
	c := &change{options: o, cluster: cluster, current: keyed(key), res: &PushResult{}}
	c.run = func(tx *store.Tx) error {
		if !p.remove(tx, c, key) {
			return notPushed(key)
		}
		return nil
	}
	return p.apply(ctx, c)
}

// read decodes the body of a push. It waits for its turn.
func (p *pushes) read(ctx context.Context, r *PushRequest) (*decode.Decoded, error) {
	turn, err := p.begin(ctx, r.Options.Caller, r.Body, r.Format)
	if err != nil {
		return nil, err
	}
	defer turn.End()
	o := p.pushDecoding(r.Format, r.Lenient, r.Options.DryRun, turn)
	o.Name = r.Cluster
	d, err := decode.One(r.Kind, r.Body, o)
	if err != nil {
		return nil, decodeError(string(r.Kind), r.Cluster, err)
	}
	return d, r.Options.reserveTrees(ctx, d.Item)
}

// About what the clusters, localities and endpoints of a push take as they are decoded and in balancer trees, however
// small its body is.
const (
	treeClusterBytes  = 8 << 10
	treeEndpointBytes = 500
	treeLocalityBytes = 2 << 10
)

// reserveTrees reserves the memory that resources take when they are in use. A dry run reserves that of its forecast.
func (o *ChangeOptions) reserveTrees(ctx context.Context, items ...resource.Item) error {
	bytes := 0
	if o.DryRun {
		return nil
	}
	for _, i := range items {
		bytes += treeClusterBytes
		if i.Assignment == nil {
			continue
		}
		for _, l := range i.Assignment.Localities {
			bytes += treeLocalityBytes + len(l.Endpoints)*treeEndpointBytes
		}
	}
	return overload.Reserve(ctx, bytes)
}

// pushDecoding returns the options with which a push is decoded. Only a dry run locates
// its warnings: that reads the body twice.
func (p *pushes) pushDecoding(f Format, lenient, dryRun bool, turn *overload.Turn) decode.Options {
	o := p.decoding(f)
	o.Pause = turn.Pause
	o.Lenient, o.Places, o.Previous = lenient, dryRun, p.previous
	return o
}

// previous returns a pushed resource, if this daemon has decoded it.
func (p *pushes) previous(key resource.Key) resource.Item {
	st, err := p.open()
	if err != nil {
		return resource.Item{}
	}
	e, _ := st.Snapshot().Get(key)
	i, _ := e.Value.(resource.Item)
	return i
}

func decodeError(what, cluster string, err error) error {
	e := &fault.Error{Code: fault.InvalidArgument, Cluster: cluster, Detail: err.Error()}
	if syntax, ok := errors.AsType[*decode.SyntaxError](err); ok && syntax.Line > 0 {
		e.Problems = []fault.Problem{{Resource: what, Field: syntax.Field, Reason: syntax.Reason, Line: syntax.Line, Column: syntax.Column}}
	}
	if gone, ok := errors.AsType[*fault.Error](fault.FromContext(err)); ok {
		return gone
	}
	if errors.As(err, new(*decode.SizeError)) || errors.As(err, new(*overload.BudgetError)) {
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
	Body Parts // in the requested format
	Hash string
}

// Parts are the parts of a text, in order. They must not be changed.
type Parts [][]byte

// Len returns the length of the text.
func (p Parts) Len() int {
	n := 0
	for _, part := range p {
		n += len(part)
	}
	return n
}

// Bytes returns the text.
func (p Parts) Bytes() []byte { return slices.Concat(p...) }

// textFactor is about how many times its size as protobuf a resource takes while its text is written.
const textFactor = 30

// beginText waits for the turn of a caller to write resources of a size in a format, and reserves the memory for that.
func (p *pushes) beginText(ctx context.Context, caller string, size int, f Format) (*overload.Turn, error) {
	turn, err := p.Turns.BeginSized(ctx, overload.ResponseWork, caller, size)
	if err == nil && f != Protobuf {
		err = overload.Reserve(ctx, textFactor*size)
	}
	if err != nil {
		turn.End()
		return nil, fault.FromContext(err)
	}
	return turn, nil
}

// Pushed returns a pushed resource in a format, for a caller. It waits for its turn if the
// resource is large. It fails with UnknownCluster if there is none.
func (p *pushes) Pushed(ctx context.Context, caller string, kind Kind, cluster string, f Format) (*Stored, error) {
	pushed, err := p.contents()
	if err != nil {
		return nil, err
	}
	key := resource.Key{Type: kind, Name: cluster}
	entry, ok := pushed.Get(key)
	if !ok {
		return nil, notPushed(key)
	}
	turn, err := p.beginText(ctx, caller, len(entry.Raw), f)
	if err != nil {
		return nil, err
	}
	defer turn.End()
	body, err := decode.Render(kind, entry.Raw, f)
	if err != nil {
		return nil, fault.Errorf(fault.Internal, "%v", err)
	}
	return &Stored{Body: Parts{body}, Hash: hash(entry.Raw)}, nil
}

// SnapshotRequest pushes any number of resources at once.
type SnapshotRequest struct {
	Options ChangeOptions // whose precondition is about all pushed resources
	// Body is a DiscoveryResponse.
	Body   []byte
	Format Format
	// Lenient accepts unknown fields of JSON and YAML with a warning.
	Lenient bool
	// Replace deletes all pushed resources that are not in Body.
	Replace bool
	// MaxRemoved is how many resources Replace may delete; negative is any number.
	MaxRemoved int
}

// PushSnapshot validates and stores resources, all or none. When it returns, they are
// durable and picks see them.
func (p *pushes) PushSnapshot(ctx context.Context, r *SnapshotRequest) (*PushResult, error) {
	before := "" // the hash, if it was requested
	c := &change{options: r.Options}
	c.current = currentSnapshot(nil, &before)
	b, err := p.readSnapshot(ctx, r)
	if err != nil {
		p.report(c, err)
		return nil, err
	}
	c.pushed = make(map[resource.Key]resource.Item, len(b.Items))
	for _, i := range b.Items {
		c.pushed[i.Key] = i
	}
	c.res = &PushResult{Warnings: p.judged(b.Warnings, b), Notes: b.Notes}
	c.misspelled = func(err error) error {
		return misspelled(err, b.Warnings, func(unknown []fault.Problem) { decode.Place(r.Body, r.Format, false, unknown) })
	}
	c.run = func(tx *store.Tx) error {
		if r.Replace {
			if err := p.replace(tx, c, b, r); err != nil {
				return err
			}
		}
		for _, i := range b.Items {
			if err := p.put(tx, c, i); err != nil {
				return err
			}
		}
		c.res.Warnings = append(c.res.Warnings, p.unknownReferences(tx, b)...)
		if c.res.Hash = before; before == "" || len(c.res.Changes) > 0 {
			c.res.Hash = hashAll(tx.All(), letOthersRun)
		}
		return nil
	}
	return p.apply(ctx, c)
}

// currentSnapshot returns a function for change.current about the pushed resources in a scope, which
// stores their hash.
func currentSnapshot(in *ledger.Scope, hash *string) func(*store.Tx) (string, string, bool) {
	return func(tx *store.Tx) (string, string, bool) {
		*hash = hashAll(visible(tx.All(), in), letOthersRun)
		return "the snapshot", *hash, true // it exists even if it is empty
	}
}

// readSnapshot decodes the body of a push. It waits for its turn.
func (p *pushes) readSnapshot(ctx context.Context, r *SnapshotRequest) (*decode.Bundle, error) {
	turn, err := p.begin(ctx, r.Options.Caller, r.Body, r.Format)
	if err != nil {
		return nil, err
	}
	defer turn.End()
	b, err := decode.All(r.Body, p.pushDecoding(r.Format, r.Lenient, r.Options.DryRun, turn))
	if err != nil {
		return nil, decodeError("the snapshot", "", err)
	}
	return b, r.Options.reserveTrees(ctx, b.Items...)
}

// replace deletes the resources that b does not have. A snapshot that would delete all is
// more often an accident than intended.
func (p *pushes) replace(tx *store.Tx, c *change, b *decode.Bundle, r *SnapshotRequest) error {
	for e := range tx.All() {
		if _, stays := c.pushed[e.Key]; !stays && isResource(e.Key) {
			p.remove(tx, c, e.Key)
		}
	}
	c.res.Warnings = slices.Concat(c.res.Warnings, keptKinds(UnknownKinds(tx.All())), p.keptUnreadable())
	if err := removesAtMost(c, r.MaxRemoved, "the snapshot"); err != nil {
		return err
	}
	if n := len(c.res.Changes); len(b.Items) == 0 && n > 0 && !r.Options.AllowEmpty {
		return fault.Errorf(fault.Blocked, "the snapshot is empty and would remove all %d resources; set allow_empty=true to push it anyway", n)
	}
	return nil
}

// visible yields the entries that are in a scope.
func visible(all iter.Seq[store.Entry], in *ledger.Scope) iter.Seq[store.Entry] {
	return func(yield func(store.Entry) bool) {
		for e := range all {
			if in.Resource(e.Key) && !yield(e) {
				return
			}
		}
	}
}

// letOthersRun is the pause of work within a transaction, which has no turn and no end before its own.
func letOthersRun() error {
	runtime.Gosched()
	return nil
}

// hashAll is the hash of resources with their names. A snapshot does not have the
// targets that are hosted by name.
// It calls pause between them.
func hashAll(all iter.Seq[store.Entry], pause func() error) string {
	h := sha256.New()
	for e := range all {
		_ = pause() // a caller that has left needs no hash
		if !isResource(e.Key) {
			continue
		}
		sum := sha256.Sum256(e.Raw)
		h.Write([]byte(e.Key.String()))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
