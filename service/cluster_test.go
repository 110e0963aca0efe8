package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestClusterState holds a cluster's state, with all it can show of a healthy
// cluster, against testdata/cluster.json. LBD_TEST_UPDATE=1 writes it anew.
func TestClusterState(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Config, "orders", servicetest.Config(5))
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment([]servicetest.Object{servicetest.Drop("throttle", 5)},
		servicetest.Place("a", 0, 3, append(servicetest.Endpoints("a", 2), servicetest.Object{"health_status": "UNHEALTHY", "endpoint": servicetest.Endpoint("ill")["endpoint"]})),
		servicetest.Place("b", 0, 1, servicetest.Endpoints("b", 1)),
		servicetest.Place("z", 1, 1, servicetest.Endpoints("z", 1)),
	))
	mustPick(t, s, picks.Request{Cluster: "orders", TTL: time.Minute})
	c := clusterState(t, s, "orders", "", true)
	if c.Generation < time.Now().Add(-time.Minute).UnixMilli() || time.Since(c.Updated) > time.Minute {
		t.Errorf("generation %d, updated %v", c.Generation, c.Updated)
	}
	if since := c.Priorities[0].InUseSince; since == nil || time.Since(*since) > time.Minute {
		t.Errorf("in use since %v", since)
	}
	c.Generation, c.Updated, c.Age, c.Priorities[0].InUseSince, c.StateSince = 0, time.Time{}, "0s", new(time.Time), nil
	got, err := json.MarshalIndent(c, "", "  ")
	servicetest.Must(t, err)
	got = append(got, '\n')
	const golden = "testdata/cluster.json"
	if os.Getenv("LBD_TEST_UPDATE") != "" {
		servicetest.Must(t, os.WriteFile(golden, got, 0o600))
	}
	want, err := os.ReadFile(golden)
	servicetest.Must(t, err)
	if string(got) != string(want) {
		t.Errorf("got %s", got)
	}
}

func TestAwaitClusterAnswersOnChange(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	first := servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
	if err := s.State.AwaitCluster(t.Context(), "orders", "", first.Generation, 0); err != nil {
		t.Errorf("no wait: %v", err)
	}
	if err := s.State.AwaitCluster(t.Context(), "orders", "", first.Generation-1, time.Hour); err != nil {
		t.Errorf("another generation: %v", err)
	}
	done := make(chan error)
	go func() { done <- s.State.AwaitCluster(t.Context(), "orders", "", first.Generation, time.Hour) }()
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("b", 1))
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := s.State.AwaitCluster(t.Context(), "unknown", "", 0, 0); servicetest.Code(err) != fault.UnknownCluster {
		t.Errorf("an unknown cluster: %v", err)
	}
}

// TestDrainEndsLongPolls: they would hold the server's shutdown as long as they
// may wait.
func TestDrainEndsLongPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		first := servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
		asked := time.Now()
		done := make(chan error)
		go func() { done <- s.State.AwaitCluster(t.Context(), "orders", "", first.Generation, time.Hour) }()
		synctest.Wait()
		s.Drain()
		if err := <-done; err != nil || !time.Now().Equal(asked) {
			t.Errorf("after %v: %v", time.Since(asked), err)
		}
		if c, err := s.State.Cluster(t.Context(), "orders", "", true); err != nil || c.Generation != first.Generation {
			t.Errorf("while draining: %+v, %v", c, err)
		}
		s.Close()
		if _, err := s.State.Cluster(t.Context(), "orders", "", true); servicetest.Code(err) != fault.ShuttingDown {
			t.Errorf("once closed: %v", err)
		}
	})
}

// TestClusterBeforeItsFirstBatch: a cluster whose tree has still to take its
// first config is CONNECTING.
func TestClusterBeforeItsFirstBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, connector, _ := startStuck(t)
		go func() {
			servicetest.Push(t, s, sources.Endpoints, "new", servicetest.Usable("stuck", 1))
		}()
		synctest.Wait()
		all := s.State.Clusters()
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
		s, connector, _ := startStuck(t)
		go func() {
			servicetest.Push(t, s, sources.Endpoints, "new", servicetest.Usable("stuck", 1))
		}()
		synctest.Wait()
		began := time.Now()
		_, err := s.State.Cluster(t.Context(), "new", "", true)
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != fault.Internal || e.Cluster != "new" || time.Since(began) != 5*time.Second {
			t.Errorf("after %v: %#v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.State.Cluster(ctx, "new", "", true); servicetest.Code(err) != fault.CallerGone {
			t.Errorf("the caller left: %v", err)
		}
		close(connector)
		synctest.Wait()
	})
}

// TestSharesInTheState: every policy of lbd's own says where its picks go; of one
// that only grpc has nobody knows.
func TestSharesInTheState(t *testing.T) {
	for policy, config := range map[string][]byte{
		"ROUND_ROBIN":   servicetest.Encode(servicetest.Object{"type": "EDS"}),
		"LEAST_REQUEST": servicetest.Encode(servicetest.Object{"type": "EDS", "lb_policy": "LEAST_REQUEST"}),
		"RING_HASH":     servicetest.Encode(servicetest.Object{"type": "EDS", "lb_policy": "RING_HASH"}),
		"custom":        fussyCluster(servicetest.Object{"endpoints": "any"}),
	} {
		t.Run(policy, func(t *testing.T) {
			s, _ := servicetest.Start(t, "", nil)
			servicetest.Push(t, s, sources.Config, "orders", config)
			servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment(nil,
				servicetest.Place("a", 0, 3, servicetest.Endpoints("a", 2)), servicetest.Place("b", 0, 1, servicetest.Endpoints("b", 1)), servicetest.Place("c", 1, 1, servicetest.Endpoints("c", 1))))
			for i := range 100 { // until all are connected
				_, _ = servicetest.Pick(s, picks.Request{Cluster: "orders", WaitForReady: true, Wait: time.Second, Hash: fmt.Sprint(i)})
			}
			c := clusterState(t, s, "orders", "", true)
			together := 0.0
			for _, l := range c.Priorities[0].Localities {
				known := 0.0
				for _, e := range l.Endpoints {
					if (e.Share == nil) != (policy == "custom") {
						t.Errorf("%s of %s: share %v", e.Address, l.Locality, e.Share)
						continue
					}
					if e.Share != nil {
						known += *e.Share
					}
				}
				if policy != "custom" && (l.Share == nil || math.Abs(*l.Share-known) > 1e-9) {
					t.Errorf("%v has the share %v, its endpoints %v", l.Locality, l.Share, known)
				}
				together += known
			}
			if policy != "custom" && math.Abs(together-1) > 1e-9 {
				t.Errorf("the shares come to %v", together)
			}
			if l := c.Priorities[1].Localities[0]; *l.Share != 0 || *l.Endpoints[0].Share != 0 {
				t.Errorf("a priority that is not in use: %+v", l)
			}
		})
	}
}

func TestInUseSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		began := time.Now()
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints("a", 1)), servicetest.Place("b", 1, 1, servicetest.Endpoints("b", 1))))
		synctest.Wait()
		time.Sleep(time.Minute)
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints("a", 2)), servicetest.Place("b", 1, 1, servicetest.Endpoints("b", 1))))
		synctest.Wait()
		c := clusterState(t, s, "orders", "", false)
		if p := c.Priorities; p[0].InUseSince == nil || !p[0].InUseSince.Equal(began) || p[1].InUseSince != nil {
			t.Errorf("in use since %v and %v, want %v and never", p[0].InUseSince, p[1].InUseSince, began)
		}
	})
}

// TestExplainNamesLeaves: a priority of an aggregate is one of a leaf.
func TestExplainNamesLeaves(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	_, err := s.Sources.Push(t.Context(), &sources.PushRequest{
		Kind: sources.Endpoints, Cluster: "near", Options: sources.ChangeOptions{AllowEmpty: true}, Body: servicetest.Assignment(nil, servicetest.Place("n", 0, 1, nil), servicetest.Place("m", 1, 1, nil)),
	})
	servicetest.Must(t, err)
	servicetest.Push(t, s, sources.Endpoints, "far", servicetest.Usable("f", 1))
	servicetest.Push(t, s, sources.Config, "agg", aggregate("near", "far"))
	out := mustPick(t, s, picks.Request{Cluster: "agg", Explain: true})
	var leaf *picks.LeafStep
	for _, step := range out.Picks[0].Explain {
		if step.Leaf != nil {
			leaf = step.Leaf
			if want := "leaf far is in use (READY); leaf near was skipped: "; !strings.HasPrefix(step.Says, want) {
				t.Errorf("says %q, want %q…", step.Says, want)
			}
		}
		if p := step.Priority; p != nil {
			if p.Priority != 2 || p.Cluster != "far" || len(p.PassedOver) != 0 || step.Says != "priority 2 of far is in use (READY)" {
				t.Errorf("the priority: %+v, says %q", p, step.Says)
			}
			if leaf == nil || leaf.Cluster != "far" || len(leaf.PassedOver) != 1 || leaf.PassedOver[0].Cluster != "near" {
				t.Errorf("the leaf, which comes first: %+v", leaf)
			}
			return
		}
	}
	t.Errorf("no priority in %+v", out.Picks[0].Explain)
}

func TestClosedServiceRefuses(t *testing.T) {
	s, stop := servicetest.Start(t, t.TempDir(), nil)
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
	stop()
	if _, err := servicetest.Pick(s, picks.Request{Cluster: "orders"}); servicetest.Code(err) != fault.ShuttingDown {
		t.Errorf("pick: %v", err)
	}
	_, err := s.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "x", Body: servicetest.Usable("a", 1)})
	if servicetest.Code(err) != fault.ShuttingDown {
		t.Errorf("push: %v", err)
	}
}

// stuckConnector blocks the trees that connect to a host whose name begins with "stuck",
// until it is closed.
type stuckConnector chan struct{}

func (c stuckConnector) Start(addresses []string, report func(lb.Connection)) (stop func()) {
	if strings.HasPrefix(addresses[0], "stuck") {
		<-c
	}
	go report(lb.Connection{Address: addresses[0]})
	return func() {}
}

// startStuck starts a service with a stuckConnector.
func startStuck(t *testing.T) (s *service.Service, connector stuckConnector, stop func()) {
	t.Helper()
	connector = make(stuckConnector)
	s, stop = servicetest.Start(t, "", func(o *service.Options) {
		o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: connector, resource.ConnectNone: nil}
	})
	return s, connector, stop
}

// TestPushWaitsForItsOwnClusters: a slow tree delays only the pushes that change it.
func TestPushWaitsForItsOwnClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, connector, _ := startStuck(t)
		body := func(zone string) []byte {
			return servicetest.Usable(zone, 1)
		}
		// The assignment serves another cluster, and not the one of its name.
		servicetest.Push(t, s, sources.Config, "shared", []byte(`{"type":"EDS","eds_cluster_config":{"service_name":"elsewhere"}}`))
		servicetest.Push(t, s, sources.Config, "user", []byte(`{"type":"EDS","eds_cluster_config":{"service_name":"shared"}}`))
		var pushed atomic.Int32
		for _, name := range []string{"stuck", "shared"} {
			go func() {
				servicetest.Push(t, s, sources.Endpoints, name, body("stuck"))
				pushed.Add(1)
			}()
		}
		synctest.Wait()
		servicetest.Push(t, s, sources.Endpoints, "quick", body("quick"))
		servicetest.Push(t, s, sources.Endpoints, "quick", body("quick")) // unchanged
		if _, err := s.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "quick", Options: sources.ChangeOptions{DryRun: true}, Body: body("other")}); err != nil {
			t.Error(err)
		}
		deleteEndpoints(t, s, "quick")
		if n := pushed.Load(); n != 0 {
			t.Errorf("%d pushes did not wait for their own trees", n)
		}
		close(connector)
		synctest.Wait()
		if n := pushed.Load(); n != 2 {
			t.Errorf("%d of 2 pushes returned", n)
		}
	})
}
