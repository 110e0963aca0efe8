package observe

import (
	"slices"
	"strconv"
)

// MaxLastEvents is the maximum number of past events that a watch begins with.
const MaxLastEvents = 1000

const (
	// pageOfEvents is how many events a watcher reads at a time.
	pageOfEvents = 64
	// maxKeptJSON is the maximum size of JSON that is cached with its event.
	maxKeptJSON = 16 << 10
)

// WatchEvents watches the events that f selects, the oldest first: those after lastID or,
// if that is empty, the last f.Limit and all later ones. A message "event" has one
// [Event]. A message "resync" without data means that events after lastID were evicted,
// or that lastID is of another process. It fails with RateLimited and ShuttingDown.
func (ws *Watches) WatchEvents(f EventFilter, lastID string) (*Watch, error) {
	return ws.admit(func() (reader, *sharedFeed, error) {
		es := ws.state.options.Events
		es.mu.Lock()
		defer es.mu.Unlock()
		r := &eventReader{events: es, filter: f, at: es.last}
		switch {
		case lastID != "":
			r.at, _ = strconv.ParseUint(lastID, 10, 64) // an ID that is not a number is unknown
		case f.Limit > 0:
			r.page = es.since(0, f)
			r.page = r.page[max(0, len(r.page)-f.Limit):]
		}
		return r, nil, nil
	})
}

// eventReader is the position of a watcher of events.
type eventReader struct {
	events *Events
	filter EventFilter
	at     uint64        // the last event that was read
	page   []*remembered // to be sent next
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

// turn reads the next page. If there is none, it returns a channel that is closed when
// there may be one. If events of the page were evicted, it skips all events up to now.
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

// forgot reports whether an event after an ID that f may select was evicted, or the ID
// is of another process. It is called under es.mu.
func (es *Events) forgot(id uint64, f EventFilter) bool {
	if id < es.before || id > es.last {
		return true
	}
	return slices.ContainsFunc(es.rings(f), func(r *ring) bool { return r.forgotten > id })
}

// encoded returns the event as JSON, encoded once for all watchers.
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
