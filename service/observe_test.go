package service_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/service/timeline"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestSumsHoldWithAClusterInSeveralTargets: what has a target label is there once
// for each tree, the rest once for the cluster; and all of it goes with them.
func TestSumsHoldWithAClusterInSeveralTargets(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	none, err := testutil.GatherAndCount(s.Metrics)
	servicetest.Must(t, err)
	a := servicetest.Assigned("a", "a-1")
	a["policy"] = servicetest.Object{"drop_overloads": []servicetest.Object{servicetest.Drop("none", 0)}}
	servicetest.PushAll(t, s, a, servicetest.Listener("shop", servicetest.Route("/", "a")), servicetest.Listener("zoo", servicetest.Route("/a", "a"), servicetest.Route("/gone", "gone")))
	idle, err := testutil.GatherAndCount(s.Metrics)
	servicetest.Must(t, err)
	// 15, and 3 for the category; 8 for each target more. "gone", which nobody has
	// and so nobody updated, has 6 with the target's label and 2 without.
	if want := 18 + 8 + 8 + 6 + 2; idle-none != want {
		t.Errorf("%d series, want %d", idle-none, want)
	}
	leases := map[string]picks.LeaseID{}
	for name, n := range map[string]int{"": 1, "shop": 2, "zoo": 3} {
		r := picks.Request{Target: name, Path: "/a", N: n, TTL: time.Minute}
		if name == "" {
			r.Cluster, r.Path = "a", ""
		}
		out := mustPick(t, s, r)
		leases[name] = out.Picks[0].Lease.ID
	}
	for _, path := range []string{"/other", "/gone"} {
		if _, err := servicetest.Pick(s, picks.Request{Target: "zoo", Path: path}); err == nil {
			t.Fatal("picked")
		}
	}
	for _, id := range leases {
		endLease(t, s, id, picks.Success, nil)
	}
	const (
		inFlight = `
lbd_circuit_breaker_in_flight{cluster="a"} 3
lbd_leases_active{cluster="a"} 3
`
		ended = `lbd_leases_finished_total{cluster="a",outcome="success"} 3
`
		drops = `lbd_drops_total{category="none",cluster="a"} 0
`
		judged = `lbd_judged_picks_total{cluster="a"} 6
`
		picks = `lbd_picks_total{cluster="a",result="ok",target=""} 1
`
		places = `lbd_locality_picks_total{cluster="a",locality="//",priority="0",target=""} 1
`
		connects = `lbd_connect_attempts_total{cluster="a",result="ok",target=""} 1
`
	)
	service.CompareSeries(t, s.Metrics, strings.ReplaceAll(inFlight, `lbd_leases_active{cluster="a"} 3
`, `lbd_leases_active{cluster="a"} 3
lbd_leases_active{cluster="gone"} 0
`)+ended+drops+judged+picks+`lbd_picks_total{cluster="a",result="ok",target="xds:///shop"} 2
lbd_picks_total{cluster="a",result="ok",target="xds:///zoo"} 3
lbd_picks_total{cluster="",result="no_route",target="xds:///zoo"} 1
lbd_picks_total{cluster="gone",result="no_ready_endpoint",target="xds:///zoo"} 1
lbd_picks_total{cluster="gone",result="ok",target="xds:///zoo"} 0
`+places+`lbd_locality_picks_total{cluster="a",locality="//",priority="0",target="xds:///shop"} 2
lbd_locality_picks_total{cluster="a",locality="//",priority="0",target="xds:///zoo"} 3
`+connects+`lbd_connect_attempts_total{cluster="a",result="ok",target="xds:///shop"} 1
lbd_connect_attempts_total{cluster="a",result="ok",target="xds:///zoo"} 1
`)
	// Leases of targets that are gone are held all the same.
	remove(t, s, a)
	service.CompareSeries(t, s.Metrics, inFlight+ended+drops+judged+picks+places+connects)
	remove(t, s)
	if left, err := testutil.GatherAndCount(s.Metrics); err != nil || left != none {
		t.Errorf("%d series are left, %v", left-none, err)
	}
	problems, err := testutil.GatherAndLint(s.Metrics)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %+v, %v", problems, err)
	}
}

func remove(tb testing.TB, s *service.Service, keep ...servicetest.Object) {
	tb.Helper()
	_, err := s.Sources.PushSnapshot(tb.Context(), &sources.SnapshotRequest{
		Body: servicetest.Encode(servicetest.Object{"resources": keep}), Replace: true, MaxRemoved: -1, Options: sources.ChangeOptions{AllowEmpty: true},
	})
	servicetest.Must(tb, err)
}

// TestASlowlyClosingTreeBlocksNothing: picks no longer find it, and other trees are
// updated.
func TestASlowlyClosingTreeBlocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, connector, stop := startStuck(t)
		body := servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints("stuck", 1)))
		key := resource.Key{Type: sources.Endpoints, Name: "filed"}
		filed, _, err := decode.Item(resource.Item{Key: key, Raw: body}, decode.Options{Name: key.Name})
		servicetest.Must(t, err)
		s.Sources.FilesChanged(files.Set{Resources: map[resource.Key]files.Resource{key: {Item: filed, File: "filed.yaml"}}})
		synctest.Wait()
		if _, err := servicetest.Pick(s, picks.Request{Cluster: "filed"}); servicetest.Code(err) != fault.PickTimeout {
			t.Fatalf("the tree answers: %v", err)
		}
		closed := make(chan struct{})
		go func() {
			s.Sources.FilesChanged(files.Set{})
			close(closed)
		}()
		synctest.Wait()
		servicetest.Push(t, s, sources.Endpoints, "quick", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints("quick", 1))))
		if _, err := servicetest.Pick(s, picks.Request{Cluster: "filed"}); servicetest.Code(err) != fault.UnknownCluster {
			t.Errorf("picked from what is gone: %v", err)
		}
		if _, err := testutil.GatherAndCount(s.Metrics); err != nil {
			t.Error(err)
		}
		select {
		case <-closed:
			t.Error("the tree is closed already: it was not slow")
		default:
		}
		stopped := make(chan struct{})
		go func() {
			stop()
			close(stopped)
		}()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("the service closed before the tree had")
		default:
		}
		close(connector)
		<-stopped
	})
}

// TestTargetsMoveUnderPicks: while targets come and go, every pick is answered, and no
// lease remains.
func TestTargetsMoveUnderPicks(t *testing.T) {
	if testing.Short() {
		t.Skip("long: picks all the time while targets change")
	}
	s, _ := servicetest.Start(t, "", nil)
	clusters := []servicetest.Object{servicetest.Assigned("a", "a-1"), servicetest.Assigned("b", "b-1"), servicetest.Assigned("c", "c-1")}
	servicetest.PushAll(t, s, append(clusters, servicetest.Listener("shop", servicetest.Route("/", "a")))...)
	allowed := map[fault.Code]bool{"": true, fault.UnknownTarget: true, fault.NoRoute: true, fault.ShuttingDown: true}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, r := range []picks.Request{
		{Cluster: "a"},
		{Target: "shop", Path: "/x"},
		{Target: "zoo", Path: "/", N: 3},
		{Target: "shop", Path: "/x", TTL: time.Minute},
		{Target: "zoo", Path: "/", TTL: time.Minute},
	} {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				r.Wait = time.Second
				out, err := servicetest.Pick(s, r)
				if !allowed[servicetest.Code(err)] || err == nil && len(out.Picks) == 0 {
					t.Errorf("%+v: %s: %v", r, servicetest.Code(err), err)
				}
				for _, p := range out.Picks {
					if p.Lease.ID.IsZero() {
						continue
					}
					endLease(t, s, p.Lease.ID, picks.Success, nil)
				}
			}
		})
	}
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			s.State.Clusters()
			if _, err := s.State.Targets(); err != nil {
				t.Error(err)
			}
			if _, err := s.State.Cluster(t.Context(), "b", "shop", true); err != nil && servicetest.Code(err) != fault.UnknownCluster && servicetest.Code(err) != fault.UnknownTarget {
				t.Error(err)
			}
			if _, err := testutil.GatherAndCount(s.Metrics); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 60 {
		shop := [][]servicetest.Object{{servicetest.Route("/", "a")}, {servicetest.Route("/", "b=1", "c=1")}, {servicetest.Route("/y", "a"), servicetest.Route("/", "b=1", "c=2")}}[i%3]
		all := append([]servicetest.Object{servicetest.Listener("shop", shop...)}, clusters...)
		if i%4 != 0 {
			all = append(all, servicetest.Listener("zoo", servicetest.Route("/", "c")))
		}
		remove(t, s, all...)
	}
	close(done)
	wg.Wait()
	for _, c := range s.State.Clusters() {
		if c.Breaker.InFlight != 0 {
			t.Errorf("%s: %d in flight", c.Name, c.Breaker.InFlight)
		}
		if state, err := s.State.Cluster(t.Context(), c.Name, "", false); err != nil || state.Leases != 0 {
			t.Errorf("%s: %d leases, %v", c.Name, state.Leases, err)
		}
	}
}

// recall returns the timeline of a cluster in JSON, without its times.
func recall(t *testing.T, s *service.Service, r observe.TimelineRequest) string {
	t.Helper()
	h, err := s.Timeline.Of(r)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	for i := range h.Segments {
		h.Segments[i].Start = time.Time{}
	}
	b, err := json.Marshal(h.Segments)
	servicetest.Must(t, err)
	return string(b)
}

const timeless = `{"start":"0001-01-01T00:00:00Z",`

func TestTimeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints("a", 1)), servicetest.Place("b", 1, 1, servicetest.Endpoints("b", 1))))
		picks := func(n int) {
			for range n {
				_, _ = servicetest.Pick(s, picks.Request{Cluster: "orders"})
			}
			time.Sleep(time.Second)
		}
		orders := observe.TimelineRequest{Cluster: "orders", Step: timeline.Fine}
		time.Sleep(3 * time.Second)
		servicetest.Expect(t, "before the first pick", recall(t, s, orders), "[]")
		began := time.Now()
		picks(3)
		picks(0)
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment([]servicetest.Object{servicetest.Drop("shed", 100)}, servicetest.Place("b", 0, 1, servicetest.Endpoints("b", 1))))
		picks(0) // so that the category is known
		picks(5)
		const want = "[" + timeless + `"priority":[0,0,0,0],"picks":{"dropped":[0,0,0,5],"ok":[3,0,0,0]},` +
			`"drops":[{"category":"shed","dropped":[0,0,0,5]}],"breakers":[{"in_flight":[0,0,0,0],"max_requests":[1024,1024,1024,1024]}]}]`
		servicetest.Expect(t, "timeline", recall(t, s, orders), want)
		h, err := s.Timeline.Of(orders)
		if err != nil || h.Step != "1s" || h.Cluster != "orders" || !h.Segments[0].Start.Equal(timeline.Next(began)) {
			t.Errorf("%v: %+v", err, h)
		}
		if got := recall(t, s, observe.TimelineRequest{Cluster: "orders", Since: time.Now().Add(-time.Second)}); got !=
			"["+timeless+`"priority":[0],"picks":{"dropped":[5],"ok":[0]},"drops":[{"category":"shed","dropped":[5]}],"breakers":[{"in_flight":[0],"max_requests":[1024]}]}]` {
			t.Errorf("since a second ago: %s", got)
		}
		if n, err := testutil.GatherAndCount(s.Metrics, "lbd_history_bytes", "lbd_history_evicted_bytes_total"); n != 2 || err != nil {
			t.Errorf("%d metrics of the timeline: %v", n, err)
		}
		time.Sleep(10 * time.Second)
		if h, err := s.Timeline.Of(observe.TimelineRequest{Cluster: "orders", Since: began.Add(-time.Hour)}); err != nil || h.Step != "10s" || len(h.Segments) != 1 {
			t.Errorf("since an hour ago: %v: %+v", err, h)
		}
		if _, err := s.Timeline.Of(observe.TimelineRequest{Cluster: "unknown"}); servicetest.Code(err) != fault.UnknownCluster {
			t.Errorf("a cluster that is not known: %v", err)
		}
		if _, err := s.Timeline.Of(observe.TimelineRequest{Cluster: "orders", Target: "unknown"}); servicetest.Code(err) != fault.UnknownTarget {
			t.Errorf("a target that is not known: %v", err)
		}
	})
}

// A failover is in the timeline, and what was refused before it; so is a removal.
func TestTimelineOfAFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		second := func(n int) {
			for range n {
				_, _ = servicetest.Pick(s, picks.Request{Cluster: "orders"})
			}
			time.Sleep(time.Second)
		}
		orders := observe.TimelineRequest{Cluster: "orders", Step: timeline.Fine}
		both := servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints("a", 1)), servicetest.Place("b", 1, 1, servicetest.Endpoints("b", 1)))
		sick := servicetest.Endpoints("a", 1)
		sick[0]["health_status"] = "UNHEALTHY"
		servicetest.Push(t, s, sources.Endpoints, "orders", both)
		second(1)
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, sick), servicetest.Place("b", 1, 1, servicetest.Endpoints("b", 1))))
		second(2)
		_, err := s.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Options: sources.ChangeOptions{AllowEmpty: true}, Body: servicetest.Assignment(nil, servicetest.Place("a", 0, 1, sick))})
		servicetest.Must(t, err)
		second(3)
		const first = timeless + `"priority":[0,1,0],"picks":{"no_ready_endpoint":[0,0,3],"ok":[1,2,0]},"drops":[],` +
			`"breakers":[{"in_flight":[0,0,0],"max_requests":[1024,1024,1024]}]}`
		servicetest.Expect(t, "timeline", recall(t, s, orders), "["+first+"]")

		deleteEndpoints(t, s, "orders")
		time.Sleep(5 * time.Second)
		servicetest.Expect(t, "after the removal", recall(t, s, orders), "["+first+"]")
		servicetest.Push(t, s, sources.Endpoints, "orders", both)
		second(4)
		const again = timeless + `"priority":[0],"picks":{"ok":[4]},"drops":[],"breakers":[{"in_flight":[0],"max_requests":[1024]}]}`
		servicetest.Expect(t, "back", recall(t, s, orders), "["+first+","+again+"]")
	})
}

func TestNoTimeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", func(o *service.Options) { o.TimelineBytes = -1 })
		pushOne(t, s, "orders", "h")
		mustPick(t, s, picks.Request{Cluster: "orders"})
		time.Sleep(5 * time.Second)
		servicetest.Expect(t, "recall", recall(t, s, observe.TimelineRequest{Cluster: "orders"}), "[]")
	})
}

// update is the data of a message about all clusters.
type update struct {
	Clusters []observe.WatchedCluster `json:"clusters"`
	Removed  []string                 `json:"removed"`
}

// namesIn returns the clusters in a message: "orders", and "-orders" if it was
// removed.
func namesIn(t testing.TB, m message) string {
	t.Helper()
	u := read[update](t, m.data)
	names := []string{}
	for _, c := range u.Clusters {
		names = append(names, c.Name)
	}
	for _, name := range u.Removed {
		names = append(names, "-"+name)
	}
	return m.kind + " " + strings.Join(names, " ")
}

func pushOne(t testing.TB, s *service.Service, cluster, host string) {
	t.Helper()
	servicetest.Push(t, s, sources.Endpoints, cluster, servicetest.Assignment([]servicetest.Object{servicetest.Drop("d", 0)}, servicetest.Place("a", 0, 1, []servicetest.Object{servicetest.Endpoint(host)})))
}

func TestWatchClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		for _, name := range []string{"b", "a", "shop/b", "shop/a"} {
			pushOne(t, s, name, "h")
		}
		begin := func(prefix, lastID string) watching {
			return watch(t)(s.Watches.WatchClusters(nil, prefix, lastID))
		}
		all, shop := begin("", ""), begin("shop/", "")
		defer all.Close()
		next := func(w watching, want string) message {
			t.Helper()
			m, after := w.within(time.Minute)
			if got := namesIn(t, m); got != want || after > time.Second {
				t.Errorf("after %v: %q, want %q", after, got, want)
			}
			return m
		}
		first := next(all, "resync a b shop/a shop/b")
		next(shop, "resync shop/a shop/b")
		if c := read[update](t, first.data).Clusters[0]; c.State != "READY" || c.Endpoints.Total != 1 || c.Counts.Cluster != "a" || c.Counts.Localities != nil || !c.Counts.Time.Equal(time.Now()) {
			t.Errorf("a cluster: %+v", c)
		}
		if m, _ := all.within(idle); m.kind != "" {
			t.Errorf("nothing happened, but %v was sent", m)
		}

		_, _ = servicetest.Pick(s, picks.Request{Cluster: "b"})
		second := next(all, "update b")
		if c := read[update](t, second.data).Clusters[0].Counts; c.Picks["ok"] != 1 || time.Since(c.Time) != 0 {
			t.Errorf("counts %+v", c)
		}
		pushOne(t, s, "shop/b", "other")
		deleteEndpoints(t, s, "shop/a")
		pushOne(t, s, "c", "h")
		next(all, "update c shop/b -shop/a")
		next(shop, "update shop/b -shop/a")
		if m, _ := shop.within(idle); m.kind != "" {
			t.Errorf("nothing happened under the prefix, but %v was sent", m)
		}
		shop.Close()

		// Later changes are sent together, once.
		_, _ = servicetest.Pick(s, picks.Request{Cluster: "b"})
		time.Sleep(2 * time.Second)
		pushOne(t, s, "shop/a", "h")
		time.Sleep(2 * time.Second)
		deleteEndpoints(t, s, "c")
		time.Sleep(2 * time.Second)
		last := next(all, "update b shop/a -c")

		for lastID, want := range map[string]string{
			"": "resync a b shop/a shop/b", "nonsense": "resync a b shop/a shop/b", "7": "resync a b shop/a shop/b",
			first.id: "update b shop/a shop/b -c", second.id: "update b shop/a shop/b -c",
			fmt.Sprint(1 << 62): "resync a b shop/a shop/b",
		} {
			w := begin("", lastID)
			next(w, want)
			w.Close()
		}
		w := begin("", last.id)
		defer w.Close()
		if m, _ := w.within(idle); m.kind != "" {
			t.Errorf("after the last: %v", m)
		}
		deleteEndpoints(t, s, "b")
		next(w, "update -b")
	})
}

// TestOverviewOfAnotherTime: the time before the first watcher is unknown.
func TestOverviewOfAnotherTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		pushOne(t, s, "a", "h")
		w := watch(t)(s.Watches.WatchClusters(nil, "", ""))
		id := w.must("resync").id
		w.Close()
		synctest.Wait()
		time.Sleep(time.Minute)
		w = watch(t)(s.Watches.WatchClusters(nil, "", id))
		w.must("resync")
		w.Close()
	})
}

// TestOverviewIsAsTheList: each cluster once, with the targets that have it, and
// those that only a target has.
func TestOverviewIsAsTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.PushAll(t, s, servicetest.Listener("shop", servicetest.Route("/", "a"), servicetest.Route("/b", "b")), servicetest.Listener("zoo", servicetest.Route("/", "b"), servicetest.Route("/x", "gone")), servicetest.Assigned("a", "a-1"), servicetest.Assigned("b", "b-1"))
		w := watch(t)(s.Watches.WatchClusters(nil, "", ""))
		defer w.Close()
		var summaries []observe.ClusterSummary
		for _, c := range read[update](t, w.must("resync").data).Clusters {
			summaries = append(summaries, c.ClusterSummary)
		}
		list := s.State.Clusters()
		if string(servicetest.Encode(summaries)) != string(servicetest.Encode(list)) || len(list) != 3 {
			t.Errorf("watched %s\nlisted  %s", servicetest.Encode(summaries), servicetest.Encode(list))
		}
		if i := slices.IndexFunc(list, func(c observe.ClusterSummary) bool { return c.Name == "b" }); fmt.Sprint(list[i].Targets) != "[xds:///shop xds:///zoo]" {
			t.Errorf("b is in %v", list[i].Targets)
		}
	})
}
