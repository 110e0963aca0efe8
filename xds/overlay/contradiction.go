package overlay

import (
	"slices"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Superseded returns the overlays that have no effect because a newer one contradicts them, with the
// newer one. The overlays are sorted, the oldest first.
func Superseded(list []*resource.Overlay) map[*resource.Overlay]*resource.Overlay {
	out := map[*resource.Overlay]*resource.Overlay{}
	for i, older := range list {
		for _, newer := range list[i+1:] {
			if contradicts(newer, older) {
				out[older] = newer
				break
			}
		}
	}
	return out
}

// effective returns the overlays without those that are superseded.
func effective(list []*resource.Overlay) []*resource.Overlay {
	superseded := Superseded(list)
	if len(superseded) == 0 {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), func(o *resource.Overlay) bool { return superseded[o] != nil })
}

// contradicts reports whether a newer overlay is about what an older one decides.
func contradicts(newer, older *resource.Overlay) bool {
	sameSubject := resource.CanonicalAddress(newer.Endpoint) == resource.CanonicalAddress(older.Endpoint) &&
		(newer.Locality == nil) == (older.Locality == nil) && (newer.Locality == nil || *newer.Locality == *older.Locality)
	switch newer.Kind {
	case resource.OverlayDrain, resource.OverlayDisable:
		return (older.Kind == resource.OverlayDrain || older.Kind == resource.OverlayDisable) && sameSubject
	case resource.OverlayWeight:
		return older.Kind == resource.OverlayWeight && sameSubject
	case resource.OverlayForcePriority:
		return older.Kind == resource.OverlayForcePriority ||
			older.Kind == resource.OverlayForbidPriority && older.Priority == newer.Priority
	case resource.OverlayForbidPriority:
		return (older.Kind == resource.OverlayForcePriority || older.Kind == resource.OverlayForbidPriority) && older.Priority == newer.Priority
	case resource.OverlayDrop:
		return older.Kind == resource.OverlayDrop && (newer.Category == "" || newer.Category == older.Category)
	case resource.OverlayMaxRequests, resource.OverlayHoldEjections:
		return older.Kind == newer.Kind
	}
	return false
}
