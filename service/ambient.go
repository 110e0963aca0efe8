package service

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// AmbientError is a resource of a management server that is in use in spite of an
// error (gRFC A88): the last good version serves.
type AmbientError struct {
	Resource string `json:"resource" example:"Cluster/cart"`
	// Error is what is wrong: the server deleted the resource, reports an error for
	// it, sent an invalid version of it, or cannot be reached.
	Error string `json:"error"`
	// Since is when the error was first reported.
	Since time.Time `json:"since"`
}

// ambientErrors are those of a target, or of one cluster of it. They are never
// changed. nil is none.
type ambientErrors struct {
	errors []resolver.AmbientError
	note   func() string
}

func newAmbientErrors(errors []resolver.AmbientError) *ambientErrors {
	if len(errors) == 0 {
		return nil
	}
	return &ambientErrors{errors: errors, note: sync.OnceValue(func() string { return resolutionNote(errors) })}
}

func (a *ambientErrors) list() []AmbientError {
	if a == nil {
		return nil
	}
	out := make([]AmbientError, len(a.errors))
	for i, e := range a.errors {
		out[i] = AmbientError{Resource: e.Key.String(), Error: text(e.Err), Since: e.Since.UTC()}
	}
	return out
}

// appendNote returns the detail of a failed pick with the resolution note of gRFC
// A88, if there is one.
func (a *ambientErrors) appendNote(detail string) string {
	if a == nil {
		return detail
	}
	return detail + a.note()
}

func (a *ambientErrors) has(key resource.Key) bool {
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
		why := text(e.Err)
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
		names, verb, more := resources[why], "is", ""
		if len(names) > 1 {
			verb = "are"
		}
		if n := len(names); n > maxNoted {
			names, more = names[:maxNoted], fmt.Sprintf(" and %d more", n-maxNoted)
		}
		notes = append(notes, fmt.Sprintf("%s%s %s kept in spite of an error: %s", strings.Join(names, ", "), more, verb, why))
	}
	return " (resolution note: " + strings.Join(notes, "; ") + ")"
}

// followAmbientErrors updates the ambient errors of the targets whose config or
// ambient errors changed. Trees and pickers stay as they are. It is called under
// s.resolving, once the targets have their newest configs.
func (s *Service) followAmbientErrors(changes []resolver.Change) {
	targets := s.resolver.AmbientChanges()
	for _, c := range changes {
		targets = append(targets, c.Target)
	}
	h := s.targets.current.Load()
	for _, name := range targets {
		if t := h.named(name); t != nil {
			t.setAmbient(s.resolver.AmbientErrors(name))
		}
	}
}

// setAmbient must not be called for one target twice at once.
func (t *target) setAmbient(is resolver.AmbientErrors) {
	if len(is.All) == 0 && t.ambient.Load() == nil {
		return // as nearly always
	}
	t.ambient.Store(newAmbientErrors(is.All))
	for cluster, m := range t.newest.Load().members {
		m.ambient.Store(newAmbientErrors(slices.Concat(is.Routing, is.Clusters[cluster])))
	}
}

// cachedState is the state of a resource with an error of which the version from
// before the daemon's start is in use. The client has none, and takes it for lost.
func (h *hosted) cachedState(r client.ResourceStatus) client.State {
	cached, ok := cachedStates[r.State]
	if !ok {
		return r.State
	}
	if t := h.named(r.Target); t == nil || !t.ambient.Load().has(r.Key) {
		return r.State
	}
	return cached
}

var cachedStates = map[client.State]client.State{
	client.Nacked:        client.NackedButCached,
	client.DoesNotExist:  client.DoesNotExistButCached,
	client.ReceivedError: client.ReceivedErrorButCached,
}
