package service_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
)

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
	push(t, s, sources.Endpoints, cluster, assignment(t, []object{drop("d", 0)}, place{"a", 0, 1, []object{endpoint(host)}}))
}

func TestWatchClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := start(t, "", nil)
		for _, name := range []string{"b", "a", "shop/b", "shop/a"} {
			pushOne(t, s, name, "h")
		}
		begin := func(prefix, lastID string) watching {
			got, err := s.WatchClusters(prefix, lastID)
			return watch(t, got, err)
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

		_, _ = pick(s, picks.Request{Cluster: "b"})
		second := next(all, "update b")
		if c := read[update](t, second.data).Clusters[0].Counts; c.Picks["ok"] != 1 || time.Since(c.Time) != 0 {
			t.Errorf("counts %+v", c)
		}
		pushOne(t, s, "shop/b", "other")
		deleteResource(t, s, sources.Endpoints, "shop/a")
		pushOne(t, s, "c", "h")
		next(all, "update c shop/b -shop/a")
		next(shop, "update shop/b -shop/a")
		if m, _ := shop.within(idle); m.kind != "" {
			t.Errorf("nothing happened under the prefix, but %v was sent", m)
		}
		shop.Close()

		// Later changes are sent together, once.
		_, _ = pick(s, picks.Request{Cluster: "b"})
		time.Sleep(2 * time.Second)
		pushOne(t, s, "shop/a", "h")
		time.Sleep(2 * time.Second)
		deleteResource(t, s, sources.Endpoints, "c")
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
		deleteResource(t, s, sources.Endpoints, "b")
		next(w, "update -b")
	})
}

// TestOverviewOfAnotherTime: the time before the first watcher is unknown.
func TestOverviewOfAnotherTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := start(t, "", nil)
		pushOne(t, s, "a", "h")
		got, err := s.WatchClusters("", "")
		w := watch(t, got, err)
		id := w.must("resync").id
		w.Close()
		synctest.Wait()
		time.Sleep(time.Minute)
		got, err = s.WatchClusters("", id)
		w = watch(t, got, err)
		w.must("resync")
		w.Close()
	})
}

// TestOverviewIsAsTheList: each cluster once, with the targets that have it, and
// those that only a target has.
func TestOverviewIsAsTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := start(t, "", nil)
		pushAll(t, s, listener("shop", route("/", "a"), route("/b", "b")), listener("zoo", route("/", "b"), route("/x", "gone")), assigned("a", "a-1"), assigned("b", "b-1"))
		got, err := s.WatchClusters("", "")
		w := watch(t, got, err)
		defer w.Close()
		var summaries []observe.ClusterSummary
		for _, c := range read[update](t, w.must("resync").data).Clusters {
			summaries = append(summaries, c.ClusterSummary)
		}
		list := s.Clusters()
		if string(encode(t, summaries)) != string(encode(t, list)) || len(list) != 3 {
			t.Errorf("watched %s\nlisted  %s", encode(t, summaries), encode(t, list))
		}
		if i := slices.IndexFunc(list, func(c observe.ClusterSummary) bool { return c.Name == "b" }); fmt.Sprint(list[i].Targets) != "[xds:///shop xds:///zoo]" {
			t.Errorf("b is in %v", list[i].Targets)
		}
	})
}
