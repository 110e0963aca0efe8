package service_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/service"
)

func TestEventsTellWhatHappened(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, service.Config, "orders", config(t, 5))
	push(t, s, service.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 2)}))
	leases, err := pick(s, service.PickRequest{Cluster: "orders", N: 5, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := pick(s, service.PickRequest{Cluster: "orders"}); code(err) != service.CircuitBroken {
			t.Fatal(err)
		}
	}
	for _, p := range leases.Picks {
		if _, err := s.EndLease(p.Lease.ID, service.Success, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Push(t.Context(), &service.PushRequest{
		Kind: service.Endpoints, Cluster: "orders", Body: []byte("{"), From: "10.1.2.3",
	}); err == nil {
		t.Fatal("pushed half a body")
	}
	var got []string
	all := s.Events(service.EventFilter{Limit: 100})
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
	if of := s.Events(service.EventFilter{Types: []service.EventType{service.EventPushed}, Limit: 1}); len(of) != 1 || of[0].Changes[0].Resource != "ClusterLoadAssignment/orders" {
		t.Errorf("the last push: %+v", of)
	}
	if of := s.Events(service.EventFilter{Cluster: "nobody", Limit: 1}); len(of) != 0 {
		t.Errorf("of nobody: %+v", of)
	}
}

func TestEventsAreBounded(t *testing.T) {
	s, _ := start(t, "", nil)
	first := push(t, s, service.Config, "orders", config(t, 1))
	for i := range service.MaxConnectionEvents + 5 {
		push(t, s, service.Endpoints, fmt.Sprint("c", i%7), assignment(t, nil, place{"a", 0, 1, []object{endpoint(fmt.Sprint("h", i))}}))
	}
	connections := s.Events(service.EventFilter{Types: []service.EventType{service.EventConnectionChanged}, Limit: 1 << 20})
	if len(connections) != service.MaxConnectionEvents || connections[0].Address != fmt.Sprintf("h%d:80", service.MaxConnectionEvents+4) {
		t.Errorf("%d connection events, the newest %+v", len(connections), connections[0])
	}
	pushes := s.Events(service.EventFilter{Types: []service.EventType{service.EventPushed}, Cluster: "orders", Limit: 10})
	if len(pushes) != 1 || first.New == false {
		t.Errorf("the connections pushed a push out: %+v", pushes)
	}
	if all := s.Events(service.EventFilter{Limit: 1 << 20}); len(all) > service.MaxEvents+service.MaxConnectionEvents {
		t.Errorf("%d events", len(all))
	}
}

func TestEventsFollowTheBreakersLimit(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, service.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	var got []string
	for _, limit := range []int{0, 100, 0, 0, 1} {
		push(t, s, service.Config, "orders", config(t, limit))
		_, _ = pick(s, service.PickRequest{Cluster: "orders"})
	}
	for _, e := range s.Events(service.EventFilter{Limit: 100}) {
		if e.Type == service.EventBreakerOpened || e.Type == service.EventBreakerClosed {
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
	push(t, s, service.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	push(t, s, service.Config, "orders", config(t, 1))
	const others = 5
	for range service.MaxBreakerEvents/2 + others {
		p, err := pick(s, service.PickRequest{Cluster: "orders", TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pick(s, service.PickRequest{Cluster: "orders"}); code(err) != service.CircuitBroken {
			t.Fatal(err)
		}
		if _, err := s.EndLease(p.Picks[0].Lease.ID, service.Success, nil); err != nil {
			t.Fatal(err)
		}
	}
	breakers := s.Events(service.EventFilter{Types: []service.EventType{service.EventBreakerOpened, service.EventBreakerClosed}, Limit: 1 << 20})
	if len(breakers) != service.MaxBreakerEvents || breakers[0].Type != service.EventBreakerClosed {
		t.Errorf("%d events of the breaker, the newest %+v", len(breakers), breakers[0])
	}
	if of := s.Events(service.EventFilter{Types: []service.EventType{service.EventPushed}, Limit: 10}); len(of) != 2 {
		t.Errorf("the breaker pushed a push out: %+v", of)
	}
}

func TestRefusedPushesPushNothingOut(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, service.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	for range service.MaxEvents + 1 {
		if _, err := s.Push(t.Context(), &service.PushRequest{Kind: service.Endpoints, Cluster: "x", Body: []byte("{")}); err == nil {
			t.Fatal("half a body was taken")
		}
	}
	for eventType, want := range map[service.EventType]int{
		service.EventPushed: 1, service.EventPrioritySwitched: 1, service.EventPushRefused: service.MaxRefusedEvents,
	} {
		if got := len(s.Events(service.EventFilter{Types: []service.EventType{eventType}, Limit: 1 << 20})); got != want {
			t.Errorf("%d events %s, want %d", got, eventType, want)
		}
	}
}

// TestDeletionOfNothingIsNoEvent: nobody was kept from anything.
func TestDeletionOfNothingIsNoEvent(t *testing.T) {
	s, _ := start(t, "", nil)
	for _, kind := range []service.Kind{service.Endpoints, service.Config} {
		if _, err := s.Delete(t.Context(), &service.DeleteRequest{Kind: kind, Cluster: "nobody"}); code(err) != service.UnknownCluster {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if all := s.Events(service.EventFilter{Limit: 100}); len(all) != 0 {
		t.Errorf("events %+v", all)
	}
	old := service.Precondition{IfMatch: []string{"old"}}
	if _, err := s.Delete(t.Context(), &service.DeleteRequest{Kind: service.Config, Cluster: "nobody", Precondition: old}); code(err) != service.PreconditionFailed {
		t.Error(err)
	}
	if all := s.Events(service.EventFilter{Limit: 100}); len(all) != 1 || all[0].Reason != string(service.PreconditionFailed) {
		t.Errorf("of a precondition that failed: %+v", all)
	}
}

// TestAPushOfSeveralIsOfEachOfThem that it lists.
func TestAPushOfSeveralIsOfEachOfThem(t *testing.T) {
	s, _ := start(t, "", nil)
	pushAll(t, s, assigned("a", "a-1"), assigned("b", "b-1"), listener("shop", route("/", "a")))
	for name, want := range map[string]int{"a": 1, "b": 1, "shop": 0, "c": 0, "": 1} {
		got := s.Events(service.EventFilter{Cluster: name, Types: []service.EventType{service.EventPushed}, Limit: 10})
		if len(got) != want {
			t.Errorf("of %q: %+v", name, got)
		}
	}
}
