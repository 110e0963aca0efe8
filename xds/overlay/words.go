package overlay

import (
	"fmt"
	"strconv"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Describe returns what an overlay does, in words: "drains endpoint 10.0.0.7:8080".
func Describe(o *resource.Overlay) string {
	switch o.Kind {
	case resource.OverlayDrain:
		return "drains " + subject(o)
	case resource.OverlayDisable:
		return "disables " + subject(o)
	case resource.OverlayWeight:
		return fmt.Sprintf("multiplies the weight of %s by %s", subject(o), number(o.Factor))
	case resource.OverlayForcePriority:
		if o.Priority == 1 {
			return "takes priority 0 out of use, for priority 1"
		}
		return fmt.Sprintf("takes the priorities before %d out of use", o.Priority)
	case resource.OverlayForbidPriority:
		return fmt.Sprintf("takes priority %d out of use", o.Priority)
	case resource.OverlayDrop:
		percent := number(float64(o.PerMillion) / 10_000)
		if o.Category == "" {
			return fmt.Sprintf("drops %s %% of the requests, instead of what the drop categories say", percent)
		}
		return fmt.Sprintf("drops %s %% of the requests in the category %q", percent, o.Category)
	case resource.OverlayMaxRequests:
		return fmt.Sprintf("sets max_requests to %d", o.MaxRequests)
	case resource.OverlayHoldEjections:
		return "stops ejections by outlier detection"
	}
	return string(o.Kind)
}

func subject(o *resource.Overlay) string {
	if o.Locality != nil {
		return "locality " + o.Locality.String()
	}
	return "endpoint " + o.Endpoint
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }
