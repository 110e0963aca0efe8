package client

import (
	"cmp"
	"slices"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Event is something that happened between the client and its servers. Servers are
// named by their URIs.
type Event interface{ event() }

// Connected is a server's first response on a new stream. A server that need not
// respond, because it sent all requested resources on an earlier stream, counts as
// connected after 15 s.
type Connected struct {
	Server string
}

// Disconnected is the end of a stream, or of an attempt to open one.
type Disconnected struct {
	Server string
	// Answered is true if the server had responded on the stream.
	Answered bool
	Err      error
}

// Rejected reports the resources of one response that were rejected (NACK). A resource
// whose last version was rejected for the same reason is not reported again.
type Rejected struct {
	Server  string
	Version string
	Resources
	Err error // why the first of Keys was rejected
}

// DataError reports the resources that a server deleted in one response, or for which
// it reported new errors (gRFC A88). A resource that the server never sent, and that
// does not exist, is not reported.
type DataError struct {
	Server string
	Resources
	Err error // a *ResourceError: that of the first of Keys
	// Cached is the number of resources whose last good version stays in use.
	Cached int
}

// Resources are the resources of an event. They have the same type.
type Resources struct {
	Count int
	// Keys are the first maxEventKeys by name.
	Keys []resource.Key
}

const maxEventKeys = 10

// FellBack reports that targets use the next server of an authority (gRFC A71).
// Targets that fall back for the same reason at the same time share the event.
type FellBack struct {
	Targets   []string
	Authority string // "" for names without one
	From, To  string
	Err       error // why From is unreachable
}

// Returned reports that targets use a preferred server of an authority again, and no
// longer those after it.
type Returned struct {
	Targets   []string
	Authority string
	From, To  string
}

func (Connected) event()    {}
func (Disconnected) event() {}
func (Rejected) event()     {}
func (FellBack) event()     {}
func (Returned) event()     {}
func (DataError) event()    {}

// responseErrors collects the resources of one response that get a new error, so that a
// response causes at most one event of each type, however many resources it has.
type responseErrors struct {
	rejected, failed []keyedError
	cached           int // see DataError.Cached
}

type keyedError struct {
	key resource.Key
	err error
}

func (e *responseErrors) publish(events func(Event), server, version string) {
	if len(e.rejected) > 0 {
		resources, err := firstResources(e.rejected)
		events(Rejected{Server: server, Version: version, Resources: resources, Err: err})
	}
	if len(e.failed) > 0 {
		resources, err := firstResources(e.failed)
		events(DataError{Server: server, Resources: resources, Err: err, Cached: e.cached})
	}
}

// firstResources returns the resources of an event, and the error of the first one.
func firstResources(list []keyedError) (Resources, error) {
	slices.SortFunc(list, func(x, y keyedError) int { return cmp.Compare(x.key.Name, y.key.Name) })
	r := Resources{Count: len(list)}
	for _, e := range list[:min(len(list), maxEventKeys)] {
		r.Keys = append(r.Keys, e.key)
	}
	return r, list[0].err
}
