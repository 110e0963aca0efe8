package client

// serverMoves collects the targets that change their server in one step, so that targets
// with the same change share an event. Owner only.
type serverMoves struct {
	events func(Event)
	moves  []*serverMove
}

type serverMove struct {
	authority *authorityConfig
	from, to  *xdsChannel
	targets   []string
}

func (m *serverMoves) add(key authorityKey, from, to *xdsChannel) {
	for _, move := range m.moves {
		if move.authority == key.config && move.from == from && move.to == to {
			move.targets = append(move.targets, key.target)
			return
		}
	}
	m.moves = append(m.moves, &serverMove{authority: key.config, from: from, to: to, targets: []string{key.target}})
}

func (m *serverMoves) publish() {
	for _, move := range m.moves {
		from, to := move.from.server, move.to.server
		if move.authority.indexOf(to) < move.authority.indexOf(from) {
			m.events(Returned{Targets: move.targets, Authority: move.authority.name, From: from.URI, To: to.URI})
		} else {
			m.events(FellBack{Targets: move.targets, Authority: move.authority.name, From: from.URI, To: to.URI, Err: move.from.failed})
		}
	}
	m.moves = nil
}
