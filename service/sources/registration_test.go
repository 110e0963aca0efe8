package sources_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/file"
)

func register(tb testing.TB, s *service.Service, address string, ttl time.Duration) *sources.PushResult {
	tb.Helper()
	res, err := s.Sources.SetEndpoint(tb.Context(), &sources.EndpointRequest{Cluster: "orders", Address: address, Edit: sources.EndpointEdit{TTL: &ttl}})
	servicetest.Must(tb, err)
	return res
}

// pushedEndpoints returns the number of pushed endpoints of orders.
func pushedEndpoints(tb testing.TB, s *service.Service) int {
	tb.Helper()
	stored, err := s.Sources.Pushed(tb.Context(), "", sources.Endpoints, "orders", sources.YAML)
	servicetest.Must(tb, err)
	return strings.Count(string(stored.Body.Bytes()), "port_value")
}

func TestRegisteredEndpointsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := servicetest.Start(t, "", func(o *service.Options) {
			o.Sources.Changelog, o.Sources.RequireIfMatch = changelog.Limits{Changes: 100, Bytes: 1 << 20}, false
		})
		defer stop()
		for i := range 5 {
			if res := register(t, s, fmt.Sprintf("10.0.0.%d:80", i), 10*time.Second); !res.New || len(res.Changes) != 1 {
				t.Errorf("%d: %+v", i, res)
			}
		}
		index := s.Sources.Index()
		time.Sleep(100 * time.Millisecond) // not at the time of a tick
		renew := func(n int) {
			for i := range n {
				res := register(t, s, fmt.Sprintf("10.0.0.%d:80", i), 10*time.Second)
				_, err := s.Sources.RenewEndpoint("orders", fmt.Sprintf("10.0.0.%d:80", i))
				if servicetest.Must(t, err); res.New || len(res.Changes) != 0 || res.Hash == "" || res.Index == 0 {
					t.Errorf("%d, renewed: %+v", i, res)
				}
			}
		}
		for range 10 {
			time.Sleep(3 * time.Second)
			renew(5)
		}
		list, _, _, err := s.Sources.Changes(changelog.Filter{Limit: 100}, nil)
		servicetest.Must(t, err)
		if len(list) != 5 || s.Sources.Index() != index {
			t.Errorf("%d changes, index %d instead of %d", len(list), s.Sources.Index(), index)
		}
		for range 4 { // two are not renewed any more, and one at a time is removed
			time.Sleep(3 * time.Second)
			renew(3)
		}
		servicetest.Expect(t, "endpoints after the ttl", pushedEndpoints(t, s), 4)
		events := s.Events.Last(observe.EventFilter{Limit: 2})
		if len(events) != 2 || events[1].Type != observe.EventExpiryDeferred || events[1].Cluster != "orders" || !strings.Contains(events[1].Says, "stay: 1: at most 20 % of the endpoints of a cluster, at least 1, are removed within 10s") {
			t.Errorf("events %+v", events)
		}
		if events[0].Type != observe.EventPushed || events[0].By != "lbd" || !strings.Contains(events[0].Says, "1 endpoint removed") {
			t.Errorf("events %+v", events)
		}
		for range 4 {
			time.Sleep(3 * time.Second)
			renew(3)
		}
		servicetest.Expect(t, "endpoints after another ttl", pushedEndpoints(t, s), 3)
		list, _, _, err = s.Sources.Changes(changelog.Filter{Limit: 1}, nil)
		servicetest.Must(t, err)
		if list[0].Message != "not renewed: 10.0.0.4:80" && list[0].Message != "not renewed: 10.0.0.3:80" {
			t.Errorf("history %+v", list[0])
		}
		if _, err := s.Sources.RenewEndpoint("orders", "10.0.0.4:80"); servicetest.Code(err) != fault.UnknownEndpoint {
			t.Errorf("one that was removed: %v", err)
		}
		register(t, s, "10.0.0.4:80", 0)
		_, err = s.Sources.SetEndpoint(t.Context(), &sources.EndpointRequest{Cluster: "orders", Address: "10.0.0.0:80", Edit: sources.EndpointEdit{Weight: new(uint32(2))}})
		servicetest.Must(t, err)
		time.Sleep(5 * time.Minute)
		servicetest.Expect(t, "only the one that stays", pushedEndpoints(t, s), 1)
	})
}

// Each registered endpoint has a full ttl after a restart.
func TestRegistrationsSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s, stop := servicetest.Start(t, dir, nil)
		register(t, s, "10.0.0.1:80", 0)
		register(t, s, "10.0.0.2:80", 10*time.Second)
		time.Sleep(9 * time.Second)
		stop()
		time.Sleep(time.Hour)
		s, stop = servicetest.Start(t, dir, func(o *service.Options) { o.Sources.RequireIfMatch = true }) // of callers
		defer stop()
		time.Sleep(9 * time.Second)
		servicetest.Expect(t, "within the ttl", pushedEndpoints(t, s), 2)
		time.Sleep(2 * time.Second)
		servicetest.Expect(t, "after the ttl", pushedEndpoints(t, s), 1)
	})
}

func TestRegistrationsAreLimited(t *testing.T) {
	s, _ := servicetest.Start(t, "", func(o *service.Options) { o.Sources.MaxRegistrations = 2 })
	for i := range 2 {
		register(t, s, fmt.Sprintf("10.0.0.%d:80", i), time.Minute)
	}
	r := &sources.EndpointRequest{Cluster: "orders", Address: "10.0.0.2:80", Edit: sources.EndpointEdit{TTL: new(time.Minute)}}
	if _, err := s.Sources.SetEndpoint(t.Context(), r); servicetest.Code(err) != fault.RateLimited || !strings.Contains(err.Error(), "limit of registered endpoints reached (2)") {
		t.Error(err)
	}
	register(t, s, "10.0.0.1:80", 2*time.Minute) // was registered already
	register(t, s, "10.0.0.1:80", 0)
	register(t, s, "10.0.0.2:80", time.Minute)
	// A snapshot that removes as many as it adds.
	moved, both := servicetest.Assigned("carts"), servicetest.Endpoints("host", 2)
	moved["endpoints"] = []servicetest.Object{{"lb_endpoints": both}}
	for _, e := range both {
		e["metadata"] = servicetest.Object{"filter_metadata": servicetest.Object{"lbd": servicetest.Object{"ttl": "60s"}}}
	}
	_, err := s.Sources.PushSnapshot(t.Context(), &sources.SnapshotRequest{
		Body: servicetest.Encode(servicetest.Object{"resources": []servicetest.Object{moved}}), Replace: true, MaxRemoved: -1, Options: sources.ChangeOptions{AllowEmpty: true},
	})
	servicetest.Must(t, err)
}

// namedFleet has an ID.
type namedFleet struct {
	service.Fleet

	id string
}

func (f *namedFleet) ID() string { return f.id }
func (*namedFleet) Close()       {}

// startShared starts services that share a store.
func startShared(t *testing.T, names ...string) []*service.Service {
	t.Helper()
	return startCut(t, new(atomic.Bool), names...)
}

// startCut is startShared, where the first service is cut off from the store while cut is set.
func startCut(t *testing.T, cut *atomic.Bool, names ...string) []*service.Service {
	t.Helper()
	var all []*service.Service
	for _, name := range names {
		all = append(all, newService(t, func(o *service.Options) {
			o.Sources.Changelog, o.Fleet = changelog.Limits{Changes: 100, Bytes: 1 << 20}, &namedFleet{id: name}
		}))
	}
	st, err := file.Open("", file.Options{OnCommit: func(c store.Commit) {
		for i, s := range all {
			if i > 0 || !cut.Load() {
				s.Inbound.Commit(c)
			}
		}
	}})
	servicetest.Must(t, err)
	for i, s := range all {
		c := sources.Connections{Store: st}
		if i == 0 {
			c.Store = &halfOpen{st, cut}
		}
		servicetest.Must(t, s.Start(t.Context(), c))
	}
	t.Cleanup(func() {
		for _, s := range all {
			s.Close()
		}
		servicetest.Must(t, st.Close())
	})
	return all
}

// A renewal at one daemon counts at all that share the store.
func TestRenewalsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := startShared(t, "a", "b")
		register(t, all[0], "10.0.0.1:80", 0)
		register(t, all[0], "10.0.0.2:80", 9*time.Second)
		index := all[0].Sources.Index()
		const rounds = 40
		for i := range rounds { // first at one of them, then by turns, each time at the last moment
			time.Sleep(8500 * time.Millisecond)
			if _, err := all[max(0, i-20)%2].Sources.RenewEndpoint("orders", "10.0.0.2:80"); err != nil {
				t.Fatalf("renewal %d: %v", i, err)
			}
		}
		servicetest.Expect(t, "while it is renewed", pushedEndpoints(t, all[1]), 2)
		time.Sleep(time.Second)
		if n := all[0].Sources.Index() - index; n > rounds {
			t.Errorf("%d commits for %d renewals", n, rounds)
		}
		time.Sleep(16 * time.Second)
		servicetest.Expect(t, "within two ttls", pushedEndpoints(t, all[0]), 2)
		time.Sleep(2 * time.Second)
		servicetest.Expect(t, "after two ttls", pushedEndpoints(t, all[0]), 1)
		list, _, _, err := all[1].Sources.Changes(changelog.Filter{Limit: 100}, nil)
		servicetest.Must(t, err)
		if len(list) != 3 || list[0].Message != "not renewed: 10.0.0.2:80" {
			t.Errorf("history %+v", list)
		}
	})
}

// halfOpen is a store of a daemon whose connection is cut, which it has not noticed.
type halfOpen struct {
	store.Store

	cut *atomic.Bool
}

func (s *halfOpen) Update(ctx context.Context, fn func(*store.Tx) error) (*store.Snapshot, error) {
	if s.cut.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Store.Update(ctx, fn)
}

// A daemon that is cut off without noticing acknowledges no renewal of what the others have removed.
func TestHalfOpenDaemonRenewsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cut atomic.Bool
		all := startCut(t, &cut, "a", "b")
		register(t, all[0], "10.0.0.1:80", 0)
		register(t, all[0], "10.0.0.2:80", 2*time.Second)
		acknowledged, removed := 0, false
		for i := range 80 {
			time.Sleep(250 * time.Millisecond)
			cut.Store(i > 20)
			_, err := all[0].Sources.RenewEndpoint("orders", "10.0.0.2:80")
			removed = removed || pushedEndpoints(t, all[1]) == 1
			if err == nil {
				acknowledged++
			}
			if err == nil && removed {
				t.Fatalf("renewal %d of what was removed", i)
			}
		}
		if !removed || acknowledged < 20 {
			t.Errorf("removed: %v, after %d renewals", removed, acknowledged)
		}
	})
}

// Several daemons do not remove more at once than one would.
func TestExpiryIsGuardedAcrossDaemons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := startShared(t, "a", "b", "c")
		for i := range 10 {
			register(t, all[i%3], fmt.Sprintf("10.0.0.%d:80", i), 10*time.Second)
		}
		other := sources.EndpointRequest{Cluster: "other", Address: "10.0.0.1:80", Edit: sources.EndpointEdit{TTL: new(10 * time.Second)}}
		for at := range 60 {
			if at == 20 {
				time.Sleep(300 * time.Millisecond)
			}
			_, err := all[at%3].Sources.SetEndpoint(t.Context(), &other)
			servicetest.Must(t, err)
			if n := pushedEndpoints(t, all[0]); at < 20 && n != 10 || at > 20 && at < 40 && n != 8 {
				t.Fatalf("after %d s: %d endpoints", at, n)
			}
			time.Sleep(time.Second)
		}
		if n := pushedEndpoints(t, all[0]); n >= 8 {
			t.Errorf("%d endpoints stay", n)
		}
	})
}

// What else changes an assignment, and its effect on registered endpoints.
func TestOtherChangesOfRegisteredEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := servicetest.Start(t, "", func(o *service.Options) { o.Sources.Changelog = changelog.Limits{Changes: 100, Bytes: 1 << 20} })
		defer stop()
		endpoint := func(address string) (is observe.EndpointState) {
			t.Helper()
			state, err := s.State.Cluster(t.Context(), "orders", "", true)
			servicetest.Must(t, err)
			for _, e := range state.Priorities[0].Localities[0].Endpoints {
				if e.Address == address {
					is = e
				}
			}
			return is
		}
		renewed := func(address string) fault.Code {
			_, err := s.Sources.RenewEndpoint("orders", address)
			return servicetest.Code(err)
		}
		register(t, s, "10.0.0.1:80", 0)
		register(t, s, "10.0.0.2:80", 10*time.Second)
		both := register(t, s, "10.0.0.3:80", 10*time.Second)

		// The state has the time that is left, and an overlay stays with the address.
		time.Sleep(4*time.Second + 100*time.Millisecond)
		putOverlay(t, s, "one", drain("10.0.0.2:80"))
		if is := endpoint("10.0.0.2:80"); is.Health != "DRAINING" || is.Registration == nil || is.Registration.TTL != "10s" || time.Until(is.Registration.ExpiresAt).Round(time.Second) != 6*time.Second {
			t.Errorf("%+v, %+v", is, is.Registration)
		}
		if is := endpoint("10.0.0.1:80"); is.Registration != nil {
			t.Errorf("one that stays: %+v", is)
		}
		register(t, s, "10.0.0.2:80", 10*time.Second)
		register(t, s, "10.0.0.3:80", 10*time.Second)
		if is := endpoint("10.0.0.2:80"); is.Health != "DRAINING" || time.Until(is.Registration.ExpiresAt) != 10*time.Second {
			t.Errorf("renewed: %+v, %+v", is, is.Registration)
		}
		for range 4 {
			time.Sleep(3 * time.Second)
			renewed("10.0.0.3:80")
		}
		servicetest.Expect(t, "one has expired", pushedEndpoints(t, s), 2)
		register(t, s, "10.0.0.2:80", 10*time.Second)
		if is := endpoint("10.0.0.2:80"); is.Health != "DRAINING" || is.Overlay != "one" {
			t.Errorf("registered again: %+v", is)
		}

		// A push of the whole assignment keeps the deadlines of those that it has with their ttl. The others are no
		// longer registered.
		time.Sleep(4 * time.Second)
		push := func(body string) {
			t.Helper()
			_, err := s.Sources.PushSnapshot(t.Context(), &sources.SnapshotRequest{Body: []byte(body), Replace: true, MaxRemoved: -1})
			servicetest.Must(t, err)
		}
		const head = `{"resources":[{"@type":"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment","cluster_name":"orders","endpoints":[{"lb_endpoints":[` +
			`{"endpoint":{"address":{"socket_address":{"address":"10.0.0.1","port_value":80}}}}`
		push(head + `,{"endpoint":{"address":{"socket_address":{"address":"10.0.0.2","port_value":80}}},"metadata":{"filter_metadata":{"lbd":{"ttl":"10s"}}}}` +
			`,{"endpoint":{"address":{"socket_address":{"address":"10.0.0.3","port_value":80}}}}]}]}]}`)
		if is := endpoint("10.0.0.2:80"); is.Registration == nil || time.Until(is.Registration.ExpiresAt) != 6*time.Second {
			t.Errorf("pushed: %+v", is.Registration)
		}
		servicetest.Expect(t, "one that was pushed without its ttl", renewed("10.0.0.3:80"), fault.UnknownEndpoint)
		_, err := s.Sources.PushSnapshot(t.Context(), &sources.SnapshotRequest{Body: []byte(head + `]}]}]}`), Replace: true, MaxRemoved: -1, Options: sources.ChangeOptions{DryRun: true}})
		servicetest.Must(t, err)
		servicetest.Expect(t, "one that a dry run has removed", renewed("10.0.0.2:80"), "")
		push(head + `]}]}]}`)
		servicetest.Expect(t, "one that the push has removed", renewed("10.0.0.2:80"), fault.UnknownEndpoint)
		if is := endpoint("10.0.0.1:80"); is.Address == "" || pushedEndpoints(t, s) != 1 {
			t.Errorf("the pushed one: %+v", is)
		}

		// A restore registers again, with a full ttl.
		_, err = s.Sources.Restore(t.Context(), &sources.RestoreRequest{Index: both.Index, MaxRemoved: -1})
		servicetest.Must(t, err)
		if is := endpoint("10.0.0.3:80"); is.Registration == nil || time.Until(is.Registration.ExpiresAt) != 10*time.Second || renewed("10.0.0.2:80") != "" {
			t.Errorf("restored: %+v", is.Registration)
		}
	})
}

// A removal that cannot be stored is tried again, not all the time.
func TestExpiryWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newService(t, func(o *service.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		st, err := file.Open("", file.Options{OnCommit: s.Inbound.Commit})
		servicetest.Must(t, err)
		servicetest.Must(t, s.Start(t.Context(), sources.Connections{Store: st}))
		register(t, s, "10.0.0.1:80", 0)
		register(t, s, "10.0.0.2:80", 10*time.Second)
		servicetest.Must(t, st.Close())
		time.Sleep(70 * time.Second)
		s.Close()
		if n := strings.Count(log.String(), "level=WARN"); n < 10 || n > 13 {
			t.Errorf("%d warnings within a minute", n)
		}
	})
}

// What a renewal costs does not depend on the size of the assignment.
func BenchmarkRenew(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		s, _ := servicetest.Start(b, "", nil)
		var body strings.Builder
		for i := range n {
			fmt.Fprintf(&body, `,{"endpoint":{"address":{"socket_address":{"address":"10.0.%d.%d","port_value":80}}},"load_balancing_weight":2,"metadata":{"filter_metadata":{"lbd":{"ttl":"1h"}}}}`, i/250, i%250)
		}
		_, err := s.Sources.Push(b.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Body: []byte(`{"endpoints":[{"lb_endpoints":[` + body.String()[1:] + `]}]}`)})
		servicetest.Must(b, err)
		edits := map[string]sources.EndpointEdit{"put": {}, "put with a weight": {Weight: new(uint32(2))}}
		for name, e := range edits {
			e.TTL = new(time.Hour)
			b.Run(fmt.Sprintf("%s of %d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_, err = s.Sources.SetEndpoint(b.Context(), &sources.EndpointRequest{Cluster: "orders", Address: "10.0.0.1:80", Edit: e})
					servicetest.Must(b, err)
				}
			})
		}
		b.Run(fmt.Sprintf("renewal of %d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, err = s.Sources.RenewEndpoint("orders", "10.0.0.1:80")
				servicetest.Must(b, err)
			}
		})
	}
}
