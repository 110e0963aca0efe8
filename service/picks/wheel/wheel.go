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
	due        uint32 // in ticks; never is none
}

const (
	// none is no item. Items are numbered from 1 within lists.
	none = 0
	// never is when a timer is due that is in no wheel.
	never = 0
)

// A Wheel has timers of items, which their owner numbers. Times are the time since a moment of the
// owner's choice. It has no lock: its owner calls one method at a time.
type Wheel struct {
	timer func(item uint32) *Timer // fixed after New

	current uint32 // the tick up to which timers were looked at; it wraps around
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
		w.current = uint32(now / Tick)
	}
	t.due = uint32((at + Tick - 1) / Tick)
	if !w.isAhead(t.due) {
		t.due = w.current + 1
	}
	if t.due == never {
		t.due++
	}
	w.length++
	w.push(item, t)
}

// Remove removes an item, and reports whether it was there. t is its timer.
func (w *Wheel) Remove(item uint32, t *Timer) bool {
	if t.due == never {
		return false
	}
	w.unlink(item, t)
	t.due = never
	w.length--
	return true
}

// Advance removes items that are due and calls expire with each. It looks at no more than
// limit timers, and reports whether more remain to be looked at for the same time.
func (w *Wheel) Advance(now time.Duration, limit int, expire func(item uint32)) (more bool) {
	target := uint32(now / Tick) // the last tick that is not after now
	for {
		for w.pending != none {
			if limit == 0 {
				return true
			}
			limit--
			item := w.pending - 1
			t := w.timer(item)
			w.unlink(item, t)
			if w.isAhead(t.due) {
				w.push(item, t)
				continue
			}
			t.due = never
			w.length--
			expire(item)
		}
		if w.length == 0 { // nothing to look at in the ticks between
			w.current = target
		}
		if !w.isAhead(target) {
			return false
		}
		w.current++
		list := &w.lists[w.current%slots]
		w.pending, *list = *list, none
	}
}

// isAhead reports whether a tick is after the current one. Ticks wrap around after years, and no two
// that are compared are so far apart.
func (w *Wheel) isAhead(tick uint32) bool { return int32(tick-w.current) > 0 }

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
