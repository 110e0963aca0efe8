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
	lost   failure // the store cannot commit
	writes failure // the last write failed
}

// failure is an error, and when it began; the zero failure is none.
type failure struct {
	err   error
	since time.Time
}

// set sets f, one of the failures of h, to an error or to nil. If that begins or ends the
// failure, it adds an event, and returns true.
func (h *storeHealth) set(f *failure, err error, began, ended string) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := *f
	switch {
	case err == nil:
		*f = failure{}
		if was.err != nil {
			h.events.Add(observe.Event{Type: observe.EventStoreRecovered, Says: ended})
		}
	case was.err == nil:
		*f = failure{err: err, since: time.Now()}
		h.events.Add(observe.Event{Type: observe.EventStoreFailing, Says: began, Error: err.Error()})
	default:
		f.err = err
	}
	return (was.err == nil) != (err == nil)
}

// storeLost records that the store cannot commit: its open file lost its name, or the store that
// daemons share cannot be reached. With nil, it can again. It is the store's OnLost.
func (h *storeHealth) storeLost(err error) {
	h.set(&h.lost, err, "nothing can be stored: pushes are rejected", "pushes are accepted again")
}

// wrote records whether a push could be made durable. storeLost reports that none can.
func (h *storeHealth) wrote(err error) {
	const began, ended = "a push could not be written to disk", "pushes are written to disk again"
	switch {
	case !h.set(&h.writes, err, began, ended):
	case err != nil:
		h.logger.Error("pushes cannot be written to disk", "error", err)
	default:
		h.logger.Info(ended)
	}
}

func (h *storeHealth) conditions() []observe.Condition {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []observe.Condition
	if f := h.lost; errors.Is(f.err, store.ErrUnavailable) {
		out = append(out, observe.Condition{
			Kind: observe.ConditionStoreFailing, Since: f.since,
			Text:   "pushes are refused: " + f.err.Error() + "; picks use what is known",
			Remedy: "if that does not say what to do, check etcd and the network between it and this host; lbd tries again",
		})
	} else if f.err != nil {
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
