package service_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestASlowlyClosingTreeBlocksNothing: picks no longer find it, and other trees are
// updated.
func TestASlowlyClosingTreeBlocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connector := make(stuckConnector)
		s, stop := start(t, "", func(o *service.Options) {
			o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: connector}
		})
		defer stop()
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
					if _, err := s.EndLease(p.Lease.ID, picks.Success, nil); err != nil {
						t.Error(err)
					}
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
