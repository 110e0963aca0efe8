package ledger

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Ambient are the resources of a target, or of one cluster of it, that are in use in
// spite of an error (gRFC A88). They are never changed. nil is none.
type Ambient struct {
	errors []resolver.AmbientError
	note   func() string
}

func newAmbient(errors []resolver.AmbientError) *Ambient {
	if len(errors) == 0 {
		return nil
	}
	return &Ambient{errors: errors, note: sync.OnceValue(func() string { return resolutionNote(errors) })}
}

// Errors returns the errors. They are not to be changed.
func (a *Ambient) Errors() []resolver.AmbientError {
	if a == nil {
		return nil
	}
	return a.errors
}

// AppendNote returns the detail of a failed pick with the resolution note of gRFC
// A88, if there is one.
func (a *Ambient) AppendNote(detail string) string {
	if a == nil {
		return detail
	}
	return detail + a.note()
}

// Has reports whether a resource is among them.
func (a *Ambient) Has(key resource.Key) bool {
	return a != nil && slices.ContainsFunc(a.errors, func(e resolver.AmbientError) bool { return e.Key == key })
}

// maxNoted is how many resources, and how many different errors, a resolution note
// names.
const maxNoted = 3

// resolutionNote lists errors by their texts, each with the resources that it
// concerns.
func resolutionNote(errors []resolver.AmbientError) string {
	resources := make(map[string][]string)
	var texts []string
	for _, e := range errors {
		why := e.Err.Error()
		if resources[why] == nil {
			texts = append(texts, why)
		}
		resources[why] = append(resources[why], e.Key.String())
	}
	notes := make([]string, 0, maxNoted+1)
	for i, why := range texts {
		if i == maxNoted {
			notes = append(notes, fmt.Sprintf("and %d more errors", len(texts)-i))
			break
		}
		names, more := resources[why], ""
		if n := len(names); n > maxNoted {
			names, more = names[:maxNoted], fmt.Sprintf(" and %d more", n-maxNoted)
		}
		notes = append(notes, fmt.Sprintf("using the cached %s%s: %s", strings.Join(names, ", "), more, why))
	}
	return " (resolution note: " + strings.Join(notes, "; ") + ")"
}
