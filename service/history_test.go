package service_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/history"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
)

// recall returns a cluster's history in JSON, without its times.
func recall(t *testing.T, s *service.Service, r observe.HistoryRequest) string {
	t.Helper()
	h, err := s.History(r)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	for i := range h.Segments {
		h.Segments[i].Start = time.Time{}
	}
	b, err := json.Marshal(h.Segments)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const timeless = `{"start":"0001-01-01T00:00:00Z",`

func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := start(t, "", nil)
		push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}, place{"b", 1, 1, endpoints("b", 1)}))
		picks := func(n int) {
			for range n {
				_, _ = pick(s, picks.Request{Cluster: "orders"})
			}
			time.Sleep(time.Second)
		}
		orders := observe.HistoryRequest{Cluster: "orders", Step: history.Fine}
		time.Sleep(3 * time.Second)
		if got := recall(t, s, orders); got != "[]" {
			t.Errorf("before the first pick: %s", got)
		}
		began := time.Now()
		picks(3)
		picks(0)
		push(t, s, sources.Endpoints, "orders", assignment(t, []object{drop("shed", 100)}, place{"b", 0, 1, endpoints("b", 1)}))
		picks(0) // so that the category is known
		picks(5)
		const want = "[" + timeless + `"priority":[0,0,0,0],"picks":{"dropped":[0,0,0,5],"ok":[3,0,0,0]},` +
			`"drops":[{"category":"shed","dropped":[0,0,0,5]}],"breakers":[{"in_flight":[0,0,0,0],"max_requests":[1024,1024,1024,1024]}]}]`
		if got := recall(t, s, orders); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		h, err := s.History(orders)
		if err != nil || h.Step != "1s" || h.Cluster != "orders" || !h.Segments[0].Start.Equal(history.Next(began)) {
			t.Errorf("%v: %+v", err, h)
		}
		if got := recall(t, s, observe.HistoryRequest{Cluster: "orders", Since: time.Now().Add(-time.Second)}); got !=
			"["+timeless+`"priority":[0],"picks":{"dropped":[5],"ok":[0]},"drops":[{"category":"shed","dropped":[5]}],"breakers":[{"in_flight":[0],"max_requests":[1024]}]}]` {
			t.Errorf("since a second ago: %s", got)
		}
		if n, err := testutil.GatherAndCount(s.Registry(), "lbd_history_bytes", "lbd_history_evicted_bytes_total"); n != 2 || err != nil {
			t.Errorf("%d metrics of the history: %v", n, err)
		}
		time.Sleep(10 * time.Second)
		if h, err := s.History(observe.HistoryRequest{Cluster: "orders", Since: began.Add(-time.Hour)}); err != nil || h.Step != "10s" || len(h.Segments) != 1 {
			t.Errorf("since an hour ago: %v: %+v", err, h)
		}
		if _, err := s.History(observe.HistoryRequest{Cluster: "unknown"}); code(err) != fault.UnknownCluster {
			t.Errorf("a cluster that is not known: %v", err)
		}
		if _, err := s.History(observe.HistoryRequest{Cluster: "orders", Target: "unknown"}); code(err) != fault.UnknownTarget {
			t.Errorf("a target that is not known: %v", err)
		}
	})
}

// A failover is in the history, and what was refused before it; so is a removal.
func TestHistoryOfAFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := start(t, "", nil)
		second := func(n int) {
			for range n {
				_, _ = pick(s, picks.Request{Cluster: "orders"})
			}
			time.Sleep(time.Second)
		}
		orders := observe.HistoryRequest{Cluster: "orders", Step: history.Fine}
		both := assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}, place{"b", 1, 1, endpoints("b", 1)})
		sick := endpoints("a", 1)
		sick[0]["health_status"] = "UNHEALTHY"
		push(t, s, sources.Endpoints, "orders", both)
		second(1)
		push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, sick}, place{"b", 1, 1, endpoints("b", 1)}))
		second(2)
		if _, err := s.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", AllowEmpty: true, Body: assignment(t, nil, place{"a", 0, 1, sick})}); err != nil {
			t.Fatal(err)
		}
		second(3)
		const first = timeless + `"priority":[0,1,0],"picks":{"no_ready_endpoint":[0,0,3],"ok":[1,2,0]},"drops":[],` +
			`"breakers":[{"in_flight":[0,0,0],"max_requests":[1024,1024,1024]}]}`
		if got := recall(t, s, orders); got != "["+first+"]" {
			t.Errorf("got  %s\nwant %s", got, first)
		}

		deleteResource(t, s, sources.Endpoints, "orders")
		time.Sleep(5 * time.Second)
		if got := recall(t, s, orders); got != "["+first+"]" {
			t.Errorf("after the removal: got  %s\nwant %s", got, first)
		}
		push(t, s, sources.Endpoints, "orders", both)
		second(4)
		const again = timeless + `"priority":[0],"picks":{"ok":[4]},"drops":[],"breakers":[{"in_flight":[0],"max_requests":[1024]}]}`
		if got := recall(t, s, orders); got != "["+first+","+again+"]" {
			t.Errorf("back: got  %s\nwant %s", got, again)
		}
	})
}

func TestNoHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := start(t, "", func(o *service.Options) { o.HistoryBytes = -1 })
		pushOne(t, s, "orders", "h")
		mustPick(t, s, picks.Request{Cluster: "orders"})
		time.Sleep(5 * time.Second)
		if got := recall(t, s, observe.HistoryRequest{Cluster: "orders"}); got != "[]" {
			t.Errorf("got %s", got)
		}
	})
}
