package service_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestSumsHoldWithAClusterInSeveralTargets: what has a target label is there once
// for each tree, the rest once for the cluster; and all of it goes with them.
func TestSumsHoldWithAClusterInSeveralTargets(t *testing.T) {
	s, _ := start(t, "", nil)
	none, err := testutil.GatherAndCount(s.Registry())
	if err != nil {
		t.Fatal(err)
	}
	a := assigned("a", "a-1")
	a["policy"] = object{"drop_overloads": []object{drop("none", 0)}}
	pushAll(t, s, a, listener("shop", route("/", "a")), listener("zoo", route("/a", "a"), route("/gone", "gone")))
	idle, err := testutil.GatherAndCount(s.Registry())
	if err != nil {
		t.Fatal(err)
	}
	// 15, and 3 for the category; 8 for each target more. "gone", which nobody has
	// and so nobody updated, has 6 with the target's label and 2 without.
	if want := 18 + 8 + 8 + 6 + 2; idle-none != want {
		t.Errorf("%d series, want %d", idle-none, want)
	}
	leases := map[string]string{}
	for name, n := range map[string]int{"": 1, "shop": 2, "zoo": 3} {
		r := picks.Request{Target: name, Path: "/a", N: n, TTL: time.Minute}
		if name == "" {
			r.Cluster, r.Path = "a", ""
		}
		out := mustPick(t, s, r)
		leases[name] = out.Picks[0].Lease.ID
	}
	for _, path := range []string{"/other", "/gone"} {
		if _, err := pick(s, picks.Request{Target: "zoo", Path: path}); err == nil {
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
	service.CompareSeries(t, s.Registry(), strings.ReplaceAll(inFlight, `lbd_leases_active{cluster="a"} 3
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
	service.CompareSeries(t, s.Registry(), inFlight+ended+drops+judged+picks+places+connects)
	remove(t, s)
	if left, err := testutil.GatherAndCount(s.Registry()); err != nil || left != none {
		t.Errorf("%d series are left, %v", left-none, err)
	}
	problems, err := testutil.GatherAndLint(s.Registry())
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %+v, %v", problems, err)
	}
}

// TestASlowlyClosingTreeBlocksNothing: picks no longer find it, and other trees are
// updated.
func TestASlowlyClosingTreeBlocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, connector, stop := startStuck(t)
		body := assignment(t, nil, place{"a", 0, 1, endpoints("stuck", 1)})
		s.FilesChanged(inFiles(t, map[resource.Key][]byte{{Type: sources.Endpoints, Name: "filed"}: body}))
		synctest.Wait()
		if _, err := pick(s, picks.Request{Cluster: "filed"}); code(err) != fault.PickTimeout {
			t.Fatalf("the tree answers: %v", err)
		}
		closed := make(chan struct{})
		go func() {
			s.FilesChanged(files.Set{})
			close(closed)
		}()
		synctest.Wait()
		push(t, s, sources.Endpoints, "quick", assignment(t, nil, place{"a", 0, 1, endpoints("quick", 1)}))
		if _, err := pick(s, picks.Request{Cluster: "filed"}); code(err) != fault.UnknownCluster {
			t.Errorf("picked from what is gone: %v", err)
		}
		if _, err := testutil.GatherAndCount(s.Registry()); err != nil {
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
	s, _ := start(t, "", nil)
	clusters := []object{assigned("a", "a-1"), assigned("b", "b-1"), assigned("c", "c-1")}
	pushAll(t, s, append(clusters, listener("shop", route("/", "a")))...)
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
				out, err := pick(s, r)
				if !allowed[code(err)] || err == nil && len(out.Picks) == 0 {
					t.Errorf("%+v: %s: %v", r, code(err), err)
				}
				for _, p := range out.Picks {
					if p.Lease == nil {
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
			s.Clusters()
			if _, err := s.Targets(); err != nil {
				t.Error(err)
			}
			if _, err := s.Cluster(t.Context(), "b", "shop", true); err != nil && code(err) != fault.UnknownCluster && code(err) != fault.UnknownTarget {
				t.Error(err)
			}
			if _, err := testutil.GatherAndCount(s.Registry()); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 60 {
		shop := [][]object{{route("/", "a")}, {route("/", "b=1", "c=1")}, {route("/y", "a"), route("/", "b=1", "c=2")}}[i%3]
		all := append([]object{listener("shop", shop...)}, clusters...)
		if i%4 != 0 {
			all = append(all, listener("zoo", route("/", "c")))
		}
		remove(t, s, all...)
	}
	close(done)
	wg.Wait()
	for _, c := range s.Clusters() {
		if c.Breaker.InFlight != 0 {
			t.Errorf("%s: %d in flight", c.Name, c.Breaker.InFlight)
		}
		if state, err := s.Cluster(t.Context(), c.Name, "", false); err != nil || state.Leases != 0 {
			t.Errorf("%s: %d leases, %v", c.Name, state.Leases, err)
		}
	}
}
