package service_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestPushedEndpointsBecomePicks(t *testing.T) {
	s, _ := start(t, "", nil)
	first := push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	if !first.New || len(first.Changes) != 1 || first.Changes[0] != (difference.Change{Resource: "ClusterLoadAssignment/orders", Change: "added", Difference: "added with 1 usable endpoint"}) {
		t.Errorf("the first push: %+v", first)
	}
	out, err := pick(s, picks.Request{Cluster: "orders"}) // without waiting: picks see it
	if err != nil || out.Picks[0].Address != "a-0:80" || out.Generation != first.Generation {
		t.Fatalf("%+v, %v; pushed %+v", out, err, first)
	}
	same := push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	if same.New || len(same.Changes) != 0 || same.Hash != first.Hash || same.Generation != first.Generation {
		t.Errorf("the same again changes nothing: %+v, first %+v", same, first)
	}
	next := push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"b", 0, 1, endpoints("b", 1)}))
	if next.New || next.Changes[0].Change != "modified" || next.Hash == first.Hash || next.Generation == first.Generation {
		t.Errorf("another: %+v, first %+v", next, first)
	}
	if out, err = pick(s, picks.Request{Cluster: "orders"}); err != nil || out.Picks[0].Address != "b-0:80" {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestPushRefusals(t *testing.T) {
	good := assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)})
	empty := assignment(t, nil)
	for name, c := range map[string]struct {
		request sources.PushRequest
		want    fault.Code
		says    string
	}{
		"no JSON":           {sources.PushRequest{Kind: sources.Endpoints, Body: []byte("{")}, fault.InvalidArgument, "JSON"},
		"a broken rule":     {sources.PushRequest{Kind: sources.Endpoints, Body: assignment(t, nil, place{"a", 1, 1, endpoints("a", 1)})}, fault.InvalidResource, "priority"},
		"an unknown field":  {sources.PushRequest{Kind: sources.Endpoints, Body: []byte(`{"endpints":[]}`)}, fault.InvalidResource, "endpints: unknown field (did you mean endpoints?)"},
		"too much YAML":     {sources.PushRequest{Kind: sources.Endpoints, Format: sources.YAML, Body: make([]byte, text.MaxYAMLBytes+1)}, fault.TooLarge, "JSON or protobuf"},
		"no endpoint":       {sources.PushRequest{Kind: sources.Endpoints, Body: empty}, fault.Blocked, "allow_empty"},
		"exists already":    {sources.PushRequest{Kind: sources.Endpoints, Body: empty, ChangeOptions: sources.ChangeOptions{Precondition: sources.Precondition{IfNoneMatch: true}}}, fault.PreconditionFailed, "exists"},
		"another content":   {sources.PushRequest{Kind: sources.Endpoints, Body: empty, ChangeOptions: sources.ChangeOptions{Precondition: sources.Precondition{IfMatch: []string{"abc"}}}}, fault.PreconditionFailed, "changed"},
		"is not there":      {sources.PushRequest{Kind: sources.Config, Body: config(t, 1), ChangeOptions: sources.ChangeOptions{Precondition: sources.Precondition{IfMatch: []string{"*"}}}}, fault.PreconditionFailed, "does not exist"},
		"leads to nowhere":  {sources.PushRequest{Kind: sources.Config, Body: []byte(`{"type":"EDS","eds_cluster_config":{"service_name":"elsewhere"}}`)}, fault.Blocked, "where it has 1"},
		"of another cluter": {sources.PushRequest{Kind: sources.Endpoints, Body: []byte(`{"cluster_name":"billing"}`)}, fault.InvalidResource, "billing"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := start(t, "", nil)
			before := push(t, s, sources.Endpoints, "orders", good)
			c.request.Cluster = "orders"
			_, err := s.Push(t.Context(), &c.request)
			if code(err) != c.want || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v: %v; want %v saying %q", code(err), err, c.want, c.says)
			}
			var e *fault.Error
			if errors.As(err, &e) && c.want == fault.InvalidResource && len(e.Problems) == 0 {
				t.Error("no broken rule is listed")
			}
			if out, err := pick(s, picks.Request{Cluster: "orders"}); err != nil || out.Generation != before.Generation {
				t.Errorf("what runs was touched: %+v, %v", out, err)
			}
		})
	}
}

func TestAllowEmptyAndDelete(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	push(t, s, sources.Config, "orders", config(t, 7))
	_, err := s.Push(t.Context(), &sources.PushRequest{
		Kind: sources.Endpoints, Cluster: "orders", Body: assignment(t, nil), AllowEmpty: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pick(s, picks.Request{Cluster: "orders"}); code(err) != fault.NoReadyEndpoint {
		t.Errorf("an empty assignment: %v", err)
	}
	del := func(kind sources.Kind, dry bool) (*sources.PushResult, error) {
		return s.Delete(t.Context(), kind, "orders", sources.ChangeOptions{DryRun: dry})
	}
	if res, err := del(sources.Endpoints, true); err != nil || res.Changes[0].Change != "removed" {
		t.Errorf("dry: %+v, %v", res, err)
	}
	if _, err := del(sources.Endpoints, false); err != nil {
		t.Fatal(err)
	}
	if _, err := del(sources.Endpoints, false); code(err) != fault.UnknownCluster {
		t.Errorf("delete what is not there: %v", err)
	}
	if _, err := s.Cluster(t.Context(), "orders", "", true); err != nil {
		t.Errorf("the configuration is still there: %v", err)
	}
	if _, err := del(sources.Config, false); err != nil {
		t.Fatal(err)
	}
	if _, err := pick(s, picks.Request{Cluster: "orders"}); code(err) != fault.UnknownCluster {
		t.Errorf("nothing is left: %v", err)
	}
}

func TestServiceNameJoinsClusterAndAssignment(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Endpoints, "shared", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	push(t, s, sources.Config, "orders", []byte(`{"type":"EDS","eds_cluster_config":{"service_name":"shared"}}`))
	if out, err := pick(s, picks.Request{Cluster: "orders"}); err != nil || out.Picks[0].Address != "a-0:80" {
		t.Fatalf("%+v, %v", out, err)
	}
	// A push of the assignment reaches the cluster that it serves.
	push(t, s, sources.Endpoints, "shared", assignment(t, nil, place{"b", 0, 1, endpoints("b", 1)}))
	if out, err := pick(s, picks.Request{Cluster: "orders"}); err != nil || out.Picks[0].Address != "b-0:80" {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestRestartServesWhatWasPushed(t *testing.T) {
	dir := t.TempDir()
	s, stop := start(t, dir, nil)
	before := push(t, s, sources.Endpoints, "or/de%rs", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	push(t, s, sources.Config, "or/de%rs", config(t, 3))
	stop()

	s, _ = start(t, dir, nil)
	out, err := pick(s, picks.Request{Cluster: "or/de%rs"})
	if err != nil || out.Picks[0].Address != "a-0:80" {
		t.Fatalf("%+v, %v", out, err)
	}
	c, err := s.Cluster(t.Context(), "or/de%rs", "", true)
	if err != nil || c.Breaker.MaxRequests != 3 || c.Breaker.LimitFrom != "config" {
		t.Errorf("%+v, %v", c, err)
	}
	stored, err := s.Pushed(sources.Endpoints, "or/de%rs", sources.YAML)
	if err != nil || stored.Hash != before.Hash || !strings.Contains(string(stored.Body), "address: a-0") {
		t.Errorf("%+v, %v", stored, err)
	}
}

func TestClosedServiceRefuses(t *testing.T) {
	s, stop := start(t, t.TempDir(), nil)
	push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	stop()
	if _, err := pick(s, picks.Request{Cluster: "orders"}); code(err) != fault.ShuttingDown {
		t.Errorf("pick: %v", err)
	}
	_, err := s.Push(t.Context(), &sources.PushRequest{
		Kind: sources.Endpoints, Cluster: "x", Body: assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}),
	})
	if code(err) != fault.ShuttingDown {
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

// TestPushWaitsForItsOwnClusters: a slow tree delays only the pushes that change it.
func TestPushWaitsForItsOwnClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connector := make(stuckConnector)
		s, stop := start(t, "", func(o *service.Options) {
			o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: connector}
		})
		defer stop()
		body := func(zone string) []byte { return assignment(t, nil, place{zone, 0, 1, endpoints(zone, 1)}) }
		// The assignment serves another cluster, and not the one of its name.
		push(t, s, sources.Config, "shared", []byte(`{"type":"EDS","eds_cluster_config":{"service_name":"elsewhere"}}`))
		push(t, s, sources.Config, "user", []byte(`{"type":"EDS","eds_cluster_config":{"service_name":"shared"}}`))
		var pushed atomic.Int32
		for _, name := range []string{"stuck", "shared"} {
			go func() {
				push(t, s, sources.Endpoints, name, body("stuck"))
				pushed.Add(1)
			}()
		}
		synctest.Wait()
		push(t, s, sources.Endpoints, "quick", body("quick"))
		push(t, s, sources.Endpoints, "quick", body("quick")) // unchanged
		if _, err := s.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "quick", ChangeOptions: sources.ChangeOptions{DryRun: true}, Body: body("other")}); err != nil {
			t.Error(err)
		}
		if _, err := s.Delete(t.Context(), sources.Endpoints, "quick", sources.ChangeOptions{}); err != nil {
			t.Error(err)
		}
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

// TestBlockedKnowsFiles: the guard of pushes sees the resources of files.
func TestBlockedKnowsFiles(t *testing.T) {
	s, _ := start(t, "", nil)
	filed := map[resource.Key][]byte{}
	for _, name := range []string{"filed", "elsewhere"} {
		filed[resource.Key{Type: sources.Endpoints, Name: name}] = assignment(t, nil, place{"a", 0, 1, endpoints(name, 2)})
	}
	s.FilesChanged(inFiles(t, filed))
	push(t, s, sources.Endpoints, "orders", assignment(t, nil, place{"a", 0, 1, endpoints("a", 1)}))
	push(t, s, sources.Config, "orders", []byte(`{"type":"EDS","eds_cluster_config":{"service_name":"elsewhere"}}`))
	if out, err := pick(s, picks.Request{Cluster: "orders"}); err != nil || !strings.HasPrefix(out.Picks[0].Address, "elsewhere-") {
		t.Errorf("led to a file's assignment: %+v, %v", out, err)
	}
	_, err := s.Push(t.Context(), &sources.PushRequest{
		Kind: sources.Config, Cluster: "filed", Body: []byte(`{"type":"EDS","eds_cluster_config":{"service_name":"nowhere"}}`),
	})
	if code(err) != fault.Blocked || !strings.Contains(err.Error(), "where it has 2") {
		t.Errorf("led away from a file's assignment: %v", err)
	}
}
