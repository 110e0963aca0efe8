package client

import (
	"time"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

// resourceState is what a server sent last for one resource, and the watchers of the
// resource. All targets that use the server share it: a value is decoded, compared and
// counted once, and a later watcher gets it at once, since the server does not send it
// again on the stream. Owner only.
type resourceState struct {
	// fixed
	server *bootstrap.Server
	key    resource.Key // with the canonical name

	watchers map[resourceWatcher]struct{}

	// stream is the stream on which the server sent, or confirmed, the fields below.
	stream *adsStream
	// item is the last good value, and hash the hash of its Raw. resourceCache.set sets both.
	item    resource.Item
	hash    uint64
	version string    // of item
	updated time.Time // time of the last change of item, or of err
	// rejection, and reason for watchers, are those of the last version; nil if it was valid.
	rejection *Rejection
	reason    *ResourceError
	// err is why there is no value, or why the server no longer confirms it. It is nil
	// before the first response and timeout, and after a value or a rejection.
	err *ResourceError
	// absent is set if a response came without the resource before the timeout.
	absent *ResourceError
}

// resourceWatcher is a watcher of a resource. The owner calls it.
type resourceWatcher interface {
	// resourceChanged handles a new state, or its confirmation on a new stream.
	resourceChanged(r *resourceState)
	// resourceAbsent handles a response without a resource that the server never
	// sent. The server may still send it before the timeout.
	resourceAbsent(r *resourceState)
}

// hasValue reports whether the server provided a value that is still valid.
func (r *resourceState) hasValue() bool { return r.item.Raw != nil }

// settled reports whether the server sent anything for the resource, or timed out.
func (r *resourceState) settled() bool { return r.hasValue() || r.rejection != nil || r.err != nil }

// decisive reports whether targets return to the server from a less preferred one: it
// sent a usable value, or withdrew the resource.
func (r *resourceState) decisive() bool {
	if r.err != nil {
		return r.err.isDataError() && !r.err.isTimeout()
	}
	return r.rejection == nil
}

// neverSent reports whether the server did not send the resource, and nothing else is known.
func (r *resourceState) neverSent() bool {
	return r.err != nil && (r.err == r.absent || r.err.isTimeout())
}

func (r *resourceState) notifyWatchers() {
	for w := range r.watchers {
		w.resourceChanged(r)
	}
}
