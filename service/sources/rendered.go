package sources

import (
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
	mu   sync.Mutex // held while the text is made, so that readers do not make it twice
	of   weak.Pointer[store.Snapshot]
	text weak.Pointer[Stored]
}

// of returns the text of a snapshot in a format.
func (all *renderedSnapshots) of(s *store.Snapshot, f Format) (*Stored, error) {
	r := &all[f]
	r.mu.Lock()
	defer r.mu.Unlock()
	if text := r.text.Value(); text != nil && r.of.Value() == s {
		return text, nil
	}
	text, err := render(s, nil, f)
	if err != nil {
		return nil, fault.Errorf(fault.Internal, "%v", err)
	}
	r.of, r.text = weak.Make(s), weak.Make(text)
	return text, nil
}

func render(s *store.Snapshot, in *ledger.Scope, f Format) (*Stored, error) {
	var entries []store.Entry
	var resources []resource.Item
	for e := range s.All() {
		if !internal(e.Key) && in.Resource(e.Key) {
			entries = append(entries, e)
			resources = append(resources, resource.Item{Key: e.Key, Raw: e.Raw})
		}
	}
	tag := hashAll(slices.Values(entries))
	body, err := decode.RenderBundle(tag, resources, f)
	return &Stored{Body: body, Hash: tag}, err
}

// Snapshot returns all pushed resources in a scope, as a DiscoveryResponse in a format.
func (p *pushes) Snapshot(in *ledger.Scope, f Format) (*Stored, error) {
	st, err := p.open()
	if err != nil {
		return nil, err
	}
	if in.All() {
		return p.rendered.of(st.Snapshot(), f)
	}
	text, err := render(st.Snapshot(), in, f)
	if err != nil {
		return nil, fault.Errorf(fault.Internal, "%v", err)
	}
	return text, nil
}
