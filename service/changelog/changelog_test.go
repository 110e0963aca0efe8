package changelog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/test/must"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

var noError = must.NoError

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func hash(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:16])
}

func key(name string) resource.Key {
	return resource.Key{Type: resource.TypeAssignment, Name: name}
}

// model has all states of a store by index.
type model struct {
	t       *testing.T
	states  []map[resource.Key][]byte // of each index
	silent  []map[resource.Key]bool   // resources that were changed without a record, by index
	now     *store.Snapshot
	trimmer Trimmer
	limits  Limits
}

func newModel(t *testing.T) *model {
	return &model{t: t, states: []map[resource.Key][]byte{{}}, silent: []map[resource.Key]bool{{}}, now: &store.Snapshot{}}
}

func (m *model) index() uint64 { return uint64(len(m.states) - 1) }

// commit makes a change of several resources, where nil removes one.
func (m *model) commit(contents map[resource.Key][]byte, recorded bool, most int64) {
	tx := m.now.NewBatch(time.Unix(int64(len(m.states)), 0), 0).Begin()
	state, silent := maps.Clone(m.states[m.index()]), map[resource.Key]bool{}
	var replaced []Replaced
	for _, k := range slices.SortedFunc(maps.Keys(contents), store.CompareKeys) {
		before, after := state[k], contents[k]
		if bytes.Equal(before, after) && (before == nil) == (after == nil) {
			continue
		}
		replaced = append(replaced, Replaced{Key: k, Change: difference.Change{Resource: k.String(), Change: "modified"}, Before: before, After: after})
		silent[k] = !recorded
		if after == nil {
			delete(state, k)
			tx.Delete(k)
			continue
		}
		state[k] = after
		noError(m.t, tx.Put(k, after))
	}
	if len(replaced) == 0 {
		return
	}
	if recorded {
		raw := (&Record{Caller: "ci"}).Encode(replaced, most, hash)
		for _, k := range m.trimmer.Expired(m.limits, m.now, len(raw), time.Unix(int64(len(m.states)), 0)) {
			tx.Discard(k)
		}
		noError(m.t, tx.Put(NewKey(), raw))
	}
	m.now, _ = m.now.Apply(tx.Written(), m.index()+1)
	m.states, m.silent = append(m.states, state), append(m.silent, silent)
}

func (m *model) records() []store.Entry { return Records(m.now.Of(Type)) }

// at compares the states that follow from the records with those of the model. It returns how many
// contents were not known.
func (m *model) at() (unknown int) {
	m.t.Helper()
	q := Query{Records: m.records(), Hash: hash, Pause: func() error { return nil }, Now: func(k resource.Key) ([]byte, bool) {
		e, exists := m.now.Get(k)
		return e.Raw, exists
	}}
	for i := Oldest(q.Records, m.index()); i <= m.index(); i++ {
		got, err := q.At(i)
		noError(m.t, err)
		want := m.states[i]
		for k := range m.keys() {
			c, changed := got[k]
			now, _ := q.Now(k)
			switch {
			case c.Unknown != nil:
				unknown++
				if errors.Is(c.Unknown, ErrNoRecord) && !slices.ContainsFunc(m.silent, func(s map[resource.Key]bool) bool { return s[k] }) {
					m.t.Fatalf("%v at %d: %v", k, i, c.Unknown)
				}
			case !changed:
				if !m.hidden(k, i, now) && !bytes.Equal(want[k], now) {
					m.t.Fatalf("%v at %d is the same now: %q, want %q", k, i, now, want[k])
				}
			case !m.hidden(k, i, c.Raw) && (!bytes.Equal(c.Raw, want[k]) || (c.Raw == nil) != (want[k] == nil)):
				m.t.Fatalf("%v at %d: %q, want %q", k, i, c.Raw, want[k])
			}
		}
	}
	return unknown
}

// hidden reports whether no record shows that a resource did not have a content at an index: it was
// changed without one since, and the last record before is not left, or left the same content.
func (m *model) hidden(k resource.Key, index uint64, raw []byte) bool {
	silent := false
	for i := index + 1; i <= m.index() && !silent; i++ {
		without, changed := m.silent[i][k]
		if changed && !without {
			return false
		}
		silent = without
	}
	if !silent {
		return false
	}
	for _, e := range m.records() {
		if without, changed := m.silent[e.Index][k]; changed && !without && e.Index <= index {
			return bytes.Equal(m.states[e.Index][k], raw)
		}
	}
	return true
}

func (m *model) keys() map[resource.Key]bool {
	out := map[resource.Key]bool{}
	for _, s := range m.states {
		for k := range s {
			out[k] = true
		}
	}
	return out
}

// TestAt: the resources of each index follow from those of now and the records, whatever was changed,
// removed from the history, too large to be kept, or changed without a record. What does not follow is
// reported.
func TestAt(t *testing.T) {
	for seed := range uint64(45) {
		draw := rand.New(rand.NewPCG(seed, 1))
		m := newModel(t)
		silent := seed%3 == 1
		most := int64(1 << 20)
		if seed%3 == 2 {
			m.limits = Limits{Changes: 10}
			most = 40
		}
		unknown := 0
		for range 25 {
			contents := map[resource.Key][]byte{}
			for range 1 + draw.IntN(3) {
				var raw []byte
				k := key(fmt.Sprint(draw.IntN(5)))
				switch before := m.states[m.index()][k]; {
				case len(before) > 0 && draw.IntN(2) == 0: // most of it stays
					at := draw.IntN(len(before))
					raw = slices.Concat(before[:at], []byte{byte(draw.Uint32())}, before[min(len(before), at+draw.IntN(3)):])
				default:
					n := draw.IntN(4)
					raw = bytes.Repeat([]byte{byte('a' + draw.IntN(3)), byte(draw.Uint32())}, n*n*(4+300*draw.IntN(2)))
				}
				if len(raw) == 0 {
					raw = nil
				}
				contents[k] = raw
			}
			m.commit(contents, !silent || draw.IntN(4) > 0, most)
		}
		unknown += m.at()
		if silent && unknown == 0 {
			t.Errorf("seed %d: no content is unknown", seed)
		}
		if n := len(m.records()); m.limits.Changes > 0 && n != m.limits.Changes {
			t.Errorf("%d records are left", n)
		}
	}
}

// TestRecordsAreSmall: the record of a small change of a large content is small.
func TestRecordsAreSmall(t *testing.T) {
	m := newModel(t)
	large := make([]byte, 1<<20)
	for i := range large {
		large[i] = byte(rand.Uint32())
	}
	for i := range 10 {
		large[i*100_000]++
		m.commit(map[resource.Key][]byte{key("a"): bytes.Clone(large)}, true, 1<<20)
	}
	if unknown := m.at(); unknown != 0 {
		t.Errorf("%d contents are unknown", unknown)
	}
	for _, e := range m.records() {
		if len(e.Raw) > 1000 {
			t.Errorf("a record has %d bytes", len(e.Raw))
		}
	}
}

// TestChangesOfOneCommit: changes of one resource that are committed together are undone in the right
// order.
func TestChangesOfOneCommit(t *testing.T) {
	contents := [][]byte{[]byte("0"), []byte("1"), []byte("2"), nil, []byte("4"), []byte("5")}
	commit := func(base *store.Snapshot, from, to int) *store.Snapshot {
		b := base.NewBatch(time.Unix(1, 0), 0)
		for i := from; i < to; i++ {
			tx := b.Begin()
			k := key("a")
			r := Replaced{Key: k, Change: difference.Change{Resource: k.String(), Change: "modified"}, After: contents[i]}
			if i > 0 {
				r.Before = contents[i-1]
			}
			if tx.Discard(k); contents[i] != nil {
				_ = tx.Put(k, contents[i])
			}
			_ = tx.Put(NewKey(), (&Record{}).Encode([]Replaced{r}, 100, hash))
			b.Add(tx)
		}
		after, _ := base.Apply(b.Written(), base.Index()+1)
		return after
	}
	now := commit(commit(new(store.Snapshot), 0, 1), 1, len(contents))
	q := Query{Records: Records(now.Of(Type)), Hash: hash, Pause: func() error { return nil }, Now: func(k resource.Key) ([]byte, bool) {
		e, exists := now.Get(k)
		return e.Raw, exists
	}}
	if got, err := q.At(1); err != nil || string(got[key("a")].Raw) != "0" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := q.At(2); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := q.At(0); err != nil || got[key("a")].Hash != "" || len(got) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestNotKept: contents that are too large are not kept, and older ones stay known.
func TestNotKept(t *testing.T) {
	m := newModel(t)
	large := make([]byte, 1000)
	for i := range large {
		large[i] = byte(rand.Uint32())
	}
	for _, raw := range [][]byte{[]byte("small"), large, []byte("end"), nil} {
		m.commit(map[resource.Key][]byte{key("a"): raw}, true, 100)
	}
	if unknown := m.at(); unknown != 1 { // the large one
		t.Errorf("%d contents are unknown", unknown)
	}
	if r, err := Decode(m.records()[1]); err != nil || r.Kept() || r.Count != 1 || r.Caller != "ci" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestExpired(t *testing.T) {
	now := time.Unix(10_000, 0)
	records := store.Changes{key("cluster"): {Key: key("cluster"), Raw: make([]byte, 5000)}}
	for i := range 100 {
		k := resource.Key{Type: Type, Name: fmt.Sprint(i)}
		records[k] = &store.Entry{Key: k, Index: uint64(100 - i), Raw: make([]byte, 10), Updated: now.Add(-time.Duration(i) * time.Second)}
	}
	of, _ := new(store.Snapshot).Apply(records, 100)
	var trimmer Trimmer
	for _, tt := range []struct {
		l           Limits
		first, last string
		n           int
	}{
		{Limits{}, "", "", 0},
		{Limits{Changes: 101}, "", "", 0},
		{Limits{Changes: 100}, "99", "99", 1},
		{Limits{Bytes: 1000}, "99", "95", 5},
		{Limits{Age: 90 * time.Second}, "99", "91", 9},
		{Limits{Changes: 2}, "99", "68", maxExpired},
	} {
		got := trimmer.Expired(tt.l, of, 50, now)
		if len(got) != tt.n || tt.n > 0 && (got[0].Name != tt.first || got[tt.n-1].Name != tt.last) {
			t.Errorf("%+v: %v", tt.l, got)
		}
	}
}

func TestList(t *testing.T) {
	m := newModel(t)
	var o Observed
	for i := range 5 {
		m.commit(map[resource.Key][]byte{key("a"): fmt.Append(nil, i), key("b"): fmt.Append(nil, i, "b")}, true, 1<<20)
		if i%2 == 0 {
			o.Add(Entry{Index: m.index(), Source: FromFile}, []difference.Change{{Resource: "Cluster/c", Change: "added", Difference: "added"}})
		}
	}
	list := func(f Filter) (out []string, next uint64) {
		got, next := List(m.records(), o.Last(), f, time.Unix(6, 0))
		for _, c := range got {
			out = append(out, fmt.Sprint(c.Index, c.Source, c.Count))
		}
		return out, next
	}
	for _, tt := range []struct {
		f    Filter
		want []string
		next uint64
	}{
		{Filter{Limit: 100}, []string{"5file1", "5push2", "4push2", "3file1", "3push2", "2push2", "1file1", "1push2"}, 0},
		{Filter{Limit: 1}, []string{"5file1", "5push2"}, 5},
		{Filter{Limit: 2, Before: 5}, []string{"4push2", "3file1", "3push2"}, 3},
		{Filter{Limit: 100, Name: "a"}, []string{"5push1", "4push1", "3push1", "2push1", "1push1"}, 0},
		{Filter{Limit: 3, Visible: func(k resource.Key) bool { return k.Name == "c" }}, []string{"5file1", "3file1", "1file1"}, 0},
	} {
		if got, next := list(tt.f); !slices.Equal(got, tt.want) || next != tt.next {
			t.Errorf("%+v: %v, %d", tt.f, got, next)
		}
	}
	if got, _ := List(m.records(), nil, Filter{Limit: 9, MaxAge: 2 * time.Second}, time.Unix(6, 0)); len(got) != 2 {
		t.Errorf("%d of 2 are not too old", len(got))
	}
}

// TestMessageOfOthers: a message is not shown to callers that may see only a part of the change.
func TestMessageOfOthers(t *testing.T) {
	raw := (&Record{Message: "for b"}).Encode([]Replaced{
		{Key: key("a"), Change: difference.Change{Resource: key("a").String(), Change: "added"}},
		{Key: key("b"), Change: difference.Change{Resource: key("b").String(), Change: "added"}},
	}, 100, hash)
	records := []store.Entry{{Key: NewKey(), Raw: raw, Index: 1}}
	for _, name := range []string{"a", ""} {
		f := Filter{Limit: 1, Visible: func(k resource.Key) bool { return k.Name == "a" || name == "" }}
		got, _ := List(records, nil, f, time.Time{})
		if want := map[string]string{"a": "", "": "for b"}[name]; len(got) != 1 || got[0].Message != want {
			t.Errorf("%+v", got)
		}
	}
}

// FuzzDecode reads any bytes, and what Encode has written, without a panic.
func FuzzDecode(f *testing.F) {
	for _, most := range []int64{0, 1000} {
		f.Add((&Record{Caller: "ci", Message: "m"}).Encode([]Replaced{
			{Key: key("a"), Change: difference.Change{Resource: key("a").String(), Change: "modified", Difference: "x"}, Before: []byte("before"), After: []byte("after")},
			{Key: key("b"), Change: difference.Change{Resource: key("b").String(), Change: "removed"}, Before: []byte("b")},
		}, most, hash))
	}
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, raw []byte) {
		e := store.Entry{Key: NewKey(), Raw: raw, Index: 7}
		r, err := Decode(e)
		if err != nil {
			return
		}
		if details, err := r.Details(); err == nil {
			if before, err := r.replaced(details, nil); err == nil && len(before) != len(details) {
				t.Errorf("%d contents of %d resources", len(before), len(details))
			}
		}
		List([]store.Entry{e}, nil, Filter{Limit: 1, Name: "a"}, time.Time{})
		q := Query{Records: []store.Entry{e}, Hash: hash, Pause: func() error { return nil }, Now: func(resource.Key) ([]byte, bool) { return nil, false }}
		_, _ = q.At(0)
	})
}
