package sources

import (
	"errors"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/store"
)

// storeHealth remembers why pushes cannot be made durable. Its methods may be
// called at the same time.
type storeHealth struct {
	mu     sync.Mutex
	lost   failure // the store's file lost its name
	writes failure // the last write failed
}

// failure is what went wrong, and since when; the zero failure is none.
type failure struct {
	err   error
	since time.Time
}

// set notes an error, or with nil that there is none. It returns whether that
// begins or ends the failure.
func (f *failure) set(err error) (changed bool) {
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
func (s *Sources) StoreLost(err error) {
	s.storeHealth.mu.Lock()
	changed := s.storeHealth.lost.set(err)
	s.storeHealth.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		s.events.Add(observe.Event{
			Type: observe.EventStoreFailing, Says: "the store's file was removed or replaced: pushes are refused", Error: err.Error(),
		})
	default:
		s.events.Add(observe.Event{Type: observe.EventStoreRecovered, Says: "the store's file has its name again: pushes are accepted"})
	}
}

// wrote records whether a push could be made durable.
func (s *Sources) wrote(err error) {
	if errors.As(err, new(*store.LostError)) {
		return // StoreLost reports it
	}
	s.storeHealth.mu.Lock()
	changed := s.storeHealth.writes.set(err)
	s.storeHealth.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		s.options.Logger.Error("pushes cannot be written to disk", "error", err)
		s.events.Add(observe.Event{Type: observe.EventStoreFailing, Says: "a push could not be written to disk", Error: err.Error()})
	default:
		s.options.Logger.Info("pushes are written to disk again")
		s.events.Add(observe.Event{Type: observe.EventStoreRecovered, Says: "pushes are written to disk again"})
	}
}

// storeConditions reports a store that cannot take pushes.
func (s *Sources) storeConditions() []observe.Condition {
	s.storeHealth.mu.Lock()
	defer s.storeHealth.mu.Unlock()
	var out []observe.Condition
	if f := s.storeHealth.lost; f.err != nil {
		out = append(out, observe.Condition{
			Kind: observe.ConditionStoreFailing, Since: f.since, NotReady: true,
			Text:   "pushes are refused, because they would be lost: " + f.err.Error(),
			Remedy: "move the file back, or restart lbd",
		})
	}
	if f := s.storeHealth.writes; f.err != nil {
		out = append(out, observe.Condition{
			Kind: observe.ConditionStoreFailing, Since: f.since,
			Text:   "the last push was refused: " + f.err.Error() + "; picks go on with what was stored",
			Remedy: "make space in the data directory; the next push that can be written ends this",
		})
	}
	return out
}
