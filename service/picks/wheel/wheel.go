// Package wheel has a hashed timing wheel: timers for very many items, of which
// most are removed before they are due. Adding and removing a timer takes
// constant time and allocates nothing, and the work of one call is bounded.
//
// See Varghese and Lauck, Hashed and Hierarchical Timing Wheels (1987), scheme 6.
package wheel

import "time"

const (
	// Tick is the resolution: a timer is due up to one tick after its time, and
	// never before.
	Tick = 50 * time.Millisecond
	// slots is the number of ticks of one round. A timer that is due later is looked
	// at once in each round.
	slots = 512
)

// A Timer is the place of an item in a [Wheel]. It is a field of the item, so that
// it needs no memory of its own. The zero value is in no wheel.
type Timer[T any] struct {
	Item T

	next, prev *Timer[T] // in a ring; nil if in no wheel
	due        int64     // in ticks since the epoch
}

// A Wheel has timers. It has no lock: its owner calls one method at a time.
type Wheel[T any] struct {
	epoch   time.Time
	current int64 // the tick up to which timers were looked at
	// lists has a ring for each slot, whose first timer has no item.
	lists [slots]Timer[T]
	// pending are the timers of the current tick that were not looked at yet.
	pending Timer[T]
	length  int
}

// New returns a wheel without timers, which begins at a time.
func New[T any](epoch time.Time) *Wheel[T] {
	w := &Wheel[T]{epoch: epoch}
	w.pending.clear()
	for i := range w.lists {
		w.lists[i].clear()
	}
	return w
}

// Len returns the number of timers.
func (w *Wheel[T]) Len() int { return w.length }

// Add adds a timer that is in no wheel.
func (w *Wheel[T]) Add(t *Timer[T], now, at time.Time) {
	if w.length == 0 { // the wheel may not have advanced for long
		w.current = max(w.current, w.tick(now))
	}
	t.due = max(w.current+1, int64((at.Sub(w.epoch)+Tick-1)/Tick))
	w.length++
	w.lists[t.due%slots].push(t)
}

// Remove removes a timer, and reports whether it was there.
func (w *Wheel[T]) Remove(t *Timer[T]) bool {
	if t.next == nil {
		return false
	}
	t.unlink()
	w.length--
	return true
}

// Advance removes timers that are due and calls expire with the item of each. It
// looks at no more than limit timers, and reports whether more remain to be looked
// at for the same time.
func (w *Wheel[T]) Advance(now time.Time, limit int, expire func(T)) (more bool) {
	target := w.tick(now)
	for {
		for t := w.pending.next; t != &w.pending; t = w.pending.next {
			if limit == 0 {
				return true
			}
			limit--
			t.unlink()
			if t.due > w.current {
				w.lists[t.due%slots].push(t)
				continue
			}
			w.length--
			expire(t.Item)
		}
		if w.length == 0 { // nothing to look at in the ticks between
			w.current = max(w.current, target)
		}
		if w.current >= target {
			return false
		}
		w.current++
		w.lists[w.current%slots].moveTo(&w.pending)
	}
}

// tick returns the last tick that is not after a time.
func (w *Wheel[T]) tick(t time.Time) int64 { return int64(t.Sub(w.epoch) / Tick) }

// clear makes t a ring of its own.
func (t *Timer[T]) clear() { t.next, t.prev = t, t }

// push adds a timer behind t.
func (t *Timer[T]) push(added *Timer[T]) {
	added.prev, added.next = t, t.next
	t.next.prev, t.next = added, added
}

func (t *Timer[T]) unlink() {
	t.prev.next, t.next.prev = t.next, t.prev
	t.next, t.prev = nil, nil
}

// moveTo makes the others of t's ring that of an empty one.
func (t *Timer[T]) moveTo(empty *Timer[T]) {
	if t.next == t {
		return
	}
	empty.next, empty.prev = t.next, t.prev
	empty.next.prev, empty.prev.next = empty, empty
	t.clear()
}
