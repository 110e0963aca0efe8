package service_test

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/sources"
)

func TestWatchEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := start(t, "", nil)
		defer stop()
		begin := func(f observe.EventFilter, lastID string) watching {
			got, err := s.WatchEvents(f, lastID)
			return watch(t, got, err)
		}
		// kinds are the types of the messages that are there.
		kinds := func(w watching) string {
			var all []string
			for {
				m, _ := w.within(time.Second)
				switch m.kind {
				case "":
					return fmt.Sprint(all)
				case "event":
					e := read[observe.Event](t, m.data)
					if m.id != strconv.FormatUint(e.ID, 10) {
						t.Errorf("id %s of event %d", m.id, e.ID)
					}
					all = append(all, string(e.Type))
				default:
					all = append(all, m.kind+m.data)
				}
			}
		}
		live, pushes := begin(observe.EventFilter{}, ""), begin(observe.EventFilter{Types: []observe.EventType{observe.EventPushed, observe.EventPushRefused}, Cluster: "a"}, "")
		defer live.Close()
		defer pushes.Close()
		if got := kinds(live); got != "[]" {
			t.Errorf("at first: %s", got)
		}
		pushOne(t, s, "a", "h")
		pushOne(t, s, "b", "h")
		const four = "priority_switched connection_changed state_changed pushed"
		if got := kinds(live); got != "["+four+" "+four+"]" {
			t.Errorf("live: %s", got)
		}
		if got := kinds(pushes); got != "[pushed]" {
			t.Errorf("pushes of a: %s", got)
		}

		all := s.Events(observe.EventFilter{Limit: 100})
		id := func(n int) string { return strconv.FormatUint(all[n].ID, 10) }
		for _, c := range []struct {
			filter observe.EventFilter
			lastID string
			want   string
		}{
			{observe.EventFilter{Limit: 2}, "", "[state_changed pushed]"},
			{observe.EventFilter{Limit: 2, Types: []observe.EventType{observe.EventPushed}}, "", "[pushed pushed]"},
			{observe.EventFilter{Limit: 2}, id(0), "[]"},
			{observe.EventFilter{}, id(1), "[pushed]"},
			{observe.EventFilter{Cluster: "a"}, id(4), "[]"},
			{observe.EventFilter{Cluster: "a"}, id(5), "[pushed]"},
			{observe.EventFilter{}, strconv.FormatUint(all[7].ID-1, 10), "[" + four + " " + four + "]"},
			{observe.EventFilter{}, strconv.FormatUint(all[7].ID-2, 10), "[resync{}]"}, // another process's
			{observe.EventFilter{}, strconv.FormatUint(all[0].ID+1, 10), "[resync{}]"},
			{observe.EventFilter{}, "nonsense", "[resync{}]"},
		} {
			w := begin(c.filter, c.lastID)
			if got := kinds(w); got != c.want {
				t.Errorf("%+v after %q: %s, want %s", c.filter, c.lastID, got, c.want)
			}
			w.Close()
		}
	})
}

// TestForgottenEventsAreReported: only to watchers that may match them.
func TestForgottenEventsAreReported(t *testing.T) {
	s, _ := start(t, "", nil)
	pushOne(t, s, "orders", "h")
	known := strconv.FormatUint(s.Events(observe.EventFilter{Limit: 1})[0].ID, 10)
	refuse := func(n int) {
		for range n {
			if _, err := s.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "x", Body: []byte("{")}); err == nil {
				t.Fatal("half a body was taken")
			}
		}
	}
	begin := func(f observe.EventFilter) watching {
		got, err := s.WatchEvents(f, known)
		w := watch(t, got, err)
		t.Cleanup(w.Close)
		return w
	}
	slow := begin(observe.EventFilter{})
	refuse(observe.MaxRefusedEvents)
	for range 3 {
		begin(observe.EventFilter{}).must("event")
	}
	refuse(1)
	if m := begin(observe.EventFilter{}).must("resync"); m.id != strconv.FormatUint(s.Events(observe.EventFilter{Limit: 1})[0].ID, 10) {
		t.Errorf("the resync does not lead to the newest: %v", m)
	}
	slow.must("resync")
	begin(observe.EventFilter{Types: []observe.EventType{observe.EventPushRefused}}).must("resync")
	pushOne(t, s, "orders", "other")
	begin(observe.EventFilter{Types: []observe.EventType{observe.EventPushed}}).must("event")
	slow.must("event")
}

// TestManyEventsComeInOrder: none is lost or sent twice, however many there are at a
// time.
func TestManyEventsComeInOrder(t *testing.T) {
	s, _ := start(t, "", nil)
	got, err := s.WatchEvents(observe.EventFilter{}, "")
	w := watch(t, got, err)
	defer w.Close()
	for i := range 100 {
		pushOne(t, s, fmt.Sprint("c", i%3), fmt.Sprint("h", i))
	}
	all := s.Events(observe.EventFilter{Limit: 1000})
	if len(all) < 200 {
		t.Fatalf("only %d events", len(all))
	}
	for i := range all {
		if m := w.must("event"); m.id != strconv.FormatUint(all[len(all)-1-i].ID, 10) {
			t.Fatalf("%s comes as number %d, want %d", m.id, i, all[len(all)-1-i].ID)
		}
	}
}
