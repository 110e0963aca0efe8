package sources

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/store"
)

// storeHealth remembers why the store cannot make pushes durable. Its methods may be
// called from any goroutine.
type storeHealth struct {
	logger *slog.Logger
	events *observe.Events

	mu     sync.Mutex
	lost   failure // the store's file lost its name
	writes failure // the last write failed
}

// failure is an error, and when it began; the zero failure is none.
type failure struct {
	err   error
	since time.Time
}

// set sets f, one of the failures of h, to an error or to nil. It reports whether that
// begins or ends the failure.
func (h *storeHealth) set(f *failure, err error) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := f.err
	switch {
	case err == nil:
		*f = failure{}
	case was == nil:
		*f = failure{err: err, since: time.Now()}
	default:
		f.err = err
	}
	return (was == nil) != (err == nil)
}

// StoreLost records that the store's open file lost its name, or with nil that it
// has it again. It is the store's OnLost.
func (h *storeHealth) StoreLost(err error) {
	switch changed := h.set(&h.lost, err); {
	case !changed:
	case err != nil:
		h.events.Add(observe.Event{
			Type: observe.EventStoreFailing, Says: "lbd.db was removed or replaced: pushes are rejected", Error: err.Error(),
		})
	default:
		h.events.Add(observe.Event{Type: observe.EventStoreRecovered, Says: "lbd.db is back in place: pushes are accepted"})
	}
}

// wrote records whether a push could be made durable.
func (h *storeHealth) wrote(err error) {
	if errors.As(err, new(*store.LostError)) {
		return // StoreLost reports it
	}
	switch changed := h.set(&h.writes, err); {
	case !changed:
	case err != nil:
		h.logger.Error("pushes cannot be written to disk", "error", err)
		h.events.Add(observe.Event{Type: observe.EventStoreFailing, Says: "a push could not be written to disk", Error: err.Error()})
	default:
		h.logger.Info("pushes are written to disk again")
		h.events.Add(observe.Event{Type: observe.EventStoreRecovered, Says: "pushes are written to disk again"})
	}
}

func (h *storeHealth) conditions() []observe.Condition {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []observe.Condition
	if f := h.lost; f.err != nil {
		out = append(out, observe.Condition{
			Kind: observe.ConditionStoreFailing, Since: f.since, NotReady: true,
			Text:   "pushes are refused, because they would be lost: " + f.err.Error(),
			Remedy: "move the file back, or restart lbd",
		})
	}
	if f := h.writes; f.err != nil {
		out = append(out, observe.Condition{
			Kind: observe.ConditionStoreFailing, Since: f.since,
			Text:   "the last push was refused: " + f.err.Error() + "; picks use the stored resources",
			Remedy: "free space in the data directory; the next push that can be written ends this",
		})
	}
	return out
}
