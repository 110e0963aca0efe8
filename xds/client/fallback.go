package client

import "slices"

// useNext makes the next server the active one, and requests everything from it that the
// target wants.
func (a *authority) useNext() {
	ch := a.pool.get(a.key.config.servers[a.active()+1])
	a.channels = append(a.channels, ch)
	ch.users[a] = struct{}{}
	for _, w := range a.watchers {
		ch.addWatcher(w.key, w)
	}
	for _, w := range a.watchers {
		a.applyCached(w)
	}
	a.connectedChanged()
}

func (a *authority) releaseFrom(index int) {
	for _, ch := range a.channels[index:] {
		for _, w := range a.watchers {
			ch.removeWatcher(w.key, w)
		}
		delete(ch.users, a)
		if len(ch.users) == 0 {
			delete(a.pool.channels, ch.server.Key())
			ch.close()
		}
	}
	a.channels = a.channels[:index]
	a.connectedChanged()
}

// fallBack uses the next server while the active one is unreachable and a resource is not
// cached (gRFC A71).
func (a *authority) fallBack() {
	for a.unknown > 0 && a.current().failed != nil && a.active()+1 < len(a.key.config.servers) {
		from := a.current()
		a.useNext()
		a.moves.add(a.key, from, a.current())
	}
	if a.current().connected() {
		a.channelAnswered()
	}
}

func (a *authority) returnTo(index int) {
	from := a.current()
	a.releaseFrom(index + 1)
	for _, w := range a.watchers {
		a.applyCached(w)
	}
	a.moves.add(a.key, from, a.current())
	if a.current().connected() {
		a.channelAnswered()
	}
}

func (a *authority) channelFailed() {
	a.fallBack()
	for _, w := range a.watchers {
		a.notifyUnreachable(w)
	}
}

// notifyUnreachable reports that the active server, the last one that can be tried, is
// unreachable: once, and not for a resource with another error.
func (a *authority) notifyUnreachable(w *watcher) {
	if ch := a.current(); ch.failed != nil && w.err == nil {
		a.notify(w, &ResourceError{Kind: ErrorUnreachable, Key: w.key, Server: ch.server.URI, Err: ch.failed}, w.hasValue(), a.active())
	}
}

// channelAnswered clears ErrorUnreachable of cached values.
func (a *authority) channelAnswered() {
	for _, w := range a.watchers {
		if w.err != nil && w.err.Kind == ErrorUnreachable && w.hasValue() {
			a.notify(w, nil, false, w.index)
		}
	}
}

// connectedChanged updates what other goroutines may read.
func (a *authority) connectedChanged() {
	a.connected.Store(slices.ContainsFunc(a.channels, (*xdsChannel).connected))
	if ch := a.current(); ch != nil {
		a.using.Store(ch.server)
	}
}
