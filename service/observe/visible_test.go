package observe

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/test/ledgertest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// ordersOnly is the scope of a caller that may see orders*.
var ordersOnly = ledger.NewScope(func(name string) bool { return strings.HasPrefix(name, "orders") })

// An event is visible if all names that it has are in the scope.
func TestEventsWithinAScope(t *testing.T) {
	change := func(names ...string) (out []difference.Change) {
		for _, name := range names {
			out = append(out, difference.Change{Resource: name, Change: "modified"})
		}
		return out
	}
	for name, c := range map[string]struct {
		event   Event
		visible bool
		want    func(Event) bool
	}{
		"its cluster":             {event: Event{Type: EventStateChanged, Cluster: "orders", Says: "s"}, visible: true},
		"another cluster":         {event: Event{Type: EventStateChanged, Cluster: "users"}},
		"its target":              {event: Event{Type: EventPushed, Target: "xds:///orders"}, visible: true},
		"another target":          {event: Event{Type: EventStateChanged, Cluster: "orders", Target: "xds:///users"}},
		"another in its target":   {event: Event{Type: EventStateChanged, Cluster: "users", Target: "xds:///orders"}},
		"its on-demand cluster":   {event: Event{Type: EventXDSFellBack, Target: "cluster:orders"}, visible: true},
		"another's":               {event: Event{Type: EventXDSFellBack, Target: "cluster:users"}},
		"no name":                 {event: Event{Type: EventXDSRejected, Resource: "Cluster/users"}},
		"the daemon":              {event: Event{Type: EventStoreFailing, Error: "disk full"}, visible: true},
		"a shortage":              {event: Event{Type: EventShortageBegan, Error: "dial 10.0.0.1"}, visible: true, want: func(e Event) bool { return e.Error == "" }},
		"a file":                  {event: Event{Type: EventFileRefused, File: "users.yaml"}},
		"its cluster, a file":     {event: Event{Type: EventFileChanged, Cluster: "orders", File: "users.yaml"}, visible: true, want: func(e Event) bool { return e.File == "" }},
		"a held change":           {event: Event{Type: EventChangeHeld, Cluster: "orders", Reason: "removes 2 of 3 clusters"}},
		"changes of others":       {event: Event{Type: EventPushed, Changes: change("Cluster/users", "Listener/users")}},
		"changes of its clusters": {event: Event{Type: EventPushed, Changes: change("Cluster/orders"), Says: "1 resource changed"}, visible: true},
		"changes of several": {
			event:   Event{Type: EventFileChanged, File: "all.yaml", Says: "4 resources changed: users: removed", Changes: change("Cluster/orders", "Cluster/users", "Listener/orders", "RouteConfiguration/x")},
			visible: true,
			want: func(e Event) bool {
				return slices.Equal(e.Changes, change("Cluster/orders", "Listener/orders")) && e.Says == "2 resources changed" && e.File == ""
			},
		},
	} {
		before := fmt.Sprintf("%+v", c.event)
		kept := &remembered{Event: c.event}
		got := kept.within(ordersOnly)
		if (got != nil) != c.visible || got != nil && c.want != nil && !c.want(got.Event) {
			t.Errorf("%s: %+v", name, got)
		}
		if after := fmt.Sprintf("%+v", kept.Event); after != before {
			t.Errorf("%s: the event changed: %s", name, after)
		}
		if got != nil && got.Cluster != "" && c.want == nil && got != kept {
			t.Errorf("%s: an event that is visible as a whole is copied", name)
		}
	}
}

// A watcher with a scope reads past events that it may not see: they are no gap, also after a
// reconnect, and they use none of its number of past events.
func TestWatchEventsWithinAScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newState(t)
		ws := NewWatches(s, 0)
		es := s.options.Events
		add := func(cluster string, n int) {
			for range n {
				es.Add(Event{Type: EventStateChanged, Cluster: cluster})
			}
		}
		begin := func(limit int, lastID string) *Watch {
			w, err := ws.WatchEvents(EventFilter{Scope: ordersOnly, Limit: limit}, lastID)
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		read := func(w *Watch) (kinds []string) {
			for {
				m, more := w.reader.next()
				if m == nil {
					if !more {
						t.Error("the watch has ended")
					}
					return kinds
				}
				kinds = append(kinds, m.Type)
			}
		}
		add("orders", 3)
		add("users", 3*pageOfEvents)
		w := begin(2, "")
		if got := read(w); !slices.Equal(got, []string{"event", "event"}) {
			t.Errorf("the last 2: %v", got)
		}
		add("users", 2*pageOfEvents)
		if got := read(w); got != nil {
			t.Errorf("of others: %v", got)
		}
		position := w.Position()
		if position != strconv.FormatUint(es.last, 10) {
			t.Errorf("position %s, want %d", position, es.last)
		}
		add("users", MaxEvents-1)
		add("orders", 1)
		if got := read(w); !slices.Equal(got, []string{"event"}) {
			t.Errorf("after events of others: %v", got)
		}
		w.Close()
		resumed := begin(0, position)
		if got := read(resumed); !slices.Equal(got, []string{"event"}) {
			t.Errorf("after a reconnect: %v", got)
		}
		resumed.Close()
		add("users", MaxEvents)
		missed := begin(0, position)
		if got := read(missed); !slices.Equal(got, []string{"resync"}) {
			t.Errorf("after events were evicted: %v", got)
		}
		missed.Close()
	})
}

// What a watcher with a scope receives of a state is what a reader gets, and the data that all
// share stays as it is.
func TestNamingWithinAScope(t *testing.T) {
	for name, c := range map[string]struct {
		summary ClusterSummary
		shared  bool
	}{
		"no targets":     {ClusterSummary{Name: "orders"}, true},
		"its target":     {ClusterSummary{Name: "orders", Targets: []string{"xds:///orders"}}, true},
		"another target": {ClusterSummary{Name: "orders", Targets: []string{"xds:///users"}}, false},
		"some targets":   {ClusterSummary{Name: "orders", Targets: []string{"xds:///a", "xds:///orders", "xds:///users"}}, false},
		"its tree":       {ClusterSummary{Name: "orders", Target: "xds:///orders", Targets: []string{"xds:///orders", "xds:///users"}}, false},
		"another tree":   {ClusterSummary{Name: "orders", Target: "xds:///a", Targets: []string{"xds:///a"}}, false},
	} {
		state := &ClusterState{
			ClusterSummary: c.summary, Drops: []DropState{}, AmbientErrors: []AmbientError{{Resource: "Listener/a"}, {Resource: "Cluster/orders"}},
			Priorities: []PriorityState{{Localities: []LocalityState{{Share: new(0.5), Endpoints: []EndpointState{{Address: "10.0.0.1:80"}}}}}},
		}
		data := encode(state)
		shared := bytes.Clone(data)
		got := namingOf(&state.ClusterSummary).within(ordersOnly, data, masked[*ClusterState])
		if want := encode(state.Within(ordersOnly)); !bytes.Equal(got, want) {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
		if !bytes.Equal(data, shared) || (&got[0] == &data[0]) != c.shared {
			t.Errorf("%s: shared data changed, or was copied without need", name)
		}
		if got := namingOf(&state.ClusterSummary).within(nil, data, masked[*ClusterState]); &got[0] != &data[0] {
			t.Errorf("%s: data was copied for a caller that may see all", name)
		}
		hidden := c.summary.Target == "xds:///a"
		if bytes.Contains(got, []byte("Listener/a")) == hidden || !bytes.Contains(got, []byte("Cluster/orders")) {
			t.Errorf("%s: errors of resources: %s", name, got)
		}
	}
}

// The series of clusters without series of their own are of all callers.
func TestMetricsWithinAScope(t *testing.T) {
	s := newState(t)
	for _, name := range []string{"orders", "users"} {
		apply(t, s, name, ledgertest.Config(name, ledgertest.Assignment(name, resource.Locality{})))
	}
	m := NewMetrics(prometheus.NewRegistry(), s, NewTimeline(s.ledger, -1))
	all, err := m.Gather()
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	for family, want := range map[string]int{
		"lbd_picks_total": 1, "lbd_leases_active": 1, "lbd_conditions": 0, "lbd_overload": 1, "lbd_history_bytes": 0, "go_goroutines": 1,
	} {
		n, err := testutil.GatherAndCount(Within(ordersOnly, m), family)
		if err != nil || (n > 0) != (want > 0) || family == "lbd_picks_total" && n != want {
			t.Errorf("%s: %d series, %v", family, n, err)
		}
	}
	name, value := "cluster", ledger.OverflowCluster
	everything := ledger.NewScope(func(string) bool { return true })
	if _, visible := labelsWithin(everything, []*dto.LabelPair{{Name: &name, Value: &value}}); visible {
		t.Error("a caller with clusters sees the sums of clusters")
	}
}
