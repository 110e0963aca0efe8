package sources

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"strings"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// SnapshotRequest brings any number of resources at once.
type SnapshotRequest struct {
	// Body is a DiscoveryResponse.
	Body   []byte
	Format Format
	// Lenient accepts unknown fields of JSON and YAML with a warning.
	Lenient bool
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
func (s *Sources) PushSnapshot(ctx context.Context, r *SnapshotRequest) (*PushResult, error) {
	before := "" // the hash, where it is asked for
	c := &change{dryRun: r.DryRun, precondition: r.Precondition, from: r.From}
	c.current = func(tx *store.Tx) (name, hash string, exists bool) {
		before = hashAll(tx.All())
		return "the snapshot", before, true // it exists even where it is nothing
	}
	b, err := s.readSnapshot(ctx, r)
	if err != nil {
		s.told(c, err)
		return nil, err
	}
	c.pushed = make(map[resource.Key]resource.Item, len(b.Items))
	for _, i := range b.Items {
		c.pushed[i.Key] = i
	}
	c.res = &PushResult{Changes: []difference.Change{}, Warnings: list(b.Warnings), Notes: list(b.Notes)}
	c.run = func(tx *store.Tx) error {
		if err := s.putAll(tx, b, r, c); err != nil {
			return err
		}
		c.res.Warnings = append(c.res.Warnings, s.missing(tx, b)...)
		if c.res.Hash = before; before == "" || len(c.res.Changes) > 0 {
			c.res.Hash = hashAll(tx.All())
		}
		return nil
	}
	return s.change(ctx, c)
}

// readSnapshot decodes what is pushed, once it is its turn.
func (s *Sources) readSnapshot(ctx context.Context, r *SnapshotRequest) (*decode.Bundle, error) {
	if err := s.reading.enter(ctx); err != nil {
		return nil, err
	}
	defer s.reading.leave()
	b, err := decode.All(r.Body, s.decoding(r.Format, r.Lenient, r.DryRun))
	if err != nil {
		return nil, decodeError("the snapshot", "", err)
	}
	return b, nil
}

// putAll stores what b holds.
func (s *Sources) putAll(tx *store.Tx, b *decode.Bundle, r *SnapshotRequest, c *change) error {
	if r.Replace {
		if err := replace(tx, b, r, c.res); err != nil {
			return err
		}
	}
	var judged []resource.Item // configurations, too, whose assignments may have changed
	for _, i := range b.Items {
		changed, err := put(tx, i, c.res)
		if err != nil {
			return err
		}
		if changed && i.Key.Type == Endpoints || i.Key.Type == Config {
			judged = append(judged, i)
		}
	}
	if err := s.unsecuredAny(tx, c); err != nil || r.AllowEmpty || len(c.res.Changes) == 0 {
		return err
	}
	for _, i := range judged {
		if err := s.blocked(tx, i, c.pushed); err != nil {
			return misspelled(err, b.Warnings, func(unknown []fault.Problem) { decode.Place(r.Body, r.Format, false, unknown) })
		}
	}
	return s.removedBlocked(tx, c)
}

// unsecuredAny refuses to take TLS from the connections of any cluster.
func (s *Sources) unsecuredAny(tx *store.Tx, c *change) error {
	for _, change := range c.res.Changes {
		if kind, name, _ := strings.Cut(change.Resource, "/"); kind == string(Config) {
			if err := s.unsecured(tx, name, c.pushed); err != nil {
				return err
			}
		}
	}
	return nil
}

// removedBlocked refuses to take away what a cluster that stays gets its endpoints
// from.
func (s *Sources) removedBlocked(tx *store.Tx, c *change) error {
	after := s.pushView(tx, c.pushed)
	for _, change := range c.res.Changes {
		kind, name, _ := strings.Cut(change.Resource, "/")
		if change.Change != "removed" || kind != string(Endpoints) && kind != string(Config) {
			continue
		}
		if err := s.emptied(after, name); err != nil {
			return err
		}
	}
	return nil
}

// replace takes away what b does not hold. A snapshot that would take all away is
// more often an accident than meant.
func replace(tx *store.Tx, b *decode.Bundle, r *SnapshotRequest, res *PushResult) error {
	named := make(map[resource.Key]bool, len(b.Items))
	for _, i := range b.Items {
		named[i.Key] = true
	}
	for e := range tx.All() {
		if named[e.Key] || internal(e.Key) {
			continue
		}
		tx.Delete(e.Key)
		if e.Key.Type == Config {
			tx.Delete(resource.Key{Type: securedType, Name: e.Key.Name})
		}
		res.Changes = append(res.Changes, difference.Change{Resource: e.Key.String(), Change: "removed"})
	}
	n := len(res.Changes)
	if r.MaxRemoved >= 0 && n > r.MaxRemoved {
		return fault.Errorf(fault.Blocked, "the snapshot would remove %d resources, more than max_removed=%d; the first is %s",
			n, r.MaxRemoved, res.Changes[0].Resource)
	}
	if len(b.Items) == 0 && n > 0 && !r.AllowEmpty {
		return fault.Errorf(fault.Blocked, "the snapshot is empty and would remove all %d resources; allow_empty=true pushes it all the same", n)
	}
	return nil
}

// hashAll is the hash of resources with their names. Which targets are hosted by
// name is no matter of a snapshot.
func hashAll(all iter.Seq[store.Entry]) string {
	h := sha256.New()
	for e := range all {
		if internal(e.Key) {
			continue
		}
		sum := sha256.Sum256(e.Raw)
		h.Write([]byte(e.Key.String()))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Snapshot returns all that was pushed, as a DiscoveryResponse in a format.
func (s *Sources) Snapshot(f Format) (*Stored, error) {
	st, err := s.open()
	if err != nil {
		return nil, err
	}
	all := st.Snapshot()
	var resources []decode.Rendered
	for e := range all.All() {
		if internal(e.Key) {
			continue
		}
		resources = append(resources, decode.Rendered{Type: e.Key.Type, Raw: e.Raw})
	}
	tag := hashAll(all.All())
	body, err := decode.RenderBundle(tag, resources, f)
	if err != nil {
		return nil, fault.Errorf(fault.Internal, "%v", err)
	}
	return &Stored{Body: body, Hash: tag}, nil
}
