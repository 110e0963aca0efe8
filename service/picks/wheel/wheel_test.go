package wheel

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type item struct {
	number uint32
	timer  Timer
	at     time.Duration
	added  time.Duration
}

// items are those of a wheel, by number.
type items []*item

func (all *items) add() *item {
	i := &item{number: uint32(len(*all))}
	*all = append(*all, i)
	return i
}

func (all *items) wheel() *Wheel {
	return New(func(n uint32) *Timer { return &(*all)[n].timer })
}

func TestAdvance(t *testing.T) {
	var all items
	w := all.wheel()
	at := func(d time.Duration) *item {
		i := all.add()
		i.at = d
		w.Add(i.number, &i.timer, 0, i.at)
		return i
	}
	now, soon, round, late := at(0), at(Tick+1), at(slots*Tick), at(3*slots*Tick+1)
	removed := at(Tick)
	if !w.Remove(removed.number, &removed.timer) || w.Remove(removed.number, &removed.timer) || w.Len() != 4 {
		t.Errorf("%d timers after Remove", w.Len())
	}
	for _, step := range []struct {
		at   time.Duration
		want []*item
	}{
		{0, nil},
		{Tick, []*item{now}},
		{2*Tick - 1, nil},
		{2 * Tick, []*item{soon}},
		{slots*Tick - 1, nil},
		{slots * Tick, []*item{round}},
		{3 * slots * Tick, nil},
		{10 * slots * Tick, []*item{late}},
	} {
		var got []*item
		if more := w.Advance(step.at, 100, func(n uint32) { got = append(got, all[n]) }); more || !slices.Equal(got, step.want) {
			t.Errorf("at %v %d items (more: %v); want %d", step.at, len(got), more, len(step.want))
		}
	}
	if w.Len() != 0 {
		t.Errorf("%d timers remain", w.Len())
	}
}

// A model: each item that is not removed expires once, never before its time, and
// at the first call that is a tick later, whatever is added and removed between.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all items
		w := all.wheel()
		now := time.Duration(0)
		waiting := make(map[*item]bool)
		var order []*item
		pick := func() *item {
			if len(order) == 0 {
				t.Skip("no item yet")
			}
			return order[rapid.IntRange(0, len(order)-1).Draw(t, "item")]
		}
		expire := func(n uint32) {
			i := all[n]
			if !waiting[i] {
				t.Fatal("an item expired that is not in the wheel")
			}
			if now < i.at {
				t.Fatalf("expired %v early", i.at-now)
			}
			delete(waiting, i)
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				i := all.add()
				i.at = now + time.Duration(rapid.Int64Range(-int64(time.Second), int64(4*slots*Tick)).Draw(t, "ttl"))
				i.added = now
				w.Add(i.number, &i.timer, now, i.at)
				waiting[i] = true
				order = append(order, i)
			},
			"remove": func(*rapid.T) {
				i := pick()
				if w.Remove(i.number, &i.timer) != waiting[i] {
					t.Fatal("Remove is wrong")
				}
				delete(waiting, i)
			},
			"renew": func(t *rapid.T) {
				i := pick()
				if !w.Remove(i.number, &i.timer) {
					return
				}
				i.added = now
				i.at = now + time.Duration(rapid.Int64Range(0, int64(slots*Tick)).Draw(t, "ttl"))
				w.Add(i.number, &i.timer, now, i.at)
			},
			"advance": func(t *rapid.T) {
				now += time.Duration(rapid.Int64Range(0, int64(2*slots*Tick)).Draw(t, "time"))
				limit := rapid.IntRange(1, 20).Draw(t, "limit")
				for w.Advance(now, limit, expire) {
					if rapid.Bool().Draw(t, "stop") {
						return
					}
				}
				for i := range waiting {
					if late := min(now-i.at, now-i.added); late > Tick {
						t.Fatalf("an item is %v late", late)
					}
				}
			},
			"": func(t *rapid.T) {
				if w.Len() != len(waiting) {
					t.Fatalf("%d timers; want %d", w.Len(), len(waiting))
				}
			},
		})
	})
}

// Ticks wrap around without an item that expires early, late or never.
func TestTicksWrapAround(t *testing.T) {
	const end = (1 << 32) * Tick
	var all items
	w := all.wheel()
	expired := 0
	for _, start := range []time.Duration{end - 100*Tick, 3*end - slots*Tick} {
		now := start
		for step := range 4 * slots {
			i := all.add()
			i.at = now + time.Duration(step%7)*50*Tick
			w.Add(i.number, &i.timer, now, i.at)
			now += Tick
			w.Advance(now, 1000, func(n uint32) {
				if late := now - all[n].at; late < 0 || late > 2*Tick {
					t.Fatalf("an item is %v late", late)
				}
				expired++
			})
		}
		w.Advance(now+time.Hour, 1000, func(uint32) { expired++ })
	}
	if expired != len(all) || w.Len() != 0 {
		t.Errorf("%d of %d items expired", expired, len(all))
	}
}

func TestAdvanceIsBounded(t *testing.T) {
	var all items
	w := all.wheel()
	for range 1000 {
		i := all.add()
		w.Add(i.number, &i.timer, 0, 0)
	}
	for n := 10; n <= 1000; n += 10 {
		more := w.Advance(Tick, 10, func(uint32) {})
		if w.Len() != 1000-n || more != (n < 1000) {
			t.Fatalf("%d timers remain after %d (more: %v)", w.Len(), n, more)
		}
	}
}

func TestAllocAddRemove(t *testing.T) {
	var all items
	w := all.wheel()
	i := all.add()
	if n := testing.AllocsPerRun(100, func() {
		w.Add(i.number, &i.timer, 0, time.Second)
		w.Remove(i.number, &i.timer)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAddRemove(b *testing.B) {
	var all items
	w := all.wheel()
	for range 100_000 {
		i := all.add()
		w.Add(i.number, &i.timer, 0, rand.N(10*time.Minute))
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		i := all[n%len(all)]
		w.Remove(i.number, &i.timer)
		w.Add(i.number, &i.timer, 0, time.Minute)
	}
}
