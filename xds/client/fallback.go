package client

import (
	"time"
)

// use goes on to the next server, and asks it for everything.
func (a *authority) use(place int) {
	s := a.client.serverFor(a.configs[place])
	a.servers = append(a.servers, s)
	s.authorities[a] = struct{}{}
	for _, watches := range a.watches {
		for _, w := range watches {
			s.subscribe(w.key)
		}
	}
	a.listen()
}

// release lets go of the servers from a place on.
func (a *authority) release(place int) {
	for _, s := range a.servers[place:] {
		for _, watches := range a.watches {
			for _, w := range watches {
				s.unsubscribe(w.key)
			}
		}
		delete(s.authorities, a)
		if len(s.authorities) == 0 {
			a.client.letGo(s)
		}
	}
	a.servers = a.servers[:place]
	a.listen()
}

// fallBack goes on to the next server while the one in use cannot be reached and
// something is missing (gRFC A71).
func (a *authority) fallBack() {
	for a.requested > 0 && a.current().failed != nil && a.active()+1 < len(a.configs) {
		from := a.current()
		a.use(a.active() + 1)
		a.client.tell(FellBack{Authority: a.name, From: from.config.URI, To: a.current().config.URI, Err: from.failed})
	}
}

// returnTo takes a server that answers again, before the one in use.
func (a *authority) returnTo(place int) {
	from := a.current()
	a.release(place + 1)
	s := a.current()
	a.client.tell(Returned{Authority: a.name, From: from.config.URI, To: s.config.URI})
}

// fail takes notice that one of its servers cannot be reached.
func (a *authority) fail() {
	a.fallBack()
	for _, watches := range a.watches {
		for _, w := range watches {
			a.tellUnreachable(w)
		}
	}
}

// tellUnreachable tells that the server in use, the last that there is to try, cannot
// be reached; once, and not of what another error was told.
func (a *authority) tellUnreachable(w *watch) {
	if s := a.current(); s.failed != nil && w.err == nil {
		a.tell(w, &UnreachableError{Server: s.config.URI, Err: s.failed}, w.good())
	}
}

// reach takes notice that a server speaks: what was told to be out of date is not.
func (a *authority) reach() {
	for _, watches := range a.watches {
		for _, w := range watches {
			if _, ok := w.err.(*UnreachableError); ok && w.good() { //nolint:errorlint // it is never wrapped
				a.tell(w, nil, false)
			}
		}
	}
}

// listen brings heard, and what Status says of the servers, up to date.
func (a *authority) listen() {
	heard := false
	for i := range a.configs {
		known := &a.spoke[i]
		speaks := i < len(a.servers) && a.servers[i].speaks()
		if speaks != known.connected {
			known.connected, known.since = speaks, time.Now()
		}
		heard = heard || speaks
	}
	a.heard.Store(heard)
	if s := a.current(); s != nil {
		a.using.Store(&s.config)
	}
}

// stumble remembers how a server's last stream ended.
func (a *authority) stumble(s *server, err error, at time.Time) {
	for i, o := range a.servers {
		if o == s {
			known := &a.spoke[i]
			known.err, known.errAt = err, at
			if known.since.IsZero() {
				known.since = at
			}
		}
	}
}

func (a *authority) appendServers(list []ServerStatus) []ServerStatus {
	for i, s := range a.configs {
		list = append(list, ServerStatus{
			URI:         s.URI,
			Authority:   a.name,
			Connected:   a.spoke[i].connected,
			Active:      i == a.active(),
			Since:       a.spoke[i].since,
			LastError:   a.spoke[i].err,
			LastErrorAt: a.spoke[i].errAt,
		})
	}
	return list
}
