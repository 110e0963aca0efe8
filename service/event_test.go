package service_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
)

func TestEvents(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Config, "orders", config(t, 5))
	push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 2)}))
	leases, err := pick(s, picks.Request{Cluster: "orders", N: 5, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := pick(s, picks.Request{Cluster: "orders"}); code(err) != fault.CircuitBroken {
			t.Fatal(err)
		}
	}
	for _, p := range leases.Picks {
		if _, err := s.EndLease(p.Lease.ID, picks.Success, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Push(t.Context(), &sources.PushRequest{
		Kind: sources.Endpoints, Cluster: "orders", Body: []byte("{"), ChangeOptions: sources.ChangeOptions{From: "10.1.2.3"},
	}); err == nil {
		t.Fatal("pushed half a body")
	}
	var got []string
	all := s.Events(observe.EventFilter{Limit: 100})
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
	if of := s.Events(observe.EventFilter{Types: []observe.EventType{observe.EventPushed}, Limit: 1}); len(of) != 1 || of[0].Changes[0].Resource != "ClusterLoadAssignment/orders" {
		t.Errorf("the last push: %+v", of)
	}
	if of := s.Events(observe.EventFilter{Cluster: "unknown", Limit: 1}); len(of) != 0 {
		t.Errorf("of an unknown cluster: %+v", of)
	}
}

func TestEventsAreBounded(t *testing.T) {
	s, _ := start(t, "", nil)
	first := push(t, s, sources.Config, "orders", config(t, 1))
	for i := range observe.MaxConnectionEvents + 5 {
		push(t, s, sources.Endpoints, fmt.Sprint("c", i%7), assignment(t, nil, place{"a", 0, 1, []object{endpoint(fmt.Sprint("h", i))}}))
	}
	connections := s.Events(observe.EventFilter{Types: []observe.EventType{observe.EventConnectionChanged}, Limit: 1 << 20})
	if len(connections) != observe.MaxConnectionEvents || connections[0].Address != fmt.Sprintf("h%d:80", observe.MaxConnectionEvents+4) {
		t.Errorf("%d connection events, the newest %+v", len(connections), connections[0])
	}
	pushes := s.Events(observe.EventFilter{Types: []observe.EventType{observe.EventPushed}, Cluster: "orders", Limit: 10})
	if len(pushes) != 1 || first.New == false {
		t.Errorf("the connections pushed a push out: %+v", pushes)
	}
	if all := s.Events(observe.EventFilter{Limit: 1 << 20}); len(all) > observe.MaxEvents+observe.MaxConnectionEvents {
		t.Errorf("%d events", len(all))
	}
}

func TestEventsFollowTheBreakersLimit(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	var got []string
	for _, limit := range []int{0, 100, 0, 0, 1} {
		push(t, s, sources.Config, "orders", config(t, limit))
		_, _ = pick(s, picks.Request{Cluster: "orders"})
	}
	for _, e := range s.Events(observe.EventFilter{Limit: 100}) {
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
	s, _ := start(t, "", nil)
	push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	push(t, s, sources.Config, "orders", config(t, 1))
	const others = 5
	for range observe.MaxBreakerEvents/2 + others {
		p, err := pick(s, picks.Request{Cluster: "orders", TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pick(s, picks.Request{Cluster: "orders"}); code(err) != fault.CircuitBroken {
			t.Fatal(err)
		}
		if _, err := s.EndLease(p.Picks[0].Lease.ID, picks.Success, nil); err != nil {
			t.Fatal(err)
		}
	}
	breakers := s.Events(observe.EventFilter{Types: []observe.EventType{observe.EventBreakerOpened, observe.EventBreakerClosed}, Limit: 1 << 20})
	if len(breakers) != observe.MaxBreakerEvents || breakers[0].Type != observe.EventBreakerClosed {
		t.Errorf("%d events of the breaker, the newest %+v", len(breakers), breakers[0])
	}
	if of := s.Events(observe.EventFilter{Types: []observe.EventType{observe.EventPushed}, Limit: 10}); len(of) != 2 {
		t.Errorf("the breaker pushed a push out: %+v", of)
	}
}

func TestRefusedPushesPushNothingOut(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	for range observe.MaxEvents + 1 {
		if _, err := s.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "x", Body: []byte("{")}); err == nil {
			t.Fatal("half a body was taken")
		}
	}
	for eventType, want := range map[observe.EventType]int{
		observe.EventPushed: 1, observe.EventPrioritySwitched: 1, observe.EventPushRefused: observe.MaxRefusedEvents,
	} {
		if got := len(s.Events(observe.EventFilter{Types: []observe.EventType{eventType}, Limit: 1 << 20})); got != want {
			t.Errorf("%d events %s, want %d", got, eventType, want)
		}
	}
}

// TestDeletionOfNothingIsNoEvent: nothing changed.
func TestDeletionOfNothingIsNoEvent(t *testing.T) {
	s, _ := start(t, "", nil)
	for _, kind := range []sources.Kind{sources.Endpoints, sources.Config} {
		if _, err := s.Delete(t.Context(), kind, "unknown", sources.ChangeOptions{}); code(err) != fault.UnknownCluster {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if all := s.Events(observe.EventFilter{Limit: 100}); len(all) != 0 {
		t.Errorf("events %+v", all)
	}
	old := sources.Precondition{IfMatch: []string{"old"}}
	if _, err := s.Delete(t.Context(), sources.Config, "unknown", sources.ChangeOptions{Precondition: old}); code(err) != fault.PreconditionFailed {
		t.Error(err)
	}
	if all := s.Events(observe.EventFilter{Limit: 100}); len(all) != 1 || all[0].Reason != string(fault.PreconditionFailed) {
		t.Errorf("of a precondition that failed: %+v", all)
	}
}

// TestAPushOfSeveralIsOfEachOfThem that it lists.
func TestAPushOfSeveralIsOfEachOfThem(t *testing.T) {
	s, _ := start(t, "", nil)
	pushAll(t, s, assigned("a", "a-1"), assigned("b", "b-1"), listener("shop", route("/", "a")))
	for name, want := range map[string]int{"a": 1, "b": 1, "shop": 0, "c": 0, "": 1} {
		got := s.Events(observe.EventFilter{Cluster: name, Types: []observe.EventType{observe.EventPushed}, Limit: 10})
		if len(got) != want {
			t.Errorf("of %q: %+v", name, got)
		}
	}
}
