package share

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestTargets(t *testing.T) {
	tests := []struct {
		name    string
		limit   int64
		demands []int64
		want    []int64
	}{
		{"no replica", 10, nil, nil},
		{"one has all", 10, []int64{3}, []int64{10}},
		{"no demand: equal parts", 10, []int64{0, 0, 0}, []int64{4, 3, 3}},
		{"too much demand: equal parts", 10, []int64{100, 50, 70}, []int64{4, 3, 3}},
		{"little demand is met, the others share the rest", 10, []int64{1, 100, 50}, []int64{1, 5, 4}},
		{"what is not needed is divided", 10, []int64{4, 0, 0}, []int64{6, 2, 2}},
		{"exactly enough", 10, []int64{4, 5, 1}, []int64{4, 5, 1}},
		{"fewer requests than replicas", 2, []int64{5, 5, 5}, []int64{1, 1, 0}},
		{"a replica without demand gives way", 1, []int64{0, 0, 1}, []int64{0, 0, 1}},
		{"none", 0, []int64{1, 2}, []int64{0, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := targets(tt.limit, tt.demands); !slices.Equal(got, tt.want) {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

// fleet drives machines without faults: every record is seen at once.
type fleet struct {
	t        *testing.T
	now      time.Duration
	record   Record
	revision int64
	sessions []Session
	machines []*Machine
	outs     []Output
	wants    []int64 // requests that each would hold
	held     []int64
	long     []int64 // requests that do not end
	updates  int
}

func newFleet(t *testing.T, limit int64, replicas int) *fleet {
	f := &fleet{t: t, revision: 1, wants: make([]int64, replicas), held: make([]int64, replicas), long: make([]int64, replicas), outs: make([]Output, replicas)}
	for i := range replicas {
		m := New(Config{
			Replica: names[i], Fast: 100 * time.Millisecond, Slow: 2 * time.Second, Margin: time.Second,
			MinBound: time.Second, MaxBound: 10 * time.Minute,
		})
		m.SetLimit(limit)
		f.sessions = append(f.sessions, Session{names[i], int64(i + 1)})
		f.machines = append(f.machines, m)
	}
	for i, m := range f.machines {
		m.Begin(int64(i+1), time.Hour, f.record, f.revision, f.updates > 0)
		f.turn(i, 0)
	}
	return f
}

// turn is one of a replica. Its requests end, and it holds as many as it wants and may.
func (f *fleet) turn(i int, longest time.Duration) {
	m := f.machines[i]
	m.Seen(f.record, f.revision, true)
	m.Live(f.sessions, f.revision)
	hold := func() { f.held[i] = max(f.long[i], min(f.wants[i], f.outs[i].Share)) }
	f.outs[i] = m.Advance(f.now, Use{f.held[i], max(0, f.wants[i]-f.held[i]), longest})
	hold()
	if u := m.Propose(f.held[i], 0); u != nil {
		f.revision++
		f.updates++
		f.record = u.Record
		m.Updated(*u, f.revision)
		f.outs[i] = m.Advance(f.now, Use{InFlight: f.held[i]})
		hold()
	}
}

// run lets every replica have a turn each 20 ms.
func (f *fleet) run(d time.Duration) {
	for end := f.now + d; f.now < end; f.now += 20 * time.Millisecond {
		for i := range f.machines {
			f.turn(i, 0)
		}
	}
}

func (f *fleet) shares() (out []int64) {
	for _, e := range f.record.Entries {
		out = append(out, e.Share)
	}
	return out
}

// TestFollowsDemand: where the limit is scarce, shares follow within 100 ms for each update that it takes;
// otherwise within 2 s. Then nothing is written.
func TestFollowsDemand(t *testing.T) {
	tests := []struct {
		name   string
		wants  []int64
		within time.Duration
		want   []int64 // held
	}{
		{"one has all", []int64{30, 0, 0}, 300 * time.Millisecond, []int64{30, 0, 0}},
		{"then another one as well", []int64{30, 30, 0}, 500 * time.Millisecond, []int64{15, 15, 0}},
		{"then all", []int64{30, 30, 30}, 700 * time.Millisecond, []int64{10, 10, 10}},
		{"one needs little", []int64{30, 2, 30}, 1500 * time.Millisecond, []int64{14, 2, 14}},
		{"all is met", []int64{12, 1, 17}, 3 * time.Second, []int64{12, 1, 17}},
		{"none", []int64{0, 0, 0}, 0, []int64{0, 0, 0}},
		{"the last one has all", []int64{0, 0, 30}, 1500 * time.Millisecond, []int64{0, 0, 30}},
	}
	f := newFleet(t, 30, 3)
	f.run(5 * time.Second)
	for _, tt := range tests {
		copy(f.wants, tt.wants)
		f.run(tt.within)
		if tt.within > 0 && !slices.Equal(f.held, tt.want) {
			t.Errorf("%s: hold %d after %v, want %d; %+v", tt.name, f.held, tt.within, tt.want, f.record)
		}
		f.run(10 * time.Second)
		if !slices.Equal(f.held, tt.want) {
			t.Errorf("%s: hold %d, want %d; %+v", tt.name, f.held, tt.want, f.record)
		}
		updates := f.updates
		f.run(time.Minute)
		if f.updates != updates {
			t.Errorf("%s: %d updates while nothing changed", tt.name, f.updates-updates)
		}
	}
}

// TestSmallChanges: demand that changes a little writes little.
func TestSmallChanges(t *testing.T) {
	f := newFleet(t, 100, 3)
	f.run(5 * time.Second)
	updates := f.updates
	for i := range 600 { // 60 s
		f.wants[0], f.wants[1], f.wants[2] = int64(10+i%3), int64(5+i%2), int64(i%4)
		f.run(100 * time.Millisecond)
	}
	if f.updates > updates+2 {
		t.Errorf("%d updates", f.updates-updates)
	}
}

// TestLimitChanges: a lower limit is that of all once one has it, and a higher one once all have it.
func TestLimitChanges(t *testing.T) {
	f := newFleet(t, 10, 2)
	f.wants = []int64{8, 8}
	f.run(3 * time.Second)
	f.long = []int64{5, 5}
	f.machines[0].SetLimit(4)
	f.run(time.Second)
	if got := f.shares(); f.outs[0].Share+f.outs[1].Share > 4 || !slices.Equal(got, []int64{5, 5}) {
		t.Errorf("%d may be held, %d are published; want 4 at most, and the 5 that each holds", f.outs, got)
	}
	f.wants, f.long = []int64{3, 0}, []int64{0, 0}
	f.run(3 * time.Second)
	if sum := f.record.Sum(); sum != 4 || f.held[0] != 3 {
		t.Errorf("%d published, %d held; want 4, and 3 of the first", sum, f.held)
	}
	f.machines[0].SetLimit(20)
	f.run(3 * time.Second)
	if sum := f.record.Sum(); sum != 10 {
		t.Errorf("%d published, although the other replica has a limit of 10", sum)
	}
	f.machines[1].SetLimit(20)
	f.run(5 * time.Second)
	if sum := f.record.Sum(); sum != 20 {
		t.Errorf("%d published, want 20", sum)
	}
}

// TestDead: the share of a process that has died is free after its bound and the margin.
func TestDead(t *testing.T) {
	f := newFleet(t, 10, 2)
	f.wants = []int64{10, 10}
	f.turn(1, 4*time.Second)
	f.run(3 * time.Second)
	if e := f.record.Entries[1]; e.Bound != 4*time.Second || f.outs[1].Bound != 4*time.Second {
		t.Fatalf("%+v, and the bound of %+v", e, f.outs[1])
	}
	f.machines, f.sessions, f.revision = f.machines[:1], f.sessions[:1], f.revision+1
	f.run(4900 * time.Millisecond)
	if f.held[0] != 5 {
		t.Errorf("%d held before the bound has passed", f.held)
	}
	f.run(300 * time.Millisecond)
	if f.held[0] != 10 || len(f.record.Entries) != 1 {
		t.Errorf("%d held after the bound has passed: %+v", f.held, f.record)
	}
}

// TestBound: a longer ttl is published before it is admitted, and forgotten when all leases have ended.
func TestBound(t *testing.T) {
	f := newFleet(t, 10, 1)
	f.run(time.Second)
	if b := f.outs[0].Bound; b != time.Second {
		t.Fatalf("bound %v", b)
	}
	f.turn(0, 5*time.Second)
	f.run(200 * time.Millisecond)
	if b := f.outs[0].Bound; b != 5*time.Second {
		t.Errorf("bound %v, want 5s", b)
	}
	f.run(5 * time.Second)
	if b := f.outs[0].Bound; b != 5*time.Second {
		t.Errorf("bound %v while leases may be held", b)
	}
	f.run(10 * time.Second)
	if b := f.outs[0].Bound; b != time.Second || f.record.Entries[0].Bound != time.Second {
		t.Errorf("bound %v, %+v after they have ended", b, f.record)
	}
}

// TestOlderLeases: requests that were in flight before the limit was shared are published, also above it.
func TestOlderLeases(t *testing.T) {
	f := newFleet(t, 4, 2)
	f.wants[0], f.held[0], f.long[0] = 6, 6, 6
	f.run(time.Second)
	if got := f.shares(); !slices.Equal(got, []int64{6, 0}) || f.outs[0].Share+f.outs[1].Share > 4 {
		t.Errorf("shares %d, outputs %+v", got, f.outs)
	}
	f.wants[0], f.long[0] = 0, 0
	f.run(5 * time.Second)
	if got := f.shares(); !slices.Equal(got, []int64{2, 2}) {
		t.Errorf("shares %d after they have ended", got)
	}
}

// TestLeave: a process that leaves gives its share away, as its requests end.
func TestLeave(t *testing.T) {
	f := newFleet(t, 10, 2)
	f.wants = []int64{10, 10}
	f.run(3 * time.Second)
	f.machines[0].Leave()
	f.wants[0], f.long[0] = 2, 2
	f.run(time.Second)
	if f.outs[0].Share != 0 || f.machines[0].Gone() || !slices.Equal(f.shares(), []int64{2, 8}) {
		t.Errorf("%+v, shares %d", f.outs[0], f.shares())
	}
	f.wants[0], f.long[0] = 0, 0
	f.run(time.Second)
	if !f.machines[0].Gone() || f.held[1] != 10 {
		t.Errorf("gone %t, held %d", f.machines[0].Gone(), f.held)
	}
}

// TestHistoryLost: a store that has lost its newest revisions is followed from the next session.
func TestHistoryLost(t *testing.T) {
	f := newFleet(t, 10, 1)
	m := f.machines[0]
	m.Lost()
	f.now += time.Second
	if out := m.Advance(f.now, Use{}); out.Share != 0 {
		t.Errorf("share %d without a session", out.Share)
	}
	m.Begin(9, 2*time.Hour, Record{}, 1, false)
	m.Advance(f.now, Use{})
	u := m.Propose(3, 0)
	if u == nil || u.Exists || u.Base != 1 || u.Record.Entries[0].Session != 9 {
		t.Errorf("update %+v", u)
	}
}

func TestDecode(t *testing.T) {
	for _, e := range []Entry{{"a", 1, 10, 5, 3, time.Second}, {"b", 1<<63 - 1, 10, 5, 0, 0}, {"c", 1 << 62, 100, 2, 2, 30 * time.Second}} {
		b := e.Encode()
		if got, err := Decode(e.Replica, b); err != nil || got != e || len(b) > 20 {
			t.Errorf("%+v, %v, %d bytes", got, err, len(b))
		}
		if got, err := Decode(e.Replica, append(b, 7)); err != nil || got != e { // what a later version adds
			t.Errorf("with another number: %+v, %v", got, err)
		}
		if _, err := Decode(e.Replica, b[:len(b)-1]); err == nil {
			t.Error("a part of an entry is read")
		}
	}
	for _, bad := range [][]byte{nil, {}, {0}, {1}, Entry{Share: -1}.Encode(), Entry{Limit: 99999999999999999}.Encode()} {
		if _, err := Decode("a", bad); err == nil || errors.Is(err, ErrNewer) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := Decode("a", []byte{2, 0}); !errors.Is(err, ErrNewer) {
		t.Errorf("a newer version: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(Entry{"a", 1, 10, 5, 3, time.Second}.Encode())
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Decode("a", b)
		if err != nil {
			return
		}
		if again, err := Decode("a", e.Encode()); err != nil || again != e {
			t.Errorf("%+v is %+v again: %v", e, again, err)
		}
		r := Record{[]Entry{e}}
		m := New(Config{Replica: "me", Slow: 1, MinBound: 1, MaxBound: 2})
		m.SetLimit(5)
		m.Begin(1, time.Hour, r, 1, true)
		m.Live(nil, 1)
		m.Advance(0, Use{})
		m.Propose(0, 0)
	})
}
