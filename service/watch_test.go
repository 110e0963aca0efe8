package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// message is one of a watch, with its data in one piece.
type message struct{ kind, id, data string }

// idle is a time in which nothing happens. It is not a multiple of a feed's interval:
// what a test does next happens between two reads of the counters, not during one.
const idle = time.Hour + 50*time.Millisecond

// watching is a watcher within a bubble.
type watching struct {
	t testing.TB
	*observe.Watch
}

// watch returns a function that takes the result of a method of the service.
func watch(t testing.TB) func(*observe.Watch, error) watching {
	return func(w *observe.Watch, err error) watching {
		t.Helper()
		servicetest.Must(t, err)
		return watching{t, w}
	}
}

// within returns the next message, and when it came; none where none comes in time.
func (w watching) within(d time.Duration) (m message, after time.Duration) {
	w.t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	got, err := w.Next(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return message{}, time.Since(began)
	}
	if err != nil {
		w.t.Fatalf("after %v: %v", time.Since(began), err)
	}
	return message{got.Type, got.ID, string(joined(got))}, time.Since(began)
}

// must returns the next message, which has to be of a kind.
func (w watching) must(kind string) message {
	w.t.Helper()
	m, after := w.within(time.Minute)
	if m.kind != kind {
		w.t.Fatalf("after %v comes %q, and not %q: %s", after, m.kind, kind, m.data)
	}
	return m
}

func joined(m *observe.Message) []byte {
	all := slices.Clone(m.Data)
	if m.Pieces == nil {
		return all
	}
	for piece := range m.Pieces {
		all = append(all, piece...)
	}
	return all
}

// read is strict: data has nothing that T has not.
func read[T any](t testing.TB, data string) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil || strings.Contains(data, "\n") {
		t.Fatalf("%v: %s", err, data)
	}
	return v
}

func TestWatchCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment([]servicetest.Object{servicetest.Drop("all", 100)}, servicetest.Place("a", 0, 1, servicetest.Endpoints("a", 1))))
		w := watch(t)(s.Watches.WatchCluster(nil, "orders", "", true, ""))
		defer w.Close()

		first := w.must("state")
		state := read[observe.ClusterState](t, first.data)
		now, err := s.State.Cluster(t.Context(), "orders", "", true)
		if err != nil || !bytes.Equal(servicetest.Encode(state), servicetest.Encode(now)) {
			t.Errorf("%v: the state is %s, and not %s", err, servicetest.Encode(state), servicetest.Encode(now))
		}
		if !strings.HasPrefix(first.id, fmt.Sprint(state.Generation)+".") {
			t.Errorf("id %s of generation %d", first.id, state.Generation)
		}
		if c := read[observe.ClusterCounts](t, w.must("counts").data); c.Cluster != "orders" || c.Picks["ok"] != 0 || c.Drops["all"] != 0 || len(c.Localities) != 1 || c.Breaker.MaxRequests != 1024 {
			t.Errorf("counts %+v", c)
		}
		if m, _ := w.within(idle); m.kind != "" {
			t.Errorf("nothing happened, but %q was sent: %s", m.kind, m.data)
		}

		mustRefuse(t, s, picks.Request{Cluster: "orders"}, fault.Dropped)
		counts, after := w.within(time.Minute)
		c := read[observe.ClusterCounts](t, counts.data)
		if after > time.Second || c.Picks["dropped"] != 1 || c.Drops["all"] != 1 || !c.Time.Equal(time.Now()) {
			t.Errorf("counts after %v: %+v", after, c)
		}

		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints("b", 2))))
		second, after := w.within(time.Minute)
		if after > 100*time.Millisecond || second.kind != "state" || second.id == first.id || read[observe.ClusterState](t, second.data).Endpoints.Total != 2 {
			t.Errorf("after %v: %v", after, second)
		}

		w.must("counts") // the drop category is gone
		_, err = s.Sources.Delete(t.Context(), sources.Endpoints, "orders", sources.ChangeOptions{})
		servicetest.Must(t, err)
		if last := w.must("gone"); last.data != "{}" {
			t.Errorf("data %s", last.data)
		}
		if _, err := w.Next(t.Context()); !errors.Is(err, observe.ErrWatchEnded) {
			t.Errorf("after the end: %v", err)
		}
		if _, err := s.Watches.WatchCluster(nil, "orders", "", true, ""); servicetest.Code(err) != fault.UnknownCluster {
			t.Errorf("what is gone: %v", err)
		}
		if _, err := s.Watches.WatchCluster(nil, "orders", "unknown", true, ""); servicetest.Code(err) != fault.UnknownTarget {
			t.Errorf("of no target: %v", err)
		}
	})
}

// TestWatchClusterResumes: who has the state already is not sent it again.
func TestWatchClusterResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
		begin := func(lastID string) (first message) {
			t.Helper()
			w := watch(t)(s.Watches.WatchCluster(nil, "orders", "", false, lastID))
			defer w.Close()
			first, _ = w.within(time.Minute)
			return first
		}
		state := begin("")
		generation, _, _ := strings.Cut(state.id, ".")
		for lastID, want := range map[string]string{
			state.id: "counts", generation: "counts", generation + ".x": "state", "1": "state", "nonsense": "state",
		} {
			if m := begin(lastID); m.kind != want {
				t.Errorf("after %q: %q, want %q", lastID, m.kind, want)
			}
		}
		s.SetStale("orders", true)
		if m := begin(state.id); m.kind != "state" {
			t.Errorf("another state of the same generation is not sent: %q", m.kind)
		}
	})
}

// TestWatchClusterReportsChangesWithoutGeneration: picks do not change, and a watcher still
// gets the new state.
func TestWatchClusterReportsChangesWithoutGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
		w := watch(t)(s.Watches.WatchCluster(nil, "orders", "", true, ""))
		defer w.Close()
		before := w.must("state")
		w.must("counts")
		s.SetStale("orders", true)
		m, after := w.within(time.Minute)
		state := read[observe.ClusterState](t, m.data)
		if after > time.Second || m.id == before.id || !state.Stale || state.Generation != read[observe.ClusterState](t, before.data).Generation {
			t.Errorf("after %v: %v", after, m)
		}
		s.SetAmbientError("orders", resource.Key{Type: resource.TypeCluster, Name: "orders"}, errors.New("deleted"))
		m, after = w.within(time.Minute)
		state = read[observe.ClusterState](t, m.data)
		if after > time.Second || len(state.AmbientErrors) != 1 || state.AmbientErrors[0].Resource != "Cluster/orders" || state.AmbientErrors[0].Error != "deleted" {
			t.Errorf("an ambient error, after %v: %v", after, m)
		}
	})
}

// TestWatchClusterReportsTheLimitOfTheFleet: a watcher gets a new state when the daemon leaves the fleet, or
// another limit is in force. Shares are counts.
func TestWatchClusterReportsTheLimitOfTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := &fakeFleet{}
		s, _ := servicetest.Start(t, "", func(o *service.Options) { o.Fleet = fleet })
		servicetest.Push(t, s, sources.Config, "orders", fleetConfig(10, "fleet"))
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
		fleet.set(2, 7)
		w := watch(t)(s.Watches.WatchCluster(nil, "orders", "", true, ""))
		defer w.Close()
		w.must("state")
		w.must("counts")
		fleet.set(3, 8)
		if c := read[observe.ClusterCounts](t, w.must("counts").data); *c.Breaker.Share != 3 || *c.Breaker.Demand != 8 {
			t.Errorf("share %d, demand %d", *c.Breaker.Share, *c.Breaker.Demand)
		}
		if m, _ := w.within(idle); m.kind != "" {
			t.Errorf("for counts, %q was sent: %s", m.kind, m.data)
		}
		for _, want := range []policy.ShareState{{Limit: 10, Share: 3, Demand: 8}, {Joined: true, Limit: 9, Share: 3, Demand: 8}} {
			fleet.counters.SharedLimit().Describe(want)
			m, after := w.within(time.Minute)
			if m.kind != "state" || after > time.Second {
				t.Fatalf("after %v: %v", after, m)
			}
			if f := read[observe.ClusterState](t, m.data).Breaker.Fleet; f.Joined != want.Joined || f.Limit != want.Limit {
				t.Errorf("%+v instead of %+v", f, want)
			}
		}
	})
}

// TestWatchersOfOneClusterShare: it is described and encoded once for all, and
// nothing runs without watchers.
func TestWatchersOfOneClusterShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
		var all []watching
		join := func(endpoints bool) watching {
			w := watch(t)(s.Watches.WatchCluster(nil, "orders", "", endpoints, ""))
			w.must("state")
			w.must("counts")
			return w
		}
		for range 3 {
			all = append(all, join(true))
		}
		without := join(false)
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints("b", 2))))
		data, texts := map[*byte]int{}, 0
		for _, w := range append(all, without) {
			m, err := w.Next(t.Context())
			servicetest.Must(t, err)
			data[&m.Data[0]]++
			m.Text(func(m *observe.Message) []byte { texts++; return m.Data })
		}
		if len(data) != 2 || texts != 2 {
			t.Errorf("%d encodings and %d texts, want one with endpoints and one without", len(data), texts)
		}
		for _, w := range append(all, without) {
			w.Close()
		}
		s.Watches.Close() // waits for what looks
	})
}

// TestLateWatcherGetsCurrentState: not the state of the last change.
func TestLateWatcherGetsCurrentState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
		early := watch(t)(s.Watches.WatchCluster(nil, "orders", "", true, ""))
		defer early.Close()
		early.must("state")
		early.must("counts")
		time.Sleep(idle)
		mustPick(t, s, picks.Request{Cluster: "orders", TTL: time.Minute, Owner: ledger.Owner{Identity: "web", Name: "web-1"}})
		late := watch(t)(s.Watches.WatchCluster(nil, "orders", "", true, ""))
		defer late.Close()
		state := read[observe.ClusterState](t, late.must("state").data)
		counts := read[observe.ClusterCounts](t, late.must("counts").data)
		if state.Leases != 1 || state.Age != "1h0m0s" || counts.Leases != 1 || counts.Picks["ok"] != 1 || len(counts.Holders) != 1 ||
			counts.Holders[0] != (ledger.Holder{Owner: ledger.Owner{Identity: "web", Name: "web-1"}, Leases: 1}) || time.Since(counts.Time) > time.Second {
			t.Errorf("%d leases, age %s; counts %+v", state.Leases, state.Age, counts)
		}
		if m := early.must("counts"); read[observe.ClusterCounts](t, m.data).Leases != 1 {
			t.Errorf("who was there: %v", m)
		}
	})
}

// TestStuckTreeHoldsUpItsOwnWatchersOnly: a tree answers when it can.
func TestStuckTreeHoldsUpItsOwnWatchersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, connector, _ := startStuck(t)
		servicetest.Push(t, s, sources.Config, "orders", servicetest.Encode(servicetest.Object{"type": "EDS", "metadata": servicetest.Object{"filter_metadata": servicetest.Object{"lbd": servicetest.Object{"connect": "none"}}}}))
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
		go func() {
			servicetest.Push(t, s, sources.Endpoints, "stuck", servicetest.Usable("stuck", 1))
		}()
		synctest.Wait()
		stuck := watch(t)(s.Watches.WatchCluster(nil, "stuck", "", true, ""))
		defer stuck.Close()
		orders := watch(t)(s.Watches.WatchCluster(nil, "orders", "", true, ""))
		defer orders.Close()
		if m, after := orders.within(time.Minute); m.kind != "state" || after > 0 {
			t.Errorf("after %v: %v", after, m)
		}
		if m, _ := stuck.within(7 * time.Second); m.kind != "" {
			t.Errorf("of a tree that is stuck: %v", m)
		}
		close(connector)
		stuck.must("state")
	})
}

func TestDrainEndsWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
		var all []*observe.Watch
		for _, begin := range []func() (*observe.Watch, error){
			func() (*observe.Watch, error) { return s.Watches.WatchCluster(nil, "orders", "", true, "") },
			func() (*observe.Watch, error) { return s.Watches.WatchClusters(nil, "", "") },
			func() (*observe.Watch, error) { return s.Watches.WatchEvents(observe.EventFilter{}, "") },
		} {
			got, err := begin()
			all = append(all, watch(t)(got, err).Watch)
			defer got.Close()
		}
		ended := make(chan error)
		for _, w := range all {
			go func() {
				var err error
				for err == nil {
					_, err = w.Next(t.Context())
				}
				ended <- err
			}()
		}
		synctest.Wait()
		began := time.Now()
		s.Drain()
		for range all {
			if err := <-ended; !errors.Is(err, observe.ErrWatchEnded) || !time.Now().Equal(began) {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
		if _, err := s.Watches.WatchEvents(observe.EventFilter{}, ""); servicetest.Code(err) != fault.ShuttingDown {
			t.Errorf("one more: %v", err)
		}
		s.Watches.Close() // waits for what looks
	})
}

func TestWatchersAreBounded(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	var all []*observe.Watch
	for range observe.MaxWatchers {
		got, err := s.Watches.WatchEvents(observe.EventFilter{}, "")
		all = append(all, watch(t)(got, err).Watch)
	}
	servicetest.Expect(t, "watchers", metric(t, s, "lbd_watchers", "sse"), observe.MaxWatchers)
	_, err := s.Watches.WatchClusters(nil, "", "")
	if e, ok := errors.AsType[*fault.Error](err); !ok || e.Code != fault.RateLimited || e.RetryAfter == 0 {
		t.Errorf("one too many: %v", err)
	}
	all[0].Close()
	got, err := s.Watches.WatchClusters(nil, "", "")
	all[0] = watch(t)(got, err).Watch
	for _, w := range all {
		w.Close()
	}
	servicetest.Expect(t, "watchers in the end", metric(t, s, "lbd_watchers", "sse"), 0)
	s.Watches.Close() // waits for what looks
}

// metric is the value of a gauge with one label, or without labels if label is empty.
func metric(t *testing.T, s *service.Service, name, label string) float64 {
	t.Helper()
	families, err := s.Metrics.Gather()
	servicetest.Must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" && len(m.GetLabel()) == 0 || label != "" && m.GetLabel()[0].GetValue() == label) {
				return m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no %s of %s", name, label)
	return 0
}

// TestWatchSeesWhatHasNoGeneration: weights that follow load, the reason why an
// endpoint cannot be connected to, and a leaf's breaker.
func TestWatchSeesWhatHasNoGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Config, "orders", servicetest.Encode(servicetest.Object{"type": "EDS", "load_balancing_policy": servicetest.Object{"policies": []servicetest.Object{{
			"typed_extension_config": servicetest.Object{"name": "x", "typed_config": servicetest.Object{
				"@type":           "type.googleapis.com/envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
				"blackout_period": "0s",
			}},
		}}}}))
		servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 2))
		w := watch(t)(s.Watches.WatchCluster(nil, "orders", "", true, ""))
		defer w.Close()
		first := w.must("state")
		w.must("counts")
		for range 4 {
			out := mustPick(t, s, picks.Request{Cluster: "orders", TTL: time.Minute})
			busy := 0.2
			if out.Picks[0].Address == "a-1:80" {
				busy = 0.8
			}
			endLease(t, s, out.Picks[0].Lease.ID, picks.Success, &picks.Load{RPSFractional: 100, CPUUtilization: busy})
		}
		for {
			m, after := w.within(time.Minute)
			if m.kind == "" {
				t.Fatalf("no state in %v in which one has more than the other", after)
			}
			if m.kind != "state" {
				continue
			}
			state := read[observe.ClusterState](t, m.data)
			if state.Generation != read[observe.ClusterState](t, first.data).Generation || m.id == first.id {
				t.Errorf("generation %d, id %s", state.Generation, m.id)
			}
			if e := state.Priorities[0].Localities[0].Endpoints; *e[0].Share > 0.7 && *e[1].Share < 0.3 {
				return
			}
		}
	})
}

// TestWatchCountsLeaves: of an aggregate the drops and breaker of each leaf are sent.
func TestWatchCountsLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := servicetest.Start(t, "", nil)
		servicetest.Push(t, s, sources.Config, "near", servicetest.Config(1))
		servicetest.Push(t, s, sources.Endpoints, "near", servicetest.Usable("n", 1))
		servicetest.Push(t, s, sources.Endpoints, "far", servicetest.Assignment([]servicetest.Object{servicetest.Drop("all", 100)}, servicetest.Place("f", 0, 1, servicetest.Endpoints("f", 1))))
		servicetest.Push(t, s, sources.Config, "agg", aggregate("near", "far"))
		mustPick(t, s, picks.Request{Cluster: "agg", TTL: time.Minute})
		mustRefuse(t, s, picks.Request{Cluster: "agg"}, fault.CircuitBroken)
		mustRefuse(t, s, picks.Request{Cluster: "far"}, fault.Dropped)
		w := watch(t)(s.Watches.WatchCluster(nil, "agg", "", true, ""))
		defer w.Close()
		w.must("state")
		counts := read[observe.ClusterCounts](t, w.must("counts").data)
		want := []observe.LeafCounts{
			{Name: "near", Drops: map[string]uint64{}, CircuitBroken: 1, Breaker: ledger.Breaker{InFlight: 1, MaxRequests: 1, Open: true}},
			{Name: "far", Drops: map[string]uint64{"all": 1}, Breaker: ledger.Breaker{MaxRequests: 1024}},
		}
		if fmt.Sprint(counts.Leaves) != fmt.Sprint(want) || counts.Breaker != nil || counts.CircuitBroken != 1 || counts.Drops["all"] != 1 {
			t.Errorf("counts %+v, want the leaves %+v", counts, want)
		}
	})
}
