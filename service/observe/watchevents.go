package observe

import (
	"slices"
	"strconv"
)

// MaxLastEvents is how many past events a watch may begin with.
const MaxLastEvents = 1000

const (
	// pageOfEvents is how many events a watcher is handed at a time.
	pageOfEvents = 64
	// maxKeptJSON is how large an event's JSON may be to be kept with the event.
	maxKeptJSON = 16 << 10
)

// WatchEvents watches the events that f chooses, the oldest first: those after
// the ID lastID, where there is one, else the last f.Limit and what happens from
// now on. A message "event" has one [Event]. A message "resync" without data
// tells that events after lastID, which f may have chosen, are forgotten, or are
// another process's. It fails with RateLimited and ShuttingDown.
func (ws *Watches) WatchEvents(f EventFilter, lastID string) (*Watch, error) {
	return ws.admit(func() (reader, *sharedFeed, error) {
		es := ws.state.options.Events
		es.mu.Lock()
		defer es.mu.Unlock()
		r := &eventReader{events: es, filter: f, at: es.last}
		switch {
		case lastID != "":
			r.at, _ = strconv.ParseUint(lastID, 10, 64) // what is no number is nobody's
		case f.Limit > 0:
			r.page = es.since(0, f)
			r.page = r.page[max(0, len(r.page)-f.Limit):]
		}
		return r, nil, nil
	})
}

// eventReader is how far a watcher of events is.
type eventReader struct {
	events *Events
	filter EventFilter
	at     uint64        // the last event that was chosen from
	page   []*remembered // to be told next
}

func (r *eventReader) next() (*Message, <-chan struct{}) {
	if len(r.page) == 0 {
		if forgotten, more := r.turn(); forgotten {
			return &Message{Type: "resync", ID: strconv.FormatUint(r.at, 10), Data: whole([]byte("{}"))}, nil
		} else if more != nil {
			return nil, more
		}
	}
	e := r.page[0]
	r.page = r.page[1:]
	return &Message{Type: "event", ID: strconv.FormatUint(e.ID, 10), Data: whole(e.encoded())}, nil
}

// turn takes the next page. Without one it returns what is closed when there may
// be; or that what should be on it is forgotten, and goes on with what comes.
func (r *eventReader) turn() (forgotten bool, more <-chan struct{}) {
	es := r.events
	more = es.added.Wait()
	es.mu.Lock()
	defer es.mu.Unlock()
	if es.forgot(r.at, r.filter) {
		r.at = es.last
		return true, nil
	}
	r.page, r.at = es.since(r.at, r.filter), es.last
	if len(r.page) > pageOfEvents {
		r.page = slices.Clone(r.page[:pageOfEvents])
		r.at = r.page[pageOfEvents-1].ID
	}
	if len(r.page) > 0 {
		return false, nil
	}
	return false, more
}

// forgot reports whether an event after an ID that f may choose is not
// remembered, or the ID is another process's. It is called under es.mu.
func (es *Events) forgot(id uint64, f EventFilter) bool {
	if id < es.before || id > es.last {
		return true
	}
	return slices.ContainsFunc(es.rings(f), func(r *ring) bool { return r.forgotten > id })
}

// encoded is the event in JSON. Those who watch it happen share it.
func (e *remembered) encoded() []byte {
	if b := e.json.Load(); b != nil {
		return *b
	}
	b := encode(e.Event)
	if len(b) <= maxKeptJSON {
		e.json.Store(&b)
	}
	return b
}
