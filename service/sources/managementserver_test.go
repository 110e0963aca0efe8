package sources_test

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/lrs"
	"github.com/lbd-dev/lbd/xds/resource"
)

// silentServers are management servers that send nothing. The server that every target
// uses may be nil.
type silentServers struct{ used *bootstrap.Server }

func (silentServers) Want(string, []resource.Key, []resource.Key) {}
func (silentServers) Away(string, string) bool                    { return false }
func (s silentServers) Server(string, string) *bootstrap.Server   { return s.used }
func (silentServers) Connected(bootstrap.Server) bool             { return true }
func (silentServers) Status() client.Status                       { return client.Status{} }

// noReports sends no load reports.
type noReports struct{}

func (noReports) Report(bootstrap.Server, ...resource.ServiceKey) {}
func (noReports) Stop(...resource.ServiceKey)                     {}
func (noReports) Status() []lrs.ServerStatus                      { return nil }

// recordedReports records of which clusters load reports began and ended.
type recordedReports struct {
	noReports
	calls []string
}

func (r *recordedReports) Report(_ bootstrap.Server, keys ...resource.ServiceKey) {
	r.calls = append(r.calls, fmt.Sprint("report ", keys[0].Cluster))
}

func (r *recordedReports) Stop(keys ...resource.ServiceKey) {
	r.calls = append(r.calls, fmt.Sprint("stop ", keys[0].Cluster))
}

// recordedLastGood records the versions to keep, and the keys to remove.
type recordedLastGood struct {
	put     []resource.Update
	removed []resource.Key
}

func (*recordedLastGood) All() iter.Seq[resource.Update] {
	return slices.Values[[]resource.Update](nil)
}

func (k *recordedLastGood) Put(updates []resource.Update) {
	for _, u := range updates {
		if u.Raw == nil {
			k.removed = append(k.removed, u.Key)
		} else {
			k.put = append(k.put, u)
		}
	}
}

// follow returns a service that follows the servers "one" and "two", in order of
// fallback, with so many targets whose routes lead to the cluster "shared".
func follow(t *testing.T, targets int, change ...func(*service.Options)) (s *service.Service, kept *recordedLastGood, reports *recordedReports, log *bytes.Buffer) {
	t.Helper()
	server := `{"server_uri":"passthrough:///%s","channel_creds":[{"type":"insecure"}]}`
	b, err := bootstrap.Parse(fmt.Appendf(nil, `{"node":{"id":"test"},"xds_servers":[`+server+`,`+server+`]}`, "one", "two"),
		bootstrap.Options{Version: "1"})
	servicetest.Must(t, err)
	kept, reports, log = &recordedLastGood{}, &recordedReports{}, &bytes.Buffer{}
	s, _ = servicetest.Start(t, "", func(o *service.Options) {
		o.Sources.Bootstrap, o.Logger = b, slog.New(slog.NewTextHandler(log, nil))
		for i := range targets {
			o.Sources.Targets = append(o.Sources.Targets, targetOf(i))
		}
		for _, f := range change {
			f(o)
		}
	}, func(c *sources.Connections) {
		c.Servers, c.LastGood, c.Reports = silentServers{&b.Servers[0]}, kept, reports
	})
	routes := &resource.RouteConfiguration{VirtualHosts: []*resource.VirtualHost{{
		Domains: []string{"*"}, Routes: []*resource.Route{{Clusters: []resource.WeightedCluster{{Name: "shared", Weight: 1}}}},
	}}}
	var updates []resource.Update
	for i := range targets {
		key := resource.Key{Type: resource.TypeListener, Name: fmt.Sprint("t", i)}
		l := &resource.Listener{Name: key.Name, Routes: routes}
		updates = append(updates, resource.Update{Target: targetOf(i), Item: resource.Item{Key: key, Raw: []byte("l"), Value: resource.Value{Listener: l}}, Server: "passthrough:///one"})
	}
	s.Inbound.ServerUpdate(updates)
	kept.put = nil
	return s, kept, reports, log
}

func targetOf(i int) string { return fmt.Sprint("xds:///t", i) }

// shared is the cluster of all targets.
var shared = resource.Key{Type: resource.TypeCluster, Name: "shared"}

// sharedUpdate is an update of the shared cluster, from a server to a target.
func sharedUpdate(target int, server, raw string) resource.Update {
	c := resource.DefaultCluster(shared.Name)
	return resource.Update{
		Target: targetOf(target), Item: resource.Item{Key: shared, Raw: []byte(raw), Value: resource.Value{Cluster: c}},
		Server: "passthrough:///" + server, Fallback: server != "one",
	}
}

// TestSharedResourcesAreKeptOnce: an update for several targets is kept once. Otherwise the
// cost of a change of a shared cluster is the square of its targets.
func TestSharedResourcesAreKeptOnce(t *testing.T) {
	s, kept, _, _ := follow(t, 20)
	var updates []resource.Update
	for i := range 20 {
		updates = append(updates, sharedUpdate(i, "one", "c"))
	}
	s.Inbound.ServerUpdate(updates)
	if len(kept.put) != 1 || kept.put[0].Key != shared || kept.put[0].Server != "passthrough:///one" {
		t.Errorf("kept %+v", kept.put)
	}
}

// TestLoadReportsEndWithTheLastTarget: the load of a cluster is reported while at least one
// target has the cluster from a server that requests reports.
func TestLoadReportsEndWithTheLastTarget(t *testing.T) {
	s, _, reports, _ := follow(t, 2)
	wants := func(target int, want bool) {
		u := sharedUpdate(target, "one", fmt.Sprint(want))
		u.Cluster.LRSToSelf = want
		assignment := resource.Key{Type: resource.TypeAssignment, Name: shared.Name}
		s.Inbound.ServerUpdate([]resource.Update{u, {
			Target: targetOf(target), Server: u.Server,
			Item: resource.Item{Key: assignment, Raw: []byte("a"), Value: resource.Value{Assignment: &resource.Assignment{Name: shared.Name}}},
		}})
	}
	wants(0, true)
	wants(1, false)
	if slices.Contains(reports.calls, "stop shared") || !slices.Contains(reports.calls, "report shared") {
		t.Fatalf("with one target left that wants them: %q", reports.calls)
	}
	wants(0, false)
	servicetest.Expect(t, "with none", reports.calls[len(reports.calls)-1], "stop shared")
}

// TestThePreferredServersResourceIsKept: of concurrent updates of two servers, that of the
// preferred one is kept, in either order.
func TestThePreferredServersResourceIsKept(t *testing.T) {
	for _, order := range [][]string{{"one", "two"}, {"two", "one"}} {
		t.Run(strings.Join(order, ","), func(t *testing.T) {
			s, kept, _, _ := follow(t, 2)
			s.Inbound.ServerUpdate([]resource.Update{sharedUpdate(0, order[0], order[0]), sharedUpdate(1, order[1], order[1])})
			if len(kept.put) != 1 || string(kept.put[0].Raw) != "one" {
				t.Errorf("kept %+v", kept.put)
			}
			final := sharedUpdate(1, "two", "")
			final.Item = resource.Item{Key: shared}
			final.Err, final.Final = &client.ResourceError{Kind: client.ErrorDeleted, Key: shared}, true
			s.Inbound.ServerUpdate([]resource.Update{final})
			if len(kept.removed) > 0 {
				t.Errorf("removed %v", kept.removed)
			}
		})
	}
}

// TestUnknownNamesThatFallBackAreReportedOnce: names that any caller can invent fill neither
// the events nor the log while the preferred server is unreachable.
func TestUnknownNamesThatFallBackAreReportedOnce(t *testing.T) {
	s, _, _, log := follow(t, 1)
	before := strings.Count(log.String(), "\n")
	for i := range 100 {
		s.Inbound.ServerEvent(client.FellBack{Targets: []string{fmt.Sprint("cluster:typo", i)}, From: "one", To: "two"})
		s.Inbound.ServerEvent(client.Returned{Targets: []string{fmt.Sprint("cluster:typo", i)}, From: "two", To: "one"})
	}
	if got := strings.Count(log.String(), "\n") - before; got != 2 {
		t.Errorf("%d lines are logged:\n%s", got, log)
	}
}

// The event of a response counts its resources and names the first; it belongs to a
// cluster only if there is a single one.
func TestEventOfManyResources(t *testing.T) {
	s, _, _, log := follow(t, 1)
	a, b := resource.Key{Type: resource.TypeCluster, Name: "a"}, resource.Key{Type: resource.TypeCluster, Name: "b"}
	cause := errors.New("the cause")
	for _, test := range []struct {
		event         client.Event
		says, cluster string
		line          string
	}{
		{
			client.Rejected{Server: "one", Version: "7", Resources: client.Resources{Count: 1, Keys: []resource.Key{a}}, Err: cause},
			"the management server sent 1 invalid resource (NACK): Cluster/a", "a", "resources=1 first=Cluster/a version=7",
		},
		{
			client.Rejected{Server: "one", Version: "7", Resources: client.Resources{Count: 9999, Keys: []resource.Key{a, b}}, Err: cause},
			"the management server sent 9999 invalid resources (NACK): Cluster/a, Cluster/b, …", "", "resources=9999 first=Cluster/a",
		},
		{
			client.DataError{Server: "one", Resources: client.Resources{Count: 2, Keys: []resource.Key{a, b}}, Err: cause, Cached: 1},
			"the management server deleted 2 resources, or reports an error: Cluster/a, Cluster/b; the last good version of 1 stays in use",
			"", "resources=2 first=Cluster/a cached=1",
		},
	} {
		log.Reset()
		s.Inbound.ServerEvent(test.event)
		e := s.Events.Last(observe.EventFilter{Limit: 1})[0]
		if e.Says != test.says || e.Cluster != test.cluster || e.Resource != "Cluster/a" || e.Error != "the cause" || e.Server != "one" {
			t.Errorf("%+v", e)
		}
		if !strings.Contains(log.String(), test.line) || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("logged %q, want %q", log, test.line)
		}
	}
}

// blockedServers do not answer before they are released.
type blockedServers struct {
	silentServers
	released chan struct{}
}

func (b blockedServers) Status() client.Status {
	<-b.released
	return client.Status{}
}

// TestAScrapeDoesNotWaitForTheClient: a scrape does not wait for a busy xDS client.
func TestAScrapeDoesNotWaitForTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := blockedServers{released: make(chan struct{})}
		s, _ := servicetest.Start(t, "", nil, func(c *sources.Connections) {
			c.Servers, c.LastGood, c.Reports = busy, &recordedLastGood{}, &recordedReports{}
		})
		if n, err := testutil.GatherAndCount(s.Metrics, "lbd_on_demand_clusters"); err != nil || n == 0 {
			t.Errorf("got %d series of on-demand clusters, error %v", n, err)
		}
		close(busy.released)
	})
}
