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
// it needs no memory of its own, and has no pointer that the garbage collector would
// follow. The zero value is in no wheel.
type Timer struct {
	next, prev uint32 // items, in a list; none at its ends
	due        int64  // in ticks, at least 1; 0 if in no wheel
}

// none is no item. Items are numbered from 1 within lists.
const none = 0

// A Wheel has timers of items, which their owner numbers. Times are the time since a moment of the
// owner's choice. It has no lock: its owner calls one method at a time.
type Wheel struct {
	timer func(item uint32) *Timer // fixed after New

	current int64 // the tick up to which timers were looked at
	// lists has the first item of each slot.
	lists [slots]uint32
	// pending is the first timer of the current tick that were not looked at yet.
	pending uint32
	length  int
}

// New returns a wheel without timers. timer returns the timer of an item in the wheel, always the
// same.
func New(timer func(item uint32) *Timer) *Wheel { return &Wheel{timer: timer} }

// Len returns the number of timers.
func (w *Wheel) Len() int { return w.length }

// Add adds an item that is not in the wheel. t is its timer.
func (w *Wheel) Add(item uint32, t *Timer, now, at time.Duration) {
	if w.length == 0 { // the wheel may not have advanced for long
		w.current = max(w.current, int64(now/Tick))
	}
	t.due = max(w.current+1, int64((at+Tick-1)/Tick))
	w.length++
	w.push(item, t)
}

// Remove removes an item, and reports whether it was there. t is its timer.
func (w *Wheel) Remove(item uint32, t *Timer) bool {
	if t.due == 0 {
		return false
	}
	w.unlink(item, t)
	t.due = 0
	w.length--
	return true
}

// Advance removes items that are due and calls expire with each. It looks at no more than
// limit timers, and reports whether more remain to be looked at for the same time.
func (w *Wheel) Advance(now time.Duration, limit int, expire func(item uint32)) (more bool) {
	target := int64(now / Tick) // the last tick that is not after now
	for {
		for w.pending != none {
			if limit == 0 {
				return true
			}
			limit--
			item := w.pending - 1
			t := w.timer(item)
			w.unlink(item, t)
			if t.due > w.current {
				w.push(item, t)
				continue
			}
			t.due = 0
			w.length--
			expire(item)
		}
		if w.length == 0 { // nothing to look at in the ticks between
			w.current = max(w.current, target)
		}
		if w.current >= target {
			return false
		}
		w.current++
		list := &w.lists[w.current%slots]
		w.pending, *list = *list, none
	}
}

// push adds an item to the front of its list.
func (w *Wheel) push(item uint32, t *Timer) {
	list := &w.lists[t.due%slots]
	t.prev, t.next = none, *list
	if t.next != none {
		w.timer(t.next - 1).prev = item + 1
	}
	*list = item + 1
}

func (w *Wheel) unlink(item uint32, t *Timer) {
	switch {
	case t.prev != none:
		w.timer(t.prev - 1).next = t.next
	case w.pending == item+1:
		w.pending = t.next
	default:
		w.lists[t.due%slots] = t.next
	}
	if t.next != none {
		w.timer(t.next - 1).prev = t.prev
	}
}
