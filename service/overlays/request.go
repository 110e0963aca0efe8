package overlays

import (
	"fmt"
	"math"
	"net"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Limits of a NewOverlay.
const (
	// MaxReason is the maximum length of a reason, in bytes.
	MaxReason = 500
	// MaxText is the maximum length of an endpoint, a category and a part of a locality, in bytes.
	MaxText = 255
	// MaxFactor is the maximum factor of a weight.
	MaxFactor = 10
	// MaxPriority is the maximum priority, as in a ClusterLoadAssignment.
	MaxPriority = 128
	// MaxExpiry is the longest time until an overlay expires, other than that of a drain.
	MaxExpiry = 7 * 24 * time.Hour
	// DefaultExpiry is the time until an overlay expires, other than that of a drain, which does not.
	DefaultExpiry = time.Hour
	// maxDrainExpiry is that of drain and disable.
	maxDrainExpiry = 366 * 24 * time.Hour
	// minExpiry is the shortest time.
	minExpiry = time.Second
	// perPercent is what one percent is of a million.
	perPercent = 10_000
)

// NewOverlay describes an overlay to put. Each kind has its own fields: a field of another kind is an error.
type NewOverlay struct {
	Kind resource.OverlayKind `json:"kind" swaggertype:"string" enums:"drain,disable,weight,force_priority,forbid_priority,drop,max_requests,hold_ejections" example:"drain"`
	// Endpoint is an address, such as 10.0.0.7:8080, or the hostname of endpoints: of drain, disable and
	// weight.
	Endpoint string `json:"endpoint,omitempty" example:"10.0.0.7:8080"`
	// Locality is a locality instead of an endpoint. A part that is absent matches any.
	Locality *LocalityPattern `json:"locality,omitempty"`
	// Factor is what weight multiplies the weight by. With 0, the endpoints get no picks.
	Factor *float64 `json:"factor,omitempty" minimum:"0" maximum:"10"`
	// Priority is that of force_priority and forbid_priority.
	Priority *int `json:"priority,omitempty" minimum:"0" maximum:"128"`
	// Category is the drop category of drop; absent for all of them together.
	Category string `json:"category,omitempty"`
	// Percent is how many of the requests drop drops.
	Percent *float64 `json:"percent,omitempty" minimum:"0" maximum:"100"`
	// MaxRequests is that of max_requests.
	MaxRequests *int64 `json:"max_requests,omitempty" minimum:"0" maximum:"4294967295"`
	// Reason is why, for others.
	Reason string `json:"reason,omitempty" maxLength:"500"`
	// Expires is when the overlay ends by itself: a time from now, such as 1h; a time in RFC 3339; or never.
	// Without it, drain and disable do not expire, and the other kinds after 1h.
	Expires string `json:"expires,omitempty" example:"1h"`
}

// LocalityPattern names localities: a part that is absent matches any.
type LocalityPattern struct {
	Region  string `json:"region,omitempty"`
	Zone    string `json:"zone,omitempty"`
	SubZone string `json:"sub_zone,omitempty"`
}

// At returns the overlay that is put at a time, without a name and an author.
func (r *NewOverlay) At(now time.Time) (*resource.Overlay, error) {
	o := &resource.Overlay{
		Kind: r.Kind, Endpoint: r.Endpoint, Locality: (*resource.LocalityPattern)(r.Locality), Category: r.Category, Reason: r.Reason,
		Created: now.UTC().Truncate(time.Millisecond),
	}
	for _, check := range []func(*resource.Overlay) error{r.fields, r.subject, r.values, r.texts, r.expiry} {
		if err := check(o); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func invalid(field, format string, args ...any) error {
	return fault.Errorf(fault.InvalidArgument, "%s: %s", field, fmt.Sprintf(format, args...))
}

// fields checks that there are the fields of the kind, and no others.
func (r *NewOverlay) fields(*resource.Overlay) error {
	subject := r.Endpoint != "" || r.Locality != nil
	var has, wants map[string]bool
	has = map[string]bool{
		"endpoint or locality": subject, "factor": r.Factor != nil, "priority": r.Priority != nil,
		"category": r.Category != "", "percent": r.Percent != nil, "max_requests": r.MaxRequests != nil,
	}
	switch r.Kind {
	case resource.OverlayDrain, resource.OverlayDisable:
		wants = map[string]bool{"endpoint or locality": true}
	case resource.OverlayWeight:
		wants = map[string]bool{"endpoint or locality": true, "factor": true}
	case resource.OverlayForcePriority, resource.OverlayForbidPriority:
		wants = map[string]bool{"priority": true}
	case resource.OverlayDrop:
		wants = map[string]bool{"percent": true, "category": r.Category != ""}
	case resource.OverlayMaxRequests:
		wants = map[string]bool{"max_requests": true}
	case resource.OverlayHoldEjections:
	case "":
		return invalid("kind", "is missing; it is one of %v", resource.OverlayKinds)
	default:
		return invalid("kind", "%q is none of %v", fault.Clip(string(r.Kind)), resource.OverlayKinds)
	}
	for _, field := range []string{"endpoint or locality", "factor", "priority", "category", "percent", "max_requests"} {
		switch {
		case wants[field] && !has[field]:
			return invalid(field, "is missing; %s needs it", r.Kind)
		case has[field] && !wants[field]:
			return invalid(field, "%s does not have it", r.Kind)
		}
	}
	return nil
}

func (r *NewOverlay) subject(*resource.Overlay) error {
	if r.Endpoint != "" && r.Locality != nil {
		return invalid("locality", "an overlay is of an endpoint or of a locality, not of both")
	}
	if l := r.Locality; l != nil && *l == (LocalityPattern{}) {
		return invalid("locality", "names nothing: it needs region, zone or sub_zone")
	}
	if host, port, err := net.SplitHostPort(r.Endpoint); err == nil && (host == "" || port == "") {
		return invalid("endpoint", "%q is neither an address, such as 10.0.0.7:8080, nor a hostname", fault.Clip(r.Endpoint))
	}
	return nil
}

// values checks numbers, and sets them.
func (r *NewOverlay) values(o *resource.Overlay) error {
	if r.Factor != nil {
		if o.Factor = *r.Factor; !(o.Factor == 0 || o.Factor >= 0.001 && o.Factor <= MaxFactor) {
			return invalid("factor", "%v is not 0 or a number from 0.001 to %d", o.Factor, MaxFactor)
		}
		o.Factor = math.Abs(o.Factor) // -0 is 0
	}
	if r.Priority != nil {
		if *r.Priority < 0 || *r.Priority > MaxPriority {
			return invalid("priority", "%d is not from 0 to %d", *r.Priority, MaxPriority)
		}
		o.Priority = uint32(*r.Priority)
	}
	if r.Kind == resource.OverlayForcePriority && o.Priority == 0 {
		return invalid("priority", "0 is in use before all others anyway: remove what takes it out of use")
	}
	if r.Percent != nil {
		if !(*r.Percent >= 0 && *r.Percent <= 100) {
			return invalid("percent", "%v is not from 0 to 100", *r.Percent)
		}
		if o.PerMillion = uint64(math.Round(*r.Percent * perPercent)); o.PerMillion == 0 && *r.Percent > 0 {
			return invalid("percent", "%v is less than %v, and not 0", *r.Percent, 1.0/perPercent)
		}
	}
	if r.MaxRequests != nil {
		if *r.MaxRequests < 0 || *r.MaxRequests > math.MaxUint32 {
			return invalid("max_requests", "%d is not from 0 to %d", *r.MaxRequests, uint32(math.MaxUint32))
		}
		o.MaxRequests = uint32(*r.MaxRequests)
	}
	return nil
}

func (r *NewOverlay) texts(*resource.Overlay) error {
	texts := map[string]string{"endpoint": r.Endpoint, "category": r.Category}
	if l := r.Locality; l != nil {
		texts["locality"] = l.Region + l.Zone + l.SubZone
	}
	for field, text := range texts {
		if len(text) > MaxText {
			return invalid(field, "has %d bytes; at most %d are allowed", len(text), MaxText)
		}
	}
	if len(r.Reason) > MaxReason {
		return invalid("reason", "has %d bytes; at most %d are allowed", len(r.Reason), MaxReason)
	}
	texts["reason"] = r.Reason
	for field, text := range texts {
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return invalid(field, "has a character that cannot be printed")
		}
	}
	return nil
}

// expiry sets when the overlay expires.
func (r *NewOverlay) expiry(o *resource.Overlay) error {
	drains := Drains(o)
	most := MaxExpiry
	if drains {
		most = maxDrainExpiry
	}
	switch {
	case r.Expires == "never", r.Expires == "" && drains:
		return nil
	case r.Expires == "":
		o.Expires = o.Created.Add(DefaultExpiry)
		return nil
	}
	after, err := time.ParseDuration(r.Expires)
	if err != nil {
		at, timeErr := time.Parse(time.RFC3339, r.Expires)
		if timeErr != nil {
			return invalid("expires", "%q is neither a duration, such as 1h, nor a time in RFC 3339, nor never", fault.Clip(r.Expires))
		}
		after = at.Sub(o.Created)
	}
	switch {
	case after <= 0:
		return invalid("expires", "%q is in the past", fault.Clip(r.Expires))
	case after < minExpiry:
		return invalid("expires", "%v is less than %v", after, minExpiry)
	case after > most:
		return invalid("expires", "%q is more than %v from now; never is allowed", fault.Clip(r.Expires), most)
	}
	o.Expires = o.Created.Add(after)
	return nil
}

// Says returns what an overlay does, why and until when, for events and the history.
func Says(o *resource.Overlay) string {
	out := overlay.Describe(o)
	if !o.Expires.IsZero() {
		out += " until " + o.Expires.Format(time.RFC3339)
	}
	if o.Reason != "" {
		out += ": " + o.Reason
	}
	return out
}
