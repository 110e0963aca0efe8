package overlays

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

const (
	// MaxOverlays is the maximum number of overlays in a store.
	MaxOverlays = 1000
	// MaxOfCluster is the maximum number of overlays of one cluster.
	MaxOfCluster = 100
	// MaxID is the maximum length of an ID, in bytes.
	MaxID = 64
)

// CheckID returns an error for what cannot be an ID.
func CheckID(id string) error {
	if id == "" || len(id) > MaxID || strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
	}) || strings.Trim(id, ".") == "" {
		return fault.Errorf(fault.InvalidArgument, "path: id: %q is not 1 to %d letters, digits, dots, hyphens and underscores", fault.Clip(id), MaxID)
	}
	return nil
}

// Encode returns an overlay as the store has it.
func Encode(o *resource.Overlay) ([]byte, error) { return json.Marshal(o) }

// Decode is the inverse of Encode.
func Decode(e store.Entry) (*resource.Overlay, error) {
	o := &resource.Overlay{}
	if err := json.Unmarshal(e.Raw, o); err != nil {
		return nil, fmt.Errorf("%s: %w", e.Key, err)
	}
	if !slices.Contains(resource.OverlayKinds, o.Kind) {
		return nil, fmt.Errorf("%s: kind %q is not known: a newer lbd may have put it", e.Key, o.Kind)
	}
	o.Cluster, o.ID = overlay.ClusterOf(e.Key), overlay.IDOf(e.Key)
	return o, nil
}

// Of returns the overlays of a cluster, or of all for an empty name, among entries of [overlay.Type], without those
// that have expired: by cluster, and the oldest first. What cannot be decoded has no effect.
func Of(entries iter.Seq[store.Entry], cluster string, now time.Time) []*resource.Overlay {
	var out []*resource.Overlay
	for e := range entries {
		if cluster != "" && overlay.ClusterOf(e.Key) != cluster {
			continue
		}
		if o, err := Decode(e); err == nil && !o.Expired(now) {
			out = append(out, o)
		}
	}
	slices.SortStableFunc(out, func(a, b *resource.Overlay) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Expired returns the keys of the overlays of a snapshot that have expired, and when the next one will:
// zero if none.
func Expired(s *store.Snapshot, now time.Time) (expired []resource.Key, next time.Time) {
	for e := range s.Of(overlay.Type) {
		switch o, err := Decode(e); {
		case err != nil || o.Expires.IsZero():
		case o.Expired(now):
			expired = append(expired, e.Key)
		case next.IsZero() || o.Expires.Before(next):
			next = o.Expires
		}
	}
	return expired, next
}

// Count returns how many entries of [overlay.Type] there are, and how many of them are of a cluster.
func Count(entries iter.Seq[store.Entry], cluster string) (all, of int) {
	for e := range entries {
		all++
		if overlay.ClusterOf(e.Key) == cluster {
			of++
		}
	}
	return all, of
}
