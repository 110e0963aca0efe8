package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestClusterState holds a cluster's state, with all it can show of a healthy
// cluster, against testdata/cluster.json. LBD_TEST_UPDATE=1 writes it anew.
func TestClusterState(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Config, "orders", config(t, 5))
	push(t, s, sources.Endpoints, "orders", assignment(t, []object{drop("throttle", 5)},
		place{"a", 0, 3, append(endpoints("a", 2), object{"health_status": "UNHEALTHY", "endpoint": endpoint("ill")["endpoint"]})},
		place{"b", 0, 1, endpoints("b", 1)},
		place{"z", 1, 1, endpoints("z", 1)},
	))
	if _, err := pick(s, picks.Request{Cluster: "orders", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	c, err := s.Cluster(t.Context(), "orders", "", true)
	if err != nil {
		t.Fatal(err)
	}
	if c.Generation < time.Now().Add(-time.Minute).UnixMilli() || time.Since(c.Updated) > time.Minute {
		t.Errorf("generation %d, updated %v", c.Generation, c.Updated)
	}
	if since := c.Priorities[0].InUseSince; since == nil || time.Since(*since) > time.Minute {
		t.Errorf("in use since %v", since)
	}
	c.Generation, c.Updated, c.Age, c.Priorities[0].InUseSince = 0, time.Time{}, "0s", new(time.Time)
	got, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	const golden = "testdata/cluster.json"
	if os.Getenv("LBD_TEST_UPDATE") != "" {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("got %s", got)
	}
}

func TestAwaitClusterAnswersOnChange(t *testing.T) {
	s, _ := start(t, "", nil)
	first := push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	if err := s.AwaitCluster(t.Context(), "orders", "", first.Generation, 0); err != nil {
		t.Errorf("no wait: %v", err)
	}
	if err := s.AwaitCluster(t.Context(), "orders", "", first.Generation-1, time.Hour); err != nil {
		t.Errorf("another generation: %v", err)
	}
	done := make(chan error)
	go func() { done <- s.AwaitCluster(t.Context(), "orders", "", first.Generation, time.Hour) }()
	push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"b", 0, 1, endpoints("b", 1)}))
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := s.AwaitCluster(t.Context(), "unknown", "", 0, 0); code(err) != fault.UnknownCluster {
		t.Errorf("an unknown cluster: %v", err)
	}
}

// TestDrainEndsLongPolls: they would hold the server's shutdown as long as they
// may wait.
func TestDrainEndsLongPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := start(t, "", nil)
		defer stop()
		first := push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
		asked := time.Now()
		done := make(chan error)
		go func() { done <- s.AwaitCluster(t.Context(), "orders", "", first.Generation, time.Hour) }()
		synctest.Wait()
		s.Drain()
		if err := <-done; err != nil || !time.Now().Equal(asked) {
			t.Errorf("after %v: %v", time.Since(asked), err)
		}
		if c, err := s.Cluster(t.Context(), "orders", "", true); err != nil || c.Generation != first.Generation {
			t.Errorf("while draining: %+v, %v", c, err)
		}
		s.Close()
		if _, err := s.Cluster(t.Context(), "orders", "", true); code(err) != fault.ShuttingDown {
			t.Errorf("once closed: %v", err)
		}
	})
}

// TestClusterBeforeItsFirstBatch: a cluster whose tree has still to take its
// first config is CONNECTING.
func TestClusterBeforeItsFirstBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connector := make(stuckConnector)
		s, stop := start(t, "", func(o *service.Options) {
			o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: connector}
		})
		defer stop()
		go func() {
			push(t, s, sources.Endpoints, "new", assignment(t, nil, place{"stuck", 0, 1, endpoints("stuck", 1)}))
		}()
		synctest.Wait()
		all := s.Clusters()
		if len(all) != 1 || all[0].State != "CONNECTING" || all[0].PriorityInUse != -1 {
			t.Errorf("%+v; want it CONNECTING, without a priority", all)
		}
		close(connector)
		synctest.Wait()
	})
}

// TestClusterWhoseTreeDoesNotAnswer: it is waited for, and the daemon's fault. A
// caller that leaves earlier gets that error.
func TestClusterWhoseTreeDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connector := make(stuckConnector)
		s, stop := start(t, "", func(o *service.Options) {
			o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: connector}
		})
		defer stop()
		go func() {
			push(t, s, sources.Endpoints, "new", assignment(t, nil, place{"stuck", 0, 1, endpoints("stuck", 1)}))
		}()
		synctest.Wait()
		began := time.Now()
		_, err := s.Cluster(t.Context(), "new", "", true)
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != fault.Internal || e.Cluster != "new" || time.Since(began) != 5*time.Second {
			t.Errorf("after %v: %#v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Cluster(ctx, "new", "", true); code(err) != fault.CallerGone {
			t.Errorf("the caller left: %v", err)
		}
		close(connector)
		synctest.Wait()
	})
}
