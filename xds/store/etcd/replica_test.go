package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

const testKeys = layout("p/")

var errAway = errors.New("no connection")

// A world is a replica with the blobs that it can fetch.
type world struct {
	replica
	contents map[string]string
	fetched  int
	own      map[string]*ownCommit // by the value of a writer's key
	away     bool
}

func newWorld() *world {
	w := &world{contents: map[string]string{}, own: map[string]*ownCommit{}}
	w.keys, w.snapshot, w.blobs, w.problems = testKeys, &store.Snapshot{}, references{}, map[string]error{}
	w.format.Base = 1000
	w.fetch = func(_ context.Context, r reference, _ int64) ([]byte, error) {
		if w.away {
			return nil, errAway
		}
		w.fetched++
		c, ok := w.contents[r.id]
		if !ok {
			return nil, fmt.Errorf("%w: missing", errDamaged)
		}
		return []byte(c), nil
	}
	w.replica.own = func(_ string, value []byte) *ownCommit { return w.own[string(value)] }
	return w
}

func name(n string) resource.Key { return resource.Key{Type: "T", Name: n} }

func at(n string) string { return testKeys.relative(testKeys.entry(name(n))) }

// putEvent is the put of an entry.
func putEvent(n, raw string) event {
	return event{at(n), record{updated: begin, raw: []byte(raw)}.encode(at(n))}
}

func blobEvent(n, id string) event {
	return event{at(n), record{updated: begin, blob: &reference{id: id, size: 9}}.encode(at(n))}
}

func headEvent() event { return event{"state/head", []byte("w")} }

func pendingEvent(id string) event {
	return event{"state/pending", encodePending("state/pending", reference{id: id})}
}

// batchOf is the content of a blob with the changes of events.
func batchOf(events ...event) string {
	var changes []change
	for _, e := range events {
		changes = append(changes, change{e.key, e.value})
	}
	return string(encodeBatch(changes))
}

func text(s *store.Snapshot) string {
	out := []string{fmt.Sprint(s.Index())}
	for e := range s.All() {
		out = append(out, fmt.Sprintf("%s=%s@%d", e.Key.Name, e.Raw, e.Index))
	}
	return strings.Join(out, " ")
}

func (w *world) step(t *testing.T, number int64, events ...event) (changed string, reported bool) {
	t.Helper()
	c, err := w.apply(t.Context(), revision{number, events})
	if err != nil {
		t.Fatal(err)
	}
	if c == nil {
		return "", false
	}
	if c.After != w.snapshot {
		t.Error("the commit is not the snapshot")
	}
	var names []string
	for _, k := range c.Changed {
		names = append(names, k.Name)
	}
	return strings.Join(names, " "), true
}

func TestRevisions(t *testing.T) {
	w := newWorld()
	w.contents["batch"] = batchOf(putEvent("a", "3"), event{at("b"), nil}, blobEvent("large", "value"))
	w.contents["value"] = "large one"
	for i, c := range []struct {
		what     string
		events   []event
		changed  string
		reported bool
		want     string
	}{
		{"a commit", []event{headEvent(), putEvent("a", "1"), putEvent("b", "1")}, "a b", true, "1001 a=1@1001 b=1@1001"},
		{"the key of a writer", []event{{"state/writer/x", []byte("1")}}, "", false, "1001 a=1@1001 b=1@1001"},
		{"the same content", []event{headEvent(), putEvent("a", "1")}, "", true, "1003 a=1@1001 b=1@1001"},
		{"a deletion", []event{headEvent(), {at("b"), nil}, {at("c"), nil}}, "b", true, "1004 a=1@1001"},
		{"a put without head", []event{putEvent("b", "9")}, "b", true, "1005 a=1@1001 b=9@1005"},
		{"a large commit", []event{headEvent(), pendingEvent("batch")}, "a b large", true, "1006 a=3@1006 large=large one@1006"},
		{"a part of its fold", []event{{at("a"), record{updated: begin, revision: 6, raw: []byte("3")}.encode(at("a"))}, {at("b"), nil}}, "", false, "1006 a=3@1006 large=large one@1006"},
		{"the end of its fold", []event{blobEvent("large", "value"), {"state/pending", nil}}, "", false, "1006 a=3@1006 large=large one@1006"},
		{"a turn", []event{{"state/turn", []byte("x")}}, "", false, "1006 a=3@1006 large=large one@1006"},
	} {
		changed, reported := w.step(t, int64(i+1), c.events...)
		if changed != c.changed || reported != c.reported || text(w.snapshot) != c.want || w.applied != int64(i+1) {
			t.Errorf("%s: changed %q, reported %t: %s, want %s", c.what, changed, reported, text(w.snapshot), c.want)
		}
		if pending := w.pending != nil; pending != (i == 5 || i == 6) {
			t.Errorf("%s: pending is %t", c.what, pending)
		}
	}
	if w.fetched != 2 || len(w.problems) != 0 || w.blobs[at("large")] != "value" {
		t.Errorf("%d fetched, problems %v, blobs %v", w.fetched, w.problems, w.blobs)
	}
}

func TestAnOwnCommitIsNotFetched(t *testing.T) {
	w := newWorld()
	own := func(n string) *store.Entry { return &store.Entry{Key: name(n), Raw: []byte("own"), Value: "value"} }
	w.own["1"] = &ownCommit{changes: store.Changes{name("a"): own("a")}, blobs: references{at("a"): ""}}
	w.own["2"] = &ownCommit{changes: store.Changes{name("b"): own("b"), name("a"): nil}, blobs: references{at("b"): "blob", at("a"): ""}}
	writer := func(v string) event { return event{"state/writer/w", []byte(v)} }
	w.step(t, 1, writer("1"), headEvent(), putEvent("a", "own"))
	w.step(t, 2, writer("2"), headEvent(), pendingEvent("batch"))
	w.step(t, 3, blobEvent("b", "blob"), event{"state/pending", nil})
	e, _ := w.snapshot.Get(name("b"))
	if e.Value != "value" || text(w.snapshot) != "1002 b=own@1002" || w.fetched != 0 || !maps.Equal(w.blobs, references{at("b"): "blob"}) {
		t.Errorf("%s, value %v, %d fetched, blobs %v", text(w.snapshot), e.Value, w.fetched, w.blobs)
	}
}

// TestARevisionWithoutItsBlob is applied later, or not at all if the blob is damaged.
func TestARevisionWithoutItsBlob(t *testing.T) {
	w := newWorld()
	w.step(t, 1, headEvent(), putEvent("a", "1"))
	w.contents["value"], w.away = "content", true
	if _, err := w.apply(t.Context(), revision{2, []event{headEvent(), putEvent("b", "1"), blobEvent("a", "value")}}); !errors.Is(err, errAway) {
		t.Errorf("got %v", err)
	}
	if text(w.snapshot) != "1001 a=1@1001" || w.applied != 1 {
		t.Errorf("half applied: %s", text(w.snapshot))
	}
	w.away = false
	w.step(t, 2, headEvent(), putEvent("b", "1"), blobEvent("a", "gone"))
	if text(w.snapshot) != "1002 a=1@1001 b=1@1002" || !strings.Contains(fmt.Sprint(w.problems[at("a")]), "missing") {
		t.Errorf("a damaged blob: %s, %v", text(w.snapshot), w.problems)
	}
	w.step(t, 3, headEvent(), blobEvent("a", "value"))
	if text(w.snapshot) != "1003 a=content@1003 b=1@1002" || len(w.problems) != 0 {
		t.Errorf("a sound one: %s, %v", text(w.snapshot), w.problems)
	}
}

func TestLoad(t *testing.T) {
	w := newWorld()
	w.contents["batch"], w.contents["value"] = batchOf(putEvent("a", "3"), event{at("b"), nil}), "large"
	w.step(t, 1, headEvent(), putEvent("same", "1"), putEvent("gone", "1"), putEvent("bad", "1"), putEvent("a", "1"))
	entry, _ := w.snapshot.Get(name("same"))
	entry.Value = "decoded"
	w.snapshot, _ = w.snapshot.Apply(store.Changes{name("same"): &entry}, 1001)
	all := []keyValue{
		{headEvent(), 9},
		{pendingEvent("batch"), 9},
		{event{"state/writer/w", nil}, 3},
		{putEvent("same", "1"), 1},
		{putEvent("a", "2"), 5},
		{putEvent("b", "2"), 5},
		{event{at("bad"), []byte("?")}, 6},
		{blobEvent("c", "value"), 7},
	}
	c, err := w.load(t.Context(), 12, all)
	if err != nil {
		t.Fatal(err)
	}
	if want := "1009 a=3@1009 bad=1@1001 c=large@1007 same=1@1001"; text(c.After) != want || w.applied != 12 || w.pending == nil || w.pending.revision != 9 {
		t.Errorf("got %s, want %s", text(c.After), want)
	}
	if got := fmt.Sprint(c.Changed); got != fmt.Sprint([]resource.Key{name("a"), name("c"), name("gone")}) {
		t.Errorf("changed: %s", got)
	}
	if len(w.problems) != 1 || !maps.Equal(w.blobs, references{at("c"): "value"}) {
		t.Errorf("problems %v, blobs %v", w.problems, w.blobs)
	}
	// A key was deleted without a commit: the index does not become smaller.
	w.snapshot = w.snapshot.At(1011)
	if c, err := w.load(t.Context(), 12, all); err != nil || c.After.Index() != 1011 {
		t.Errorf("index %d, %v", c.After.Index(), err)
	}
	if c, err := w.load(t.Context(), 12, append(slices.Clip(all), keyValue{putEvent("d", "1"), 12})); err != nil || c.After.Index() != 1012 {
		t.Errorf("index %d after a put without a commit, %v", c.After.Index(), err)
	}
	// Again, with a blob that is known and cannot be fetched now.
	w.away = true
	if _, err := w.load(t.Context(), 13, slices.Concat(all[:1], all[2:])); err != nil {
		t.Errorf("a known blob is fetched: %v", err)
	}
	before := text(w.snapshot)
	if _, err := w.load(t.Context(), 14, append(all[:1:1], keyValue{blobEvent("c", "other"), 14})); !errors.Is(err, errAway) || text(w.snapshot) != before || w.applied != 13 {
		t.Errorf("half loaded: %v, %s", err, text(w.snapshot))
	}
}
