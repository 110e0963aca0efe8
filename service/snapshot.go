package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"maps"
	"slices"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// SnapshotRequest brings any number of resources at once.
type SnapshotRequest struct {
	// Body is a DiscoveryResponse.
	Body   []byte
	Format Format
	Strict bool
	// Replace takes away all that was pushed and is not in Body.
	Replace    bool
	DryRun     bool
	AllowEmpty bool
	// MaxRemoved is how many resources Replace may take away; negative is any
	// number.
	MaxRemoved int
	// Precondition is about all that was pushed.
	Precondition Precondition
	From         string
}

// PushSnapshot validates resources and makes them hold, all or none. When it
// returns they are durable and picks see them.
func (s *Service) PushSnapshot(ctx context.Context, r *SnapshotRequest) (*PushResult, error) {
	c := &change{dryRun: r.DryRun, precondition: r.Precondition, from: r.From, current: everything}
	b, err := resource.DecodeBundle(r.Body, resource.Options{Origin: resource.ByHand, Format: r.Format, Strict: r.Strict, Custom: lb.Foreign})
	if err != nil {
		err = decodeError("the snapshot", "", err)
		s.told(c, err)
		return nil, err
	}
	c.res = &PushResult{Changes: []Change{}, Warnings: list(b.Warnings)}
	c.run = func(tx *store.Tx) error {
		before := make(map[string]int) // usable endpoints, by configured cluster
		for _, i := range b.Items {
			if i.Key.Type == Config {
				before[i.Key.Name] = usable(tx, i.Key.Name)
			}
		}
		if r.Replace {
			if err := replace(tx, b, r, c.res); err != nil {
				return err
			}
		}
		for _, i := range b.Items {
			n := len(c.res.Changes)
			if err := put(tx, i.Key, i.Raw, c.res); err != nil {
				return err
			}
			if r.AllowEmpty || i.Assignment == nil || len(c.res.Changes) == n {
				continue
			}
			if err := blocked(tx, i.Key.Name, 0, i.Assignment); err != nil {
				return err
			}
		}
		if err := leftEmpty(tx, before, r.AllowEmpty); err != nil {
			return err
		}
		c.res.Hash = hashAll(tx.All())
		return nil
	}
	return s.change(ctx, c)
}

// leftEmpty refuses to leave a configured cluster without the usable endpoints
// that it had.
func leftEmpty(tx *store.Tx, before map[string]int, allowed bool) error {
	if allowed {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if err := blocked(tx, name, before[name], nil); err != nil {
			return err
		}
	}
	return nil
}

// replace takes away what b does not hold. A snapshot that would take all away is
// more often an accident than meant.
func replace(tx *store.Tx, b *resource.Bundle, r *SnapshotRequest, res *PushResult) error {
	named := make(map[resource.Key]bool, len(b.Items))
	for _, i := range b.Items {
		named[i.Key] = true
	}
	for e := range tx.All() {
		if named[e.Key] {
			continue
		}
		tx.Delete(e.Key)
		res.Changes = append(res.Changes, Change{Resource: e.Key.String(), Change: "removed"})
	}
	n := len(res.Changes)
	if r.MaxRemoved >= 0 && n > r.MaxRemoved {
		return errorf(Blocked, "the snapshot would remove %d resources, more than max_removed=%d; the first is %s",
			n, r.MaxRemoved, res.Changes[0].Resource)
	}
	if len(b.Items) == 0 && n > 0 && !r.AllowEmpty {
		return errorf(Blocked, "the snapshot is empty and would remove all %d resources; allow_empty=true pushes it all the same", n)
	}
	return nil
}

// hashAll is the hash of resources with their names.
func hashAll(all iter.Seq[store.Entry]) string {
	h := sha256.New()
	for e := range all {
		sum := sha256.Sum256(e.Raw)
		h.Write([]byte(e.Key.String()))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// everything is all that was pushed. It exists even where it is nothing.
func everything(tx *store.Tx) (name, hash string, exists bool) {
	return "the snapshot", hashAll(tx.All()), true
}

// Snapshot returns all that was pushed, as a DiscoveryResponse in a format.
func (s *Service) Snapshot(f Format) (*Stored, error) {
	st, err := s.open()
	if err != nil {
		return nil, err
	}
	all := st.Snapshot()
	var resources []resource.Rendered
	for e := range all.All() {
		resources = append(resources, resource.Rendered{Type: e.Key.Type, Raw: e.Raw})
	}
	tag := hashAll(all.All())
	body, err := resource.RenderBundle(tag, resources, f)
	if err != nil {
		return nil, errorf(Internal, "%v", err)
	}
	return &Stored{Body: body, Hash: tag}, nil
}
