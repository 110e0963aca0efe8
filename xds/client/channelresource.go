package client

import (
	"bytes"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// resource returns the state of a resource; nil if it has no watchers.
func (ch *xdsChannel) resource(k resource.Key) *resourceState { return ch.resources[k.Type][k.Name] }

// confirmed reports whether the state of a resource is from the current stream.
func (ch *xdsChannel) confirmed(r *resourceState) bool {
	return r.stream != nil && r.stream == ch.stream
}

// addWatcher subscribes to a resource, unless it has watchers.
func (ch *xdsChannel) addWatcher(k resource.Key, w resourceWatcher) {
	if r := ch.resource(k); r != nil {
		r.watchers[w] = struct{}{}
		return
	}
	if ch.resources[k.Type] == nil {
		ch.resources[k.Type] = map[string]*resourceState{}
	}
	ch.resources[k.Type][k.Name] = &resourceState{server: ch.server, key: k, watchers: map[resourceWatcher]struct{}{w: {}}}
	ch.subscribe(k)
}

// removeWatcher removes a watcher, and unsubscribes after the last one.
func (ch *xdsChannel) removeWatcher(k resource.Key, w resourceWatcher) {
	r := ch.resource(k)
	delete(r.watchers, w)
	if len(r.watchers) > 0 {
		return
	}
	ch.cache.set(r, resource.Item{})
	delete(ch.resources[k.Type], k.Name)
	ch.subscriptions[k.Type].unsubscribe(k.Name)
}

// restartTimeout starts the timeout again for a resource whose only state is an error of
// an earlier stream.
func (ch *xdsChannel) restartTimeout(r *resourceState) {
	t := ch.subscriptions[r.key.Type]
	sub := t.names[r.key.Name]
	switch {
	case sub.stage == notRequested || sub.stage == requested: // the timeout has not expired
	case ch.stream == nil || !sub.named:
		sub.stage = notRequested
	default:
		sub.stage = requested
		ch.startTimeout(ch.stream, t, []*subscription{sub})
	}
}

// updateResources applies a response, and sends its events before its updates are delivered.
func (ch *xdsChannel) updateResources(m *response, now time.Time) {
	var errs responseErrors
	defer func() { errs.publish(ch.events, ch.server.URI, m.version) }()
	resources := ch.resources[m.kind]
	for i := range m.resources {
		got := &m.resources[i]
		r := resources[got.item.Key.Name]
		switch {
		case r == nil: // not requested
		case got.err != nil:
			ch.reject(r, m, got.err, now, &errs)
		default:
			ch.accept(r, m, got.item, now)
		}
	}
	for _, e := range m.errors {
		if r := resources[e.Key.Name]; r != nil {
			e.Server = ch.server.URI
			ch.setReportedError(r, &e, now, &errs)
		}
	}
	if !m.complete() {
		return
	}
	names := ch.subscriptions[m.kind].names
	for name, r := range resources {
		// The response may be older than the request for a name.
		if _, sent := m.index[name]; !sent && names[name].named && !names[name].late {
			ch.setAbsent(r, now, &errs)
		}
	}
}

func (ch *xdsChannel) accept(r *resourceState, m *response, item resource.Item, now time.Time) {
	same := r.hasValue() && bytes.Equal(r.item.Raw, item.Raw)
	result := UpdateUnchanged
	if !same || r.rejection != nil {
		result = UpdateValid
	}
	ch.count(m.kind, result)
	if !same {
		ch.cache.set(r, item)
		r.updated = now
	}
	r.stream, r.version = ch.stream, m.version
	r.rejection, r.reason, r.err = nil, nil, nil
	r.notifyWatchers()
}

func (ch *xdsChannel) reject(r *resourceState, m *response, err error, now time.Time, errs *responseErrors) {
	ch.count(m.kind, UpdateInvalid)
	repeated := r.rejection != nil && r.rejection.Err.Error() == err.Error()
	r.stream, r.err = ch.stream, nil
	r.rejection = &Rejection{Version: m.version, Err: err, At: now}
	if !repeated {
		r.reason = &ResourceError{Kind: ErrorRejected, Key: r.key, Server: ch.server.URI, Err: err}
		errs.rejected = append(errs.rejected, keyedError{r.key, err})
	}
	if ch.server.FailOnDataErrors && r.hasValue() {
		ch.cache.set(r, resource.Item{})
		r.version, r.updated = "", now
	}
	r.notifyWatchers()
}

func (ch *xdsChannel) setReportedError(r *resourceState, err *ResourceError, now time.Time, errs *responseErrors) {
	if r.err != nil && r.err.Error() == err.Error() {
		r.stream = ch.stream
		r.notifyWatchers()
		return
	}
	ch.setError(r, err, now, errs)
}

// setError takes a data error, or an error that the server reports. A name that never
// existed causes no event: a client of lbd can request any name.
func (ch *xdsChannel) setError(r *resourceState, err *ResourceError, now time.Time, errs *responseErrors) {
	neverExisted := err.NotFound() && !r.hasValue()
	if !r.hasValue() || ch.server.FailOnDataErrors && err.isDataError() {
		ch.dropValue(r, err, now)
	} else {
		r.stream, r.rejection, r.reason, r.err = ch.stream, nil, nil, err
	}
	if !neverExisted {
		errs.failed = append(errs.failed, keyedError{r.key, err})
		if r.hasValue() {
			errs.cached++
		}
	}
	r.notifyWatchers()
}

// setAbsent handles a response without a resource. An error that the server reported
// stays the reason: the server reports it only once.
func (ch *xdsChannel) setAbsent(r *resourceState, now time.Time, errs *responseErrors) {
	if r.hasValue() {
		if r.err == nil {
			ch.setError(r, &ResourceError{Kind: ErrorDeleted, Key: r.key, Server: ch.server.URI}, now, errs)
		}
		return
	}
	if r.rejection != nil || r.decisive() && r.settled() {
		return
	}
	// The server never sent it. Watchers with another server's value need not wait for
	// the timeout.
	if r.absent == nil {
		r.absent = &ResourceError{Kind: ErrorDeleted, Key: r.key, Server: ch.server.URI}
	}
	absent := &resourceState{server: ch.server, key: r.key, err: r.absent, absent: r.absent, updated: now}
	for w := range r.watchers {
		w.resourceAbsent(absent)
	}
}

// resourceTimeout handles the timeout of a resource; silent is true if the server has
// sent nothing at all.
func (ch *xdsChannel) resourceTimeout(r *resourceState, silent bool, now time.Time) {
	if r == nil || r.hasValue() {
		return
	}
	err := &ResourceError{Kind: ErrorExpired, Key: r.key, Server: ch.server.URI}
	switch {
	case ch.server.ResourceTimerIsTransientError:
		err.Kind = ErrorTimeout
	case silent:
		err.Kind = ErrorSilent
	}
	if r.rejection != nil || r.err != nil && r.err.Error() == err.Error() {
		r.stream = ch.stream // a rejection on an earlier stream stays
	} else {
		ch.dropValue(r, err, now)
	}
	r.notifyWatchers()
}

func (ch *xdsChannel) dropValue(r *resourceState, err *ResourceError, now time.Time) {
	ch.cache.set(r, resource.Item{})
	r.stream, r.version, r.updated = ch.stream, "", now
	r.rejection, r.reason, r.err = nil, nil, err
}

// confirmResources confirms the values of earlier streams that the server did not send
// again, as it need not.
func (ch *xdsChannel) confirmResources(st *adsStream) {
	if ch.stream != st {
		return
	}
	for _, resources := range ch.resources {
		for _, r := range resources {
			if r.hasValue() && r.stream != st {
				r.stream = st
				r.notifyWatchers()
			}
		}
	}
}
