package client

// use makes the next server the active one, and asks it for everything that the
// target wants.
func (a *authority) use(place int) {
	s := a.client.serverFor(a.key.config.servers[place])
	a.servers = append(a.servers, s)
	s.authorities[a] = struct{}{}
	for _, w := range a.watches {
		s.addWatch(w)
	}
	for _, w := range a.watches {
		a.adopt(w)
	}
	a.refresh()
}

// release stops using the servers from a place on.
func (a *authority) release(place int) {
	for _, s := range a.servers[place:] {
		for _, w := range a.watches {
			s.removeWatch(w)
		}
		delete(s.authorities, a)
		if len(s.authorities) == 0 {
			a.client.letGo(s)
		}
	}
	a.servers = a.servers[:place]
	a.refresh()
}

// fallBack goes on to the next server while the active one cannot be reached and a
// resource is not cached (gRFC A71). Only the watches of this target count.
func (a *authority) fallBack() {
	for a.requested > 0 && a.current().failed != nil && a.active()+1 < len(a.key.config.servers) {
		from := a.current()
		a.use(a.active() + 1)
		a.client.moved(a, from, a.current())
	}
	if a.current().speaks() {
		a.reach()
	}
}

// returnTo makes a more preferred server the active one again.
func (a *authority) returnTo(place int) {
	from := a.current()
	a.release(place + 1)
	for _, w := range a.watches {
		a.adopt(w)
	}
	a.client.moved(a, from, a.current())
	if a.current().speaks() {
		a.reach()
	}
}

// fail takes notice that one of the servers cannot be reached.
func (a *authority) fail() {
	a.fallBack()
	for _, w := range a.watches {
		a.notifyUnreachable(w)
	}
}

// notifyUnreachable reports that the active server, the last one that can be tried,
// cannot be reached; once, and not for a resource with another error.
func (a *authority) notifyUnreachable(w *watch) {
	if s := a.current(); s.failed != nil && w.err == nil {
		a.notify(w, &UnreachableError{Server: s.config.URI, Err: s.failed}, w.good(), a.active())
	}
}

// reach takes notice that a server answers: cached values are up to date again.
func (a *authority) reach() {
	for _, w := range a.watches {
		if _, ok := w.err.(*UnreachableError); ok && w.good() { //nolint:errorlint // it is never wrapped
			a.notify(w, nil, false, w.place)
		}
	}
}

// refresh updates what other goroutines may read.
func (a *authority) refresh() {
	connected := false
	for _, s := range a.servers {
		connected = connected || s.speaks()
	}
	a.connected.Store(connected)
	if s := a.current(); s != nil {
		a.using.Store(&s.config)
	}
}
