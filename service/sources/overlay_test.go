package sources_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resource"
)

func putOverlay(tb testing.TB, s *service.Service, id string, o overlays.NewOverlay) *sources.PushResult {
	tb.Helper()
	res, err := s.Sources.PutOverlay(tb.Context(), &sources.OverlayRequest{Overlay: o, Cluster: "orders", ID: id})
	if err != nil {
		tb.Fatalf("overlay %s: %v", id, err)
	}
	return res
}

// chosen counts the endpoints of n picks.
func chosen(tb testing.TB, s *service.Service, n int) map[string]int {
	tb.Helper()
	out := map[string]int{}
	for range n {
		p, err := servicetest.Pick(s, picks.Request{Cluster: "orders"})
		servicetest.Must(tb, err)
		out[p.Picks[0].Address]++
	}
	return out
}

func drain(address string) overlays.NewOverlay {
	return overlays.NewOverlay{Kind: "drain", Endpoint: address}
}

// TestDrain drains an endpoint of a push and of a file: no pick chooses it, leases end in their time, the
// drain outlives a change of the source, and an undo ends it.
func TestDrain(t *testing.T) {
	for _, source := range []string{"push", "file"} {
		t.Run(source, func(t *testing.T) {
			d := startFiled(t, &archive{})
			s := d.Service
			update := func(n int) {
				if source == "file" {
					d.scan(map[string]int{"orders": n})
					servicetest.Must(t, s.Sources.Settle(t.Context()))
					return
				}
				servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints("orders", n))))
			}
			update(2)
			var leases []picks.LeaseID
			for range 4 {
				p, err := servicetest.Pick(s, picks.Request{Cluster: "orders", TTL: time.Minute})
				servicetest.Must(t, err)
				if p.Picks[0].Address == "orders-0:80" {
					leases = append(leases, p.Picks[0].Lease.ID)
				}
			}
			putOverlay(t, s, "one", drain("orders-0:80"))
			if got := chosen(t, s, 10); got["orders-1:80"] != 10 {
				t.Errorf("picks: %v", got)
			}
			explained, err := servicetest.Pick(s, picks.Request{Cluster: "orders", Explain: true})
			servicetest.Must(t, err)
			if step := explained.Picks[0].Explain[1]; step.Step != "overlays" || step.Says != "overlay one drains endpoint orders-0:80" || len(step.Overlays) != 1 || step.Overlays[0].ID != "one" {
				t.Errorf("explained %+v", step)
			}
			is, err := s.Overlays.State("orders", "one")
			servicetest.Must(t, err)
			if *is.InFlight != int64(len(leases)) || len(leases) == 0 || *is.Endpoints != 1 {
				t.Errorf("%d in flight, of %d; %d endpoints", *is.InFlight, len(leases), *is.Endpoints)
			}
			update(3)
			if got := chosen(t, s, 10); got["orders-1:80"] != 5 || got["orders-2:80"] != 5 {
				t.Errorf("picks after a change of the source: %v", got)
			}
			for _, id := range leases {
				_, err = s.Picks.EndLease(id, picks.Success, nil)
				servicetest.Must(t, err)
			}
			servicetest.Must(t, s.Overlays.AwaitDrained(t.Context(), "orders", "one", time.Hour))
			if is, _ := s.Overlays.State("orders", "one"); *is.InFlight != 0 {
				t.Errorf("%d in flight at the end", *is.InFlight)
			}
			_, err = s.Sources.DeleteOverlay(t.Context(), "orders", "one", sources.ChangeOptions{})
			servicetest.Must(t, err)
			if got := chosen(t, s, 9); got["orders-0:80"] != 3 {
				t.Errorf("picks at the end: %v", got)
			}
			list, _, _, err := s.Sources.Changes(changelog.Filter{Name: "orders", Limit: 10}, nil)
			servicetest.Must(t, err)
			if len(list) < 2 || list[0].Changes[0].Resource != "Overlay/orders/one" || list[0].Changes[0].Change != "removed" {
				t.Errorf("history: %+v", list)
			}
		})
	}
}

// TestOverlayExpires also restarts the daemon: an overlay is durable, and ends in its time.
func TestOverlayExpires(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, stop := servicetest.Start(t, dir, nil)
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
		o := drain("a-0:80")
		o.Expires = "1h"
		putOverlay(t, s, "one", o)
		putOverlay(t, s, "two", overlays.NewOverlay{Kind: "drop", Percent: new(0.0), Expires: "30m"})
		time.Sleep(45 * time.Minute)
		synctest.Wait()
		if list, err := s.Overlays.States("", nil); err != nil || len(list) != 1 || list[0].ID != "one" {
			t.Errorf("overlays after 45 m: %+v, %v", list, err)
		}
		if got := servicetest.Says(s, observe.EventOverlayEnded); len(got) != 1 || !strings.Contains(got[0], "it has expired") {
			t.Errorf("events: %q", got)
		}
		stop()
		s, stop = servicetest.Start(t, dir, nil)
		if got := chosen(t, s, 4); got["a-1:80"] != 4 {
			t.Errorf("picks after a restart: %v", got)
		}
		time.Sleep(16 * time.Minute)
		synctest.Wait()
		if got := chosen(t, s, 4); got["a-0:80"] != 2 {
			t.Errorf("picks after the end: %v", got)
		}
		if list, err := s.Overlays.States("", nil); err != nil || len(list) != 0 {
			t.Errorf("overlays after 61 m: %+v, %v", list, err)
		}
		stop()
	})
}

func TestOverlayRefusals(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints("a", 2)), servicetest.Place("b", 1, 1, servicetest.Endpoints("b", 1))))
	for _, test := range []struct {
		name, cluster, id string
		o                 overlays.NewOverlay
		want              fault.Code
		says              string
	}{
		{"unknown cluster", "x", "i", drain("a-0:80"), fault.UnknownCluster, `"x"`},
		{"bad ID", "orders", "a/b", drain("a-0:80"), fault.InvalidArgument, "id"},
		{"no kind", "orders", "i", overlays.NewOverlay{}, fault.InvalidArgument, "kind: is missing"},
		{"unknown kind", "orders", "i", overlays.NewOverlay{Kind: "x"}, fault.InvalidArgument, "none of"},
		{"no subject", "orders", "i", overlays.NewOverlay{Kind: "drain"}, fault.InvalidArgument, "endpoint or locality: is missing"},
		{"two subjects", "orders", "i", overlays.NewOverlay{Kind: "drain", Endpoint: "a", Locality: &overlays.LocalityPattern{Zone: "a"}}, fault.InvalidArgument, "not of both"},
		{"an empty locality", "orders", "i", overlays.NewOverlay{Kind: "drain", Locality: &overlays.LocalityPattern{}}, fault.InvalidArgument, "names nothing"},
		{"a field of another kind", "orders", "i", overlays.NewOverlay{Kind: "drain", Endpoint: "a", Factor: new(1.0)}, fault.InvalidArgument, "factor: drain does not have it"},
		{"a negative factor", "orders", "i", overlays.NewOverlay{Kind: "weight", Endpoint: "a", Factor: new(-1.0)}, fault.InvalidArgument, "factor"},
		{"a large factor", "orders", "i", overlays.NewOverlay{Kind: "weight", Endpoint: "a", Factor: new(10.1)}, fault.InvalidArgument, "factor"},
		{"a large percentage", "orders", "i", overlays.NewOverlay{Kind: "drop", Percent: new(101.0)}, fault.InvalidArgument, "percent"},
		{"a tiny percentage", "orders", "i", overlays.NewOverlay{Kind: "drop", Percent: new(0.00004)}, fault.InvalidArgument, "percent: 4e-05 is less than 0.0001, and not 0"},
		{"text that reverses what follows", "orders", "i", overlays.NewOverlay{Kind: "hold_ejections", Reason: "a\u202eb"}, fault.InvalidArgument, "reason"},
		{"invalid UTF-8", "orders", "i", overlays.NewOverlay{Kind: "drain", Endpoint: "a\xff"}, fault.InvalidArgument, "endpoint"},
		{"a very late expiry", "orders", "i", overlays.NewOverlay{Kind: "hold_ejections", Expires: "9999-01-01T00:00:00Z"}, fault.InvalidArgument, "\"9999-01-01T00:00:00Z\" is more than 168h0m0s from now"},
		{"expired", "orders", "i", overlays.NewOverlay{Kind: "hold_ejections", Expires: "2020-01-01T00:00:00Z"}, fault.InvalidArgument, "in the past"},
		{"negative expiry", "orders", "i", overlays.NewOverlay{Kind: "hold_ejections", Expires: "-1h"}, fault.InvalidArgument, "in the past"},
		{"a late expiry", "orders", "i", overlays.NewOverlay{Kind: "hold_ejections", Expires: "169h"}, fault.InvalidArgument, "more than"},
		{"a bad expiry", "orders", "i", overlays.NewOverlay{Kind: "hold_ejections", Expires: "soon"}, fault.InvalidArgument, "neither"},
		{"a control character", "orders", "i", overlays.NewOverlay{Kind: "hold_ejections", Reason: "a\x1b[2J"}, fault.InvalidArgument, "reason"},
		{"force the first priority", "orders", "i", overlays.NewOverlay{Kind: "force_priority", Priority: new(0)}, fault.InvalidArgument, "priority"},
		{"force a priority that is not there", "orders", "i", overlays.NewOverlay{Kind: "force_priority", Priority: new(2)}, fault.Blocked, "allow_empty"},
		{"drain all", "orders", "i", overlays.NewOverlay{Kind: "force_priority", Priority: new(1)}, "", ""},
		{"drain the rest", "orders", "j", drain("b-0:80"), fault.Blocked, "allow_empty"},
	} {
		_, err := s.Sources.PutOverlay(t.Context(), &sources.OverlayRequest{Overlay: test.o, Cluster: test.cluster, ID: test.id})
		if servicetest.Code(err) != test.want || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if _, err := s.Sources.DeleteOverlay(t.Context(), "orders", "x", sources.ChangeOptions{}); servicetest.Code(err) != fault.UnknownOverlay || !strings.Contains(err.Error(), "it has i") {
		t.Errorf("deletion of what is not there: %v", err)
	}
	_, err := s.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Body: servicetest.Usable("a", 3)})
	if servicetest.Code(err) != fault.Blocked || !strings.Contains(err.Error(), "overlays take all of them out of use") {
		t.Errorf("a push whose endpoints are all out of use: %v", err)
	}
	if _, err := s.Sources.PutOverlay(t.Context(), &sources.OverlayRequest{Overlay: drain("b-0:80"), Cluster: "orders", ID: "j", Options: sources.ChangeOptions{AllowEmpty: true}}); err != nil {
		t.Errorf("with allow_empty: %v", err)
	}
}

func TestOverlayWarnings(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
	for _, test := range []struct {
		id   string
		o    overlays.NewOverlay
		want string
	}{
		{"a", drain("x:80"), "names no endpoint"},
		{"b", overlays.NewOverlay{Kind: "weight", Endpoint: "a-0:80", Factor: new(2.0)}, "round_robin ignores"},
		{"c", overlays.NewOverlay{Kind: "drop", Category: "lb", Percent: new(1.0)}, "adds it"},
		{"d", overlays.NewOverlay{Kind: "hold_ejections"}, "no outlier detection"},
		{"e", overlays.NewOverlay{Kind: "max_requests", MaxRequests: new(int64(5))}, ""},
		{"f", overlays.NewOverlay{Kind: "max_requests", MaxRequests: new(int64(6))}, "contradicts the overlay e"},
	} {
		res := putOverlay(t, s, test.id, test.o)
		var all strings.Builder
		for _, w := range res.Warnings {
			all.WriteString(w.Reason)
		}
		if !strings.Contains(all.String(), test.want) || test.want == "" && all.String() != "" {
			t.Errorf("%s: %q", test.id, all.String())
		}
	}
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, append(servicetest.Endpoints("a", 2), servicetest.Endpoint("x")))))
	if got := chosen(t, s, 10); got["x:80"] > 0 {
		t.Errorf("an overlay did not take effect when its endpoint appeared: %v", got)
	}
	state, err := s.State.Cluster(t.Context(), "orders", "", true)
	servicetest.Must(t, err)
	if state.OverlayCount != 6 || state.Breaker.MaxRequests != 6 || state.Overlays[4].SupersededBy != "f" {
		t.Errorf("%d overlays, max_requests %d, %+v", state.OverlayCount, state.Breaker.MaxRequests, state.Overlays)
	}
	if es := state.Priorities[0].Localities[0].Endpoints; es[2].Overlay != "a" || es[0].Overlay != "" {
		t.Errorf("endpoints: %+v", es)
	}
	again := overlays.NewOverlay{Kind: "drain", Endpoint: "x:80"}
	res := putOverlay(t, s, "a", again)
	if is, err := s.Overlays.State("orders", "a"); err != nil || len(res.Changes) != 0 || res.Hash != is.ETag || is.ETag == "" {
		t.Errorf("the same overlay again: %v; its tag is %q, %q before", res.Changes, is.ETag, res.Hash)
	}
}

// TestAwaitDrained waits for a lease to end, and not longer than it may.
func TestAwaitDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := servicetest.Start(t, "", nil)
		defer stop()
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
		for range 2 {
			_, err := servicetest.Pick(s, picks.Request{Cluster: "orders", TTL: time.Minute})
			servicetest.Must(t, err)
		}
		putOverlay(t, s, "one", drain("a-0:80"))
		began := time.Now()
		servicetest.Must(t, s.Overlays.AwaitDrained(t.Context(), "orders", "one", 10*time.Second))
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("took %v", took)
		}
		servicetest.Must(t, s.Overlays.AwaitDrained(t.Context(), "orders", "one", time.Hour))
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute {
			t.Errorf("took %v", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		servicetest.Must(t, s.Overlays.AwaitDrained(ctx, "orders", "one", time.Hour))
		if err := s.Overlays.AwaitDrained(t.Context(), "orders", "x", time.Hour); servicetest.Code(err) != fault.UnknownOverlay {
			t.Errorf("an overlay that is not there: %v", err)
		}
	})
}

// TestNewestOverlay: the overlay that was put last is in effect, whatever the clocks say.
func TestNewestOverlay(t *testing.T) {
	limit := func(n int64) overlays.NewOverlay {
		return overlays.NewOverlay{Kind: "max_requests", MaxRequests: new(n), Expires: "never"}
	}
	for name, ahead := range map[string]time.Duration{"the same time": 0, "one from the future": time.Hour} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				_, stop := servicetest.Start(t, dir, nil)
				stop()
				older := limit(5)
				o, err := older.At(time.Now().Add(ahead))
				servicetest.Must(t, err)
				raw, err := overlays.Encode(o)
				servicetest.Must(t, err)
				writeStore(t, dir, map[resource.Key][]byte{overlay.Key("orders", "z"): raw})

				s, stop := servicetest.Start(t, dir, nil)
				defer stop()
				servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
				for _, id := range []string{"y", "x"} {
					res := putOverlay(t, s, id, limit(int64(id[0])))
					if len(res.Warnings) == 0 || !strings.Contains(res.Warnings[0].Reason, "it contradicts the overlay") {
						t.Errorf("%s: %v", id, res.Warnings)
					}
					state, err := s.State.Cluster(t.Context(), "orders", "", true)
					servicetest.Must(t, err)
					if state.Breaker.MaxRequests != uint32(id[0]) {
						t.Errorf("%s: max_requests is %d, %+v", id, state.Breaker.MaxRequests, state.Overlays)
					}
				}
			})
		})
	}
}

// TestOverlaysAtOnce: of overlays that are put at once, and would leave nothing usable together, one is refused.
func TestOverlaysAtOnce(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 4))
	for range 20 {
		var group sync.WaitGroup
		var refused atomic.Int64
		for i := range 4 {
			group.Go(func() {
				_, err := s.Sources.PutOverlay(t.Context(), &sources.OverlayRequest{Overlay: drain(fmt.Sprintf("a-%d:80", i)), Cluster: "orders", ID: fmt.Sprint(i)})
				switch servicetest.Code(err) {
				case "":
				case fault.Blocked:
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		group.Wait()
		if n := refused.Load(); n != 1 {
			t.Fatalf("%d refused", n)
		}
		list, err := s.Overlays.States("orders", nil)
		servicetest.Must(t, err)
		for _, o := range list {
			_, err = s.Sources.DeleteOverlay(t.Context(), "orders", o.ID, sources.ChangeOptions{})
			servicetest.Must(t, err)
		}
	}
}

// TestPushOfASharedAssignment: a push is refused if the overlays of any cluster with this assignment would take all of
// its endpoints out of use, and not because of those of another cluster with its name.
func TestPushOfASharedAssignment(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	pushOf := func(n int, options sources.ChangeOptions) error {
		_, err := s.Sources.Push(t.Context(), &sources.PushRequest{
			Kind: sources.Endpoints, Cluster: "shared", Body: servicetest.Usable("a", n), Options: options,
		})
		return err
	}
	servicetest.Must(t, pushOf(2, sources.ChangeOptions{}))
	uses := func(cluster, assignment string) {
		servicetest.Push(t, s, sources.Config, cluster, servicetest.Encode(servicetest.Object{"type": "EDS", "eds_cluster_config": servicetest.Object{"service_name": assignment}}))
	}
	put := func(cluster string) {
		_, err := s.Sources.PutOverlay(t.Context(), &sources.OverlayRequest{Overlay: drain("a-0:80"), Cluster: cluster, ID: "one"})
		servicetest.Must(t, err)
	}
	uses("orders", "shared")
	put("orders")
	if err := pushOf(1, sources.ChangeOptions{}); servicetest.Code(err) != fault.Blocked || !strings.Contains(err.Error(), "the overlays of a cluster that uses it") {
		t.Errorf("%v", err)
	}
	servicetest.Must(t, pushOf(3, sources.ChangeOptions{}))
	_, err := s.Sources.DeleteOverlay(t.Context(), "orders", "one", sources.ChangeOptions{})
	servicetest.Must(t, err)
	put("shared")
	servicetest.Push(t, s, sources.Endpoints, "other", servicetest.Usable("b", 1))
	uses("shared", "other")
	servicetest.Must(t, pushOf(1, sources.ChangeOptions{}))
}

// TestUnknownOverlay: an overlay of a kind that only newer daemons of the fleet know is named in the log. It can be
// deleted.
func TestUnknownOverlay(t *testing.T) {
	dir := t.TempDir()
	writeStore(t, dir, map[resource.Key][]byte{overlay.Key("orders", "one"): []byte(`{"kind":"mirror","created":"2026-01-01T00:00:00Z"}`)})
	var log bytes.Buffer
	s, stop := servicetest.Start(t, dir, func(o *service.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
	if list, err := s.Overlays.States("", nil); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	_, err := s.Sources.DeleteOverlay(t.Context(), "orders", "one", sources.ChangeOptions{})
	servicetest.Must(t, err)
	stop()
	if n := strings.Count(log.String(), "an overlay has no effect on this daemon"); n != 1 || !strings.Contains(log.String(), `orders/one: kind \"mirror\" is not known`) {
		t.Errorf("log: %s", log.String())
	}
}

// TestOverlayOfAnAggregate is refused, with the names of its leaves. One of a leaf that has no usable endpoint anyway is
// not.
func TestOverlayOfAnAggregate(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	_, err := s.Sources.Push(t.Context(), &sources.PushRequest{
		Kind: sources.Endpoints, Cluster: "leaf", Options: sources.ChangeOptions{AllowEmpty: true},
		Body: servicetest.Encode(servicetest.Object{"endpoints": []servicetest.Object{{"lb_endpoints": []servicetest.Object{unhealthy("a")}}}}),
	})
	servicetest.Must(t, err)
	servicetest.Push(t, s, sources.Config, "orders", aggregate("leaf"))
	_, err = s.Sources.PutOverlay(t.Context(), &sources.OverlayRequest{Overlay: drain("a:80"), Cluster: "orders", ID: "one"})
	if servicetest.Code(err) != fault.InvalidArgument || !strings.Contains(err.Error(), "put the overlay on one of its clusters: leaf") {
		t.Errorf("%v", err)
	}
	_, err = s.Sources.PutOverlay(t.Context(), &sources.OverlayRequest{Overlay: drain("a:80"), Cluster: "leaf", ID: "one"})
	servicetest.Must(t, err)
}

// unhealthy is an endpoint that picks do not use.
func unhealthy(host string) servicetest.Object {
	e := servicetest.Endpoint(host)
	e["health_status"] = "UNHEALTHY"
	return e
}

// TestOverlayExpiresWithPreconditions: lbd removes an overlay also if callers need preconditions, and shows the overlays
// in a scope only.
func TestOverlayExpiresWithPreconditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := servicetest.Start(t, "", func(o *service.Options) { o.Sources.RequireIfMatch = true })
		defer stop()
		none := sources.ChangeOptions{Precondition: sources.Precondition{IfNoneMatch: true}}
		_, err := s.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Body: servicetest.Usable("a", 2), Options: none})
		servicetest.Must(t, err)
		o := drain("a-0:80")
		o.Expires = "1h"
		_, err = s.Sources.PutOverlay(t.Context(), &sources.OverlayRequest{Overlay: o, Cluster: "orders", ID: "one", Options: none})
		servicetest.Must(t, err)
		for cluster, want := range map[string]int{"orders": 1, "cart": 0} {
			scope := ledger.NewScope(func(name string) bool { return name == cluster })
			if list, err := s.Overlays.States("", scope); err != nil || len(list) != want {
				t.Errorf("overlays in the scope of %s: %v, %v", cluster, list, err)
			}
		}
		time.Sleep(time.Hour + time.Second)
		synctest.Wait()
		if got := servicetest.Says(s, observe.EventOverlayEnded); len(got) != 1 {
			t.Errorf("events: %q", got)
		}
	})
}

// TestOverlayExpiresWithoutStore: while the store refuses changes, the overlay ends, the log has one warning for all
// retries, and the entry is removed as soon as the store accepts that.
func TestOverlayExpiresWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		db, aside := filepath.Join(dir, "lbd.db"), filepath.Join(dir, "aside")
		var log bytes.Buffer
		s, stop := servicetest.Start(t, dir, func(o *service.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
		o := drain("a-0:80")
		o.Expires = "1h"
		putOverlay(t, s, "one", o)
		servicetest.Must(t, os.Rename(db, aside))
		time.Sleep(time.Hour + 10*time.Minute)
		synctest.Wait()
		if got := chosen(t, s, 4); got["a-0:80"] != 2 {
			t.Errorf("picks after the end: %v", got)
		}
		servicetest.Must(t, os.Rename(aside, db))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := servicetest.Says(s, observe.EventOverlayEnded); len(got) != 1 {
			t.Errorf("events: %q", got)
		}
		stop()
		if n := strings.Count(log.String(), "cannot be removed from the store yet"); n != 1 {
			t.Errorf("%d warnings: %s", n, log.String())
		}
	})
}
