package sources

import (
	"context"
	"slices"
	"sync"
	"weak"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// renderedSnapshots has the text of the last snapshot in each format while somebody reads
// it: readers share it, because it may be large.
type renderedSnapshots [decode.FormatProtobuf + 1]renderedSnapshot

type renderedSnapshot struct {
	mu   sync.Mutex // guards the rest
	of   weak.Pointer[store.Snapshot]
	text weak.Pointer[Stored]
	// making is closed when the text that is being made is complete, or was given up; nil if
	// none is.
	making chan struct{}
}

// find returns the text of a snapshot; nil if there is none. Then, either the caller has to
// make it, or it has to wait for another one, and find it again.
func (r *renderedSnapshot) find(s *store.Snapshot) (text *Stored, wait <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text = r.text.Value(); text != nil && r.of.Value() == s {
		return text, nil
	}
	if r.making != nil {
		return nil, r.making
	}
	r.making = make(chan struct{})
	return nil, nil
}

// made keeps the text that the caller of find has made; nil if it could not.
func (r *renderedSnapshot) made(s *store.Snapshot, text *Stored) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if text != nil {
		r.of, r.text = weak.Make(s), weak.Make(text)
	}
	close(r.making)
	r.making = nil
}

// shared returns the text of a whole snapshot in a format. One reader makes it, and others wait
// for it without a turn.
func (p *pushes) shared(ctx context.Context, caller string, s *store.Snapshot, f Format) (*Stored, error) {
	r := &p.rendered[f]
	for {
		text, wait := r.find(s)
		if text != nil {
			return text, nil
		}
		if wait == nil {
			break
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, fault.FromContext(ctx.Err())
		}
	}
	var text *Stored
	defer func() { r.made(s, text) }() // whatever happens: others wait
	var err error
	text, err = p.render(ctx, caller, s, nil, f)
	return text, err
}

// render returns the resources of a snapshot in a scope, in a format. It waits for its turn.
func (p *pushes) render(ctx context.Context, caller string, s *store.Snapshot, in *ledger.Scope, f Format) (*Stored, error) {
	var entries []store.Entry
	var resources []resource.Item
	size := 0
	for e := range s.All() {
		if isResource(e.Key) && in.Resource(e.Key) {
			entries = append(entries, e)
			resources = append(resources, resource.Item{Key: e.Key, Raw: e.Raw})
			size += len(e.Raw)
		}
	}
	turn, err := p.beginText(ctx, caller, size, f)
	if err != nil {
		return nil, err
	}
	defer turn.End()
	tag := hashAll(slices.Values(entries), turn.Pause)
	body, err := decode.RenderBundle(tag, resources, f, turn.Pause)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fault.FromContext(ctx.Err())
		}
		return nil, fault.Errorf(fault.Internal, "%v", err)
	}
	return &Stored{Body: body, Hash: tag}, nil
}

// Snapshot returns all pushed resources in a scope, as a DiscoveryResponse in a format, for a
// caller. It waits for its turn if they are large.
func (p *pushes) Snapshot(ctx context.Context, caller string, in *ledger.Scope, f Format) (*Stored, error) {
	s, err := p.contents()
	if err != nil {
		return nil, err
	}
	if in.All() {
		return p.shared(ctx, caller, s, f)
	}
	return p.render(ctx, caller, s, in, f)
}
