package service_test

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
)

func TestEvents(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Config, "orders", servicetest.Config(5))
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
	leases := mustPick(t, s, picks.Request{Cluster: "orders", N: 5, TTL: time.Minute})
	for range 3 {
		mustRefuse(t, s, picks.Request{Cluster: "orders"}, fault.CircuitBroken)
	}
	for _, p := range leases.Picks {
		endLease(t, s, p.Lease.ID, picks.Success, nil)
	}
	if _, err := s.Sources.Push(t.Context(), &sources.PushRequest{
		Kind: sources.Endpoints, Cluster: "orders", Body: []byte("{"), Options: sources.ChangeOptions{From: "10.1.2.3"},
	}); err == nil {
		t.Fatal("pushed half a body")
	}
	var got []string
	all := s.Events.Last(observe.EventFilter{Limit: 100})
	for i, e := range all {
		got = append(got, string(e.Type))
		if e.Says == "" || e.Time.IsZero() || i > 0 && e.ID >= all[i-1].ID {
			t.Errorf("event %+v", e)
		}
	}
	want := "[push_refused circuit_breaker_closed circuit_breaker_opened pushed state_changed connection_changed connection_changed priority_switched pushed state_changed]"
	if fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
	if all[0].By != "10.1.2.3" || all[0].Cluster != "orders" {
		t.Errorf("who was refused: %+v", all[0])
	}
	if of := s.Events.Last(observe.EventFilter{Types: []observe.EventType{observe.EventPushed}, Limit: 1}); len(of) != 1 || of[0].Changes[0].Resource != "ClusterLoadAssignment/orders" {
		t.Errorf("the last push: %+v", of)
	}
	if of := s.Events.Last(observe.EventFilter{Cluster: "unknown", Limit: 1}); len(of) != 0 {
		t.Errorf("of an unknown cluster: %+v", of)
	}
}

func TestEventsAreBounded(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	first := servicetest.Push(t, s, sources.Config, "orders", servicetest.Config(1))
	for i := range observe.MaxConnectionEvents + 5 {
		servicetest.Push(t, s, sources.Endpoints, fmt.Sprint("c", i%7), servicetest.Assignment(nil, servicetest.Place("a", 0, 1, []servicetest.Object{servicetest.Endpoint(fmt.Sprint("h", i))})))
	}
	connections := s.Events.Last(observe.EventFilter{Types: []observe.EventType{observe.EventConnectionChanged}, Limit: 1 << 20})
	if len(connections) != observe.MaxConnectionEvents || connections[0].Address != fmt.Sprintf("h%d:80", observe.MaxConnectionEvents+4) {
		t.Errorf("%d connection events, the newest %+v", len(connections), connections[0])
	}
	pushes := s.Events.Last(observe.EventFilter{Types: []observe.EventType{observe.EventPushed}, Cluster: "orders", Limit: 10})
	if len(pushes) != 1 || first.New == false {
		t.Errorf("the connections pushed a push out: %+v", pushes)
	}
	if all := s.Events.Last(observe.EventFilter{Limit: 1 << 20}); len(all) > observe.MaxEvents+observe.MaxConnectionEvents {
		t.Errorf("%d events", len(all))
	}
}

func TestEventsFollowTheBreakersLimit(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
	var got []string
	for _, limit := range []int{0, 100, 0, 0, 1} {
		servicetest.Push(t, s, sources.Config, "orders", servicetest.Config(limit))
		_, _ = servicetest.Pick(s, picks.Request{Cluster: "orders"})
	}
	for _, e := range s.Events.Last(observe.EventFilter{Limit: 100}) {
		if e.Type == observe.EventBreakerOpened || e.Type == observe.EventBreakerClosed {
			got = append(got, string(e.Type))
		}
	}
	want := "[circuit_breaker_closed circuit_breaker_opened circuit_breaker_closed circuit_breaker_opened]"
	if fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
}

func TestBreakersPushNothingOut(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
	servicetest.Push(t, s, sources.Config, "orders", servicetest.Config(1))
	const others = 5
	for range observe.MaxBreakerEvents/2 + others {
		p := mustPick(t, s, picks.Request{Cluster: "orders", TTL: time.Minute})
		mustRefuse(t, s, picks.Request{Cluster: "orders"}, fault.CircuitBroken)
		endLease(t, s, p.Picks[0].Lease.ID, picks.Success, nil)
	}
	breakers := s.Events.Last(observe.EventFilter{Types: []observe.EventType{observe.EventBreakerOpened, observe.EventBreakerClosed}, Limit: 1 << 20})
	if len(breakers) != observe.MaxBreakerEvents || breakers[0].Type != observe.EventBreakerClosed {
		t.Errorf("%d events of the breaker, the newest %+v", len(breakers), breakers[0])
	}
	if of := s.Events.Last(observe.EventFilter{Types: []observe.EventType{observe.EventPushed}, Limit: 10}); len(of) != 2 {
		t.Errorf("the breaker pushed a push out: %+v", of)
	}
}

func TestRefusedPushesPushNothingOut(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
	for range observe.MaxEvents + 1 {
		if _, err := s.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "x", Body: []byte("{")}); err == nil {
			t.Fatal("half a body was taken")
		}
	}
	for eventType, want := range map[observe.EventType]int{
		observe.EventPushed: 1, observe.EventPrioritySwitched: 1, observe.EventPushRefused: observe.MaxRefusedEvents,
	} {
		servicetest.Expect(t, string(eventType), len(s.Events.Last(observe.EventFilter{Types: []observe.EventType{eventType}, Limit: 1 << 20})), want)
	}
}

func TestWatchEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		begin := func(f observe.EventFilter, lastID string) watching {
			return watch(t)(s.Watches.WatchEvents(f, lastID))
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
		servicetest.Expect(t, "at first", kinds(live), "[]")
		pushOne(t, s, "a", "h")
		pushOne(t, s, "b", "h")
		const four = "priority_switched connection_changed state_changed pushed"
		servicetest.Expect(t, "live", kinds(live), "["+four+" "+four+"]")
		servicetest.Expect(t, "pushes of a", kinds(pushes), "[pushed]")

		all := s.Events.Last(observe.EventFilter{Limit: 100})
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
			servicetest.Expect(t, fmt.Sprintf("%+v after %q", c.filter, c.lastID), kinds(w), c.want)
			w.Close()
		}
	})
}

// TestForgottenEventsAreReported: only to watchers that may match them.
func TestForgottenEventsAreReported(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	pushOne(t, s, "orders", "h")
	known := strconv.FormatUint(s.Events.Last(observe.EventFilter{Limit: 1})[0].ID, 10)
	refuse := func(n int) {
		for range n {
			if _, err := s.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "x", Body: []byte("{")}); err == nil {
				t.Fatal("half a body was taken")
			}
		}
	}
	begin := func(f observe.EventFilter) watching {
		w := watch(t)(s.Watches.WatchEvents(f, known))
		t.Cleanup(w.Close)
		return w
	}
	slow := begin(observe.EventFilter{})
	refuse(observe.MaxRefusedEvents)
	for range 3 {
		begin(observe.EventFilter{}).must("event")
	}
	refuse(1)
	if m := begin(observe.EventFilter{}).must("resync"); m.id != strconv.FormatUint(s.Events.Last(observe.EventFilter{Limit: 1})[0].ID, 10) {
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
	s, _ := servicetest.Start(t, "", nil)
	w := watch(t)(s.Watches.WatchEvents(observe.EventFilter{}, ""))
	defer w.Close()
	for i := range 100 {
		pushOne(t, s, fmt.Sprint("c", i%3), fmt.Sprint("h", i))
	}
	all := s.Events.Last(observe.EventFilter{Limit: 1000})
	if len(all) < 200 {
		t.Fatalf("only %d events", len(all))
	}
	for i := range all {
		if m := w.must("event"); m.id != strconv.FormatUint(all[len(all)-1-i].ID, 10) {
			t.Fatalf("%s comes as number %d, want %d", m.id, i, all[len(all)-1-i].ID)
		}
	}
}
