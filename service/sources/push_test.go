package sources_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestPushedEndpointsBecomePicks(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	first := servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
	if !first.New || len(first.Changes) != 1 || first.Changes[0] != (difference.Change{Resource: "ClusterLoadAssignment/orders", Change: "added", Difference: "added with 1 usable endpoint"}) {
		t.Errorf("the first push: %+v", first)
	}
	out, err := servicetest.Pick(s, picks.Request{Cluster: "orders"}) // without waiting: picks see it
	if err != nil || out.Picks[0].Address != "a-0:80" || out.Generation != first.Generation {
		t.Fatalf("%+v, %v; pushed %+v", out, err, first)
	}
	same := servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
	if same.New || len(same.Changes) != 0 || same.Hash != first.Hash || same.Generation != first.Generation {
		t.Errorf("the same again changes nothing: %+v, first %+v", same, first)
	}
	next := servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("b", 1))
	if next.New || next.Changes[0].Change != "modified" || next.Hash == first.Hash || next.Generation == first.Generation {
		t.Errorf("another: %+v, first %+v", next, first)
	}
	if out, err = servicetest.Pick(s, picks.Request{Cluster: "orders"}); err != nil || out.Picks[0].Address != "b-0:80" {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestWeightsAreJudgedWithTheCluster: a push says that a policy ignores weights of endpoints if the Cluster in the
// same push has such a policy, else if the one in force has.
func TestWeightsAreJudgedWithTheCluster(t *testing.T) {
	uneven := servicetest.Endpoints("a", 2)
	uneven[0]["load_balancing_weight"] = 7
	assignment := servicetest.Object{"@type": resource.TypeAssignment.URL(), "cluster_name": "orders", "endpoints": []servicetest.Object{{"lb_endpoints": uneven}}}
	cluster := func(policy string) servicetest.Object {
		return servicetest.Object{"@type": resource.TypeCluster.URL(), "name": "orders", "type": "EDS", "lb_policy": policy}
	}
	s, _ := servicetest.Start(t, "", nil)
	for i, step := range []struct {
		push []servicetest.Object
		want string
	}{
		{[]servicetest.Object{assignment}, "round_robin ignores it"},
		{[]servicetest.Object{assignment, cluster("RING_HASH")}, ""},
		{[]servicetest.Object{assignment}, ""},
		{[]servicetest.Object{cluster("ROUND_ROBIN"), assignment}, "round_robin ignores it"},
		{[]servicetest.Object{cluster("LEAST_REQUEST")}, ""},
		{[]servicetest.Object{assignment}, "least_request_experimental ignores it"},
	} {
		got := ""
		for _, w := range servicetest.PushAll(t, s, step.push...).Warnings {
			_, got, _ = strings.Cut(w.Reason, "load_balancing_weight: ")
		}
		servicetest.Expect(t, fmt.Sprint("step ", i), got, step.want)
	}
}

func TestPushRefusals(t *testing.T) {
	good := servicetest.Usable("a", 1)
	empty := servicetest.Assignment(nil)
	for name, c := range map[string]struct {
		request sources.PushRequest
		want    fault.Code
		says    string
	}{
		"no JSON":           {sources.PushRequest{Kind: sources.Endpoints, Body: []byte("{")}, fault.InvalidArgument, "JSON"},
		"a broken rule":     {sources.PushRequest{Kind: sources.Endpoints, Body: servicetest.Assignment(nil, servicetest.Place("a", 1, 1, servicetest.Endpoints("a", 1)))}, fault.InvalidResource, "priority"},
		"an unknown field":  {sources.PushRequest{Kind: sources.Endpoints, Body: []byte(`{"endpints":[]}`)}, fault.InvalidResource, "endpints: unknown field (did you mean endpoints?)"},
		"too much YAML":     {sources.PushRequest{Kind: sources.Endpoints, Format: sources.YAML, Body: make([]byte, text.MaxYAMLBytes+1)}, fault.TooLarge, "JSON or protobuf"},
		"no endpoint":       {sources.PushRequest{Kind: sources.Endpoints, Body: empty}, fault.Blocked, "allow_empty"},
		"exists already":    {sources.PushRequest{Kind: sources.Endpoints, Body: empty, Options: sources.ChangeOptions{Precondition: sources.Precondition{IfNoneMatch: true}}}, fault.PreconditionFailed, "exists"},
		"another content":   {sources.PushRequest{Kind: sources.Endpoints, Body: empty, Options: sources.ChangeOptions{Precondition: sources.Precondition{IfMatch: []string{"abc"}}}}, fault.PreconditionFailed, "changed"},
		"is not there":      {sources.PushRequest{Kind: sources.Config, Body: servicetest.Config(1), Options: sources.ChangeOptions{Precondition: sources.Precondition{IfMatch: []string{"*"}}}}, fault.PreconditionFailed, "does not exist"},
		"leads to nowhere":  {sources.PushRequest{Kind: sources.Config, Body: []byte(`{"type":"EDS","eds_cluster_config":{"service_name":"elsewhere"}}`)}, fault.Blocked, "it has 1"},
		"of another cluter": {sources.PushRequest{Kind: sources.Endpoints, Body: []byte(`{"cluster_name":"billing"}`)}, fault.InvalidResource, "billing"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := servicetest.Start(t, "", nil)
			before := servicetest.Push(t, s, sources.Endpoints, "orders", good)
			c.request.Cluster = "orders"
			_, err := s.Sources.Push(t.Context(), &c.request)
			if servicetest.Code(err) != c.want || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v: %v; want %v saying %q", servicetest.Code(err), err, c.want, c.says)
			}
			if e, ok := errors.AsType[*fault.Error](err); ok && c.want == fault.InvalidResource && len(e.Problems) == 0 {
				t.Error("no broken rule is listed")
			}
			if out, err := servicetest.Pick(s, picks.Request{Cluster: "orders"}); err != nil || out.Generation != before.Generation {
				t.Errorf("what runs was touched: %+v, %v", out, err)
			}
		})
	}
}

func TestAllowEmptyAndDelete(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
	servicetest.Push(t, s, sources.Config, "orders", servicetest.Config(7))
	_, err := s.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Endpoints, Cluster: "orders", Body: servicetest.Assignment(nil), Options: sources.ChangeOptions{AllowEmpty: true}})
	servicetest.Must(t, err)
	if _, err := servicetest.Pick(s, picks.Request{Cluster: "orders"}); servicetest.Code(err) != fault.NoReadyEndpoint {
		t.Errorf("an empty assignment: %v", err)
	}
	del := func(kind sources.Kind, dry bool) (*sources.PushResult, error) {
		return s.Sources.Delete(t.Context(), kind, "orders", sources.ChangeOptions{DryRun: dry})
	}
	if res, err := del(sources.Endpoints, true); err != nil || res.Changes[0].Change != "removed" {
		t.Errorf("dry: %+v, %v", res, err)
	}
	_, err = del(sources.Endpoints, false)
	servicetest.Must(t, err)
	if _, err := del(sources.Endpoints, false); servicetest.Code(err) != fault.UnknownCluster {
		t.Errorf("delete what is not there: %v", err)
	}
	if _, err := s.State.Cluster(t.Context(), "orders", "", true); err != nil {
		t.Errorf("the configuration is still there: %v", err)
	}
	_, err = del(sources.Config, false)
	servicetest.Must(t, err)
	if _, err := servicetest.Pick(s, picks.Request{Cluster: "orders"}); servicetest.Code(err) != fault.UnknownCluster {
		t.Errorf("nothing is left: %v", err)
	}
}

func TestServiceNameJoinsClusterAndAssignment(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Endpoints, "shared", servicetest.Usable("a", 1))
	servicetest.Push(t, s, sources.Config, "orders", []byte(`{"type":"EDS","eds_cluster_config":{"service_name":"shared"}}`))
	if out, err := servicetest.Pick(s, picks.Request{Cluster: "orders"}); err != nil || out.Picks[0].Address != "a-0:80" {
		t.Fatalf("%+v, %v", out, err)
	}
	// A push of the assignment reaches the cluster that it serves.
	servicetest.Push(t, s, sources.Endpoints, "shared", servicetest.Usable("b", 1))
	if out, err := servicetest.Pick(s, picks.Request{Cluster: "orders"}); err != nil || out.Picks[0].Address != "b-0:80" {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestRestartServesWhatWasPushed(t *testing.T) {
	dir := t.TempDir()
	s, stop := servicetest.Start(t, dir, nil)
	before := servicetest.Push(t, s, sources.Endpoints, "or/de%rs", servicetest.Usable("a", 1))
	servicetest.Push(t, s, sources.Config, "or/de%rs", servicetest.Config(3))
	stop()

	s, _ = servicetest.Start(t, dir, nil)
	out, err := servicetest.Pick(s, picks.Request{Cluster: "or/de%rs"})
	if err != nil || out.Picks[0].Address != "a-0:80" {
		t.Fatalf("%+v, %v", out, err)
	}
	c, err := s.State.Cluster(t.Context(), "or/de%rs", "", true)
	if err != nil || c.Breaker.MaxRequests != 3 || c.Breaker.LimitFrom != "config" {
		t.Errorf("%+v, %v", c, err)
	}
	stored, err := s.Sources.Pushed(t.Context(), "", sources.Endpoints, "or/de%rs", sources.YAML)
	if err != nil || stored.Hash != before.Hash || !strings.Contains(string(stored.Body.Bytes()), "address: a-0") {
		t.Errorf("%+v, %v", stored, err)
	}
}

// inFiles returns resource files that provide Clusters and assignments, written as JSON.
func inFiles(tb testing.TB, bodies map[resource.Key][]byte) files.Set {
	tb.Helper()
	set := files.Set{Resources: map[resource.Key]files.Resource{}}
	for key, body := range bodies {
		i, _, err := decode.Item(resource.Item{Key: key, Raw: body}, decode.Options{Name: key.Name})
		servicetest.Must(tb, err)
		set.Resources[key] = files.Resource{Item: i, File: key.Name + ".yaml"}
	}
	return set
}

// TestDeletionOfNothingIsNoEvent: nothing changed.
func TestDeletionOfNothingIsNoEvent(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	for _, kind := range []sources.Kind{sources.Endpoints, sources.Config} {
		if _, err := s.Sources.Delete(t.Context(), kind, "unknown", sources.ChangeOptions{}); servicetest.Code(err) != fault.UnknownCluster {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if all := s.Events.Last(observe.EventFilter{Limit: 100}); len(all) != 0 {
		t.Errorf("events %+v", all)
	}
	old := sources.Precondition{IfMatch: []string{"old"}}
	if _, err := s.Sources.Delete(t.Context(), sources.Config, "unknown", sources.ChangeOptions{Precondition: old}); servicetest.Code(err) != fault.PreconditionFailed {
		t.Error(err)
	}
	if all := s.Events.Last(observe.EventFilter{Limit: 100}); len(all) != 1 || all[0].Reason != string(fault.PreconditionFailed) {
		t.Errorf("of a precondition that failed: %+v", all)
	}
}

// TestAPushOfSeveralIsOfEachOfThem that it lists.
func TestAPushOfSeveralIsOfEachOfThem(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.PushAll(t, s, servicetest.Assigned("a", "a-1"), servicetest.Assigned("b", "b-1"), servicetest.Listener("shop", servicetest.Route("/", "a")))
	for name, want := range map[string]int{"a": 1, "b": 1, "shop": 0, "c": 0, "": 1} {
		got := s.Events.Last(observe.EventFilter{Cluster: name, Types: []observe.EventType{observe.EventPushed}, Limit: 10})
		if len(got) != want {
			t.Errorf("of %q: %+v", name, got)
		}
	}
}

// TestBlockedKnowsFiles: the guard of pushes sees the resources of files.
func TestBlockedKnowsFiles(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	filed := map[resource.Key][]byte{}
	for _, name := range []string{"filed", "elsewhere"} {
		filed[resource.Key{Type: sources.Endpoints, Name: name}] = servicetest.Assignment(nil, servicetest.Place("a", 0, 1, servicetest.Endpoints(name, 2)))
	}
	s.Sources.FilesChanged(inFiles(t, filed))
	servicetest.Push(t, s, sources.Endpoints, "orders", servicetest.Usable("a", 1))
	servicetest.Push(t, s, sources.Config, "orders", []byte(`{"type":"EDS","eds_cluster_config":{"service_name":"elsewhere"}}`))
	if out, err := servicetest.Pick(s, picks.Request{Cluster: "orders"}); err != nil || !strings.HasPrefix(out.Picks[0].Address, "elsewhere-") {
		t.Errorf("led to a file's assignment: %+v, %v", out, err)
	}
	_, err := s.Sources.Push(t.Context(), &sources.PushRequest{
		Kind: sources.Config, Cluster: "filed", Body: []byte(`{"type":"EDS","eds_cluster_config":{"service_name":"nowhere"}}`),
	})
	if servicetest.Code(err) != fault.Blocked || !strings.Contains(err.Error(), "it has 2") {
		t.Errorf("led away from a file's assignment: %v", err)
	}
}

// TestProblemsHaveLines: a problem has the line and the column of the field, in every
// format.
func TestProblemsHaveLines(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	const yaml = "endpoints:\n- locality: {zone: a}\n  load_balancing_weight: 1\n  lb_endpoints:\n  - endpoint:\n" +
		"      address: {socket_address: {address: 10.0.0.1, port_value: 70000}}\n"
	const json = `{
  "endpoints": [{
    "loadBalancingWeight": 1,
    "lbEndpoints": [{"endpoint": {"address": {"socketAddress":
      {"address": "10.0.0.1", "portValue": 70000}}}}]
  }]
}`
	enveloped := "resources:\n- \"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment\n" +
		"  cluster_name: c\n  " + strings.ReplaceAll(yaml, "\n", "\n  ")
	large := strings.Repeat("# a line\n", 1<<17) + yaml
	for name, c := range map[string]struct {
		body   string
		format sources.Format
		line   int
		column int
	}{
		"YAML":              {yaml, sources.YAML, 6, 53},
		"JSON":              {json, sources.JSON, 5, 31},
		"in an envelope":    {enveloped, sources.YAML, 9, 55},
		"YAML that is long": {large, sources.YAML, 0, 0},
		"not YAML":          {"endpoints:\n- a: [\n", sources.YAML, 2, 0},
		"not JSON":          {"{\n  \"endpoints\": }", sources.JSON, 2, 16},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Sources.Push(t.Context(), &sources.PushRequest{
				Kind: sources.Endpoints, Cluster: "c", Body: []byte(c.body), Format: c.format, Options: sources.ChangeOptions{DryRun: true},
			})
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || len(e.Problems) != 1 {
				t.Fatalf("refused with %+v", err)
			}
			if p := e.Problems[0]; p.Line != c.line || p.Column != c.column {
				t.Errorf("%q is at line %d, column %d; want %d, %d", p, p.Line, p.Column, c.line, c.column)
			}
		})
	}

	result, err := s.Sources.Push(t.Context(), &sources.PushRequest{
		Kind: sources.Endpoints, Cluster: "c", Format: sources.YAML, Options: sources.ChangeOptions{DryRun: true}, Lenient: true,
		Body: []byte(strings.Replace(strings.Replace(yaml, "70000", "7000", 1), "endpoints:", "other: 1\nendpoints:", 1)),
	})
	if err != nil || len(result.Warnings) != 1 || result.Warnings[0].Line != 1 || len(result.Notes) != 1 || result.Notes[0].Line != 1 {
		t.Errorf("warned with %+v, %v", result, err)
	}
}

// TestFewProblemsAreLocatedInMuchJSON: large JSON is not read again for each problem.
func TestFewProblemsAreLocatedInMuchJSON(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	var endpoints []string
	for i := range 50 {
		endpoints = append(endpoints, fmt.Sprintf(`{"endpoint":{"address":{"socket_address":{"address":"10.0.0.%d","port_value":0}}}}`, i))
	}
	body := `{"endpoints":[{"load_balancing_weight":1,"lb_endpoints":[` + strings.Join(endpoints, ",\n") + "]}]}" + strings.Repeat(" ", 1<<20)
	_, err := s.Sources.Push(t.Context(), &sources.PushRequest{
		Kind: sources.Endpoints, Cluster: "c", Body: []byte(body), Format: sources.JSON, Options: sources.ChangeOptions{DryRun: true},
	})
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || len(e.Problems) != 50 {
		t.Fatalf("refused with %+v", err)
	}
	if e.Problems[0].Line != 1 || e.Problems[14].Line != 15 || e.Problems[20].Line != 0 {
		t.Errorf("problems are at lines %d, %d and %d", e.Problems[0].Line, e.Problems[14].Line, e.Problems[20].Line)
	}
}

// TestUnknownReferencesOfRoutes: a snapshot whose routes refer to unknown resources gets
// warnings.
func TestUnknownReferencesOfRoutes(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	const absent = "picks that need it are refused unless a management server has it"
	byName := servicetest.Listener("shop")
	byName["api_listener"].(servicetest.Object)["api_listener"].(servicetest.Object)["rds"] = servicetest.Object{"route_config_name": "r", "config_source": servicetest.Object{"ads": servicetest.Object{}}} //nolint:errcheck,forcetypeassert // made above
	delete(byName["api_listener"].(servicetest.Object)["api_listener"].(servicetest.Object), "route_config")                                                                                                 //nolint:errcheck,forcetypeassert // made above
	routes := func(name string, list ...servicetest.Object) servicetest.Object {
		return servicetest.Object{
			"@type": resource.TypeRoutes.URL(), "name": name,
			"virtual_hosts": []servicetest.Object{{"domains": []string{"*"}, "routes": list}},
		}
	}
	var many []string
	for i := range 12 {
		many = append(many, "c"+string(rune('a'+i))+"=1")
	}
	warned := func(resources ...servicetest.Object) string {
		var says []string
		for _, w := range servicetest.PushAll(t, s, resources...).Warnings {
			if strings.Contains(w.Reason, absent) {
				says = append(says, w.Resource+" | "+w.String())
			}
		}
		return strings.Join(says, "\n")
	}

	const ofListener = `Listener/shop | resources[0].api_listener.api_listener.rds.route_config_name: is "r", which was not pushed and is in no file: ` + absent
	servicetest.Expect(t, "a listener alone", warned(byName), ofListener)
	if got, want := warned(servicetest.Assigned("b", "h"), routes("r", servicetest.Route("/a", "a"), servicetest.Route("/b", "b=1", "a=1"), servicetest.Route("/", "a"))),
		"RouteConfiguration/r | resources[1].virtual_hosts: lead to clusters that were not pushed and are in no file: a: "+absent; got != want {
		t.Errorf("a cluster that is not there: %s", got)
	}
	servicetest.Expect(t, "all was pushed before", warned(byName, servicetest.Assigned("a", "h")), "")
	if got, want := warned(servicetest.Listener("own", servicetest.Route("/", many...))),
		"Listener/own | resources[0].api_listener.api_listener.route_config.virtual_hosts: lead to clusters that were not pushed and are in no file: "+
			"ca, cb, cc, cd, ce, cf, cg, ch, ci, cj and 2 more: "+absent; got != want {
		t.Errorf("many: %s", got)
	}

	// A resource of a file is known.
	s.Sources.FilesChanged(inFiles(t, map[resource.Key][]byte{{Type: sources.Config, Name: "filed"}: []byte(`{"type":"EDS"}`)}))
	servicetest.Expect(t, "in a file", warned(routes("s", servicetest.Route("/", "filed"))), "")
	if !slices.Contains(strings.Fields(clusterNames(s)), "filed") {
		t.Error("the file is not followed")
	}
}

// snapshot is a body with an assignment for each of names, and a configuration
// for each of configs.
func snapshot(names []string, configs ...string) []byte {
	var all []servicetest.Object
	for _, n := range names {
		all = append(all, servicetest.Assigned(n, "h1"))
	}
	for _, n := range configs {
		all = append(all, servicetest.Object{"@type": sources.Config.URL(), "name": n, "type": "EDS"})
	}
	return servicetest.Encode(servicetest.Object{"version": "1", "resources": all})
}

func pushSnapshot(t *testing.T, s *service.Service, r sources.SnapshotRequest) (*sources.PushResult, error) {
	t.Helper()
	return s.Sources.PushSnapshot(t.Context(), &r)
}

func clusterNames(s *service.Service) string {
	var names []string
	for _, c := range s.State.Clusters() {
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

func TestSnapshotReplacesOrAdds(t *testing.T) {
	dir := t.TempDir()
	s, stop := servicetest.Start(t, dir, nil)
	first, err := pushSnapshot(t, s, sources.SnapshotRequest{Replace: true, MaxRemoved: -1, Body: snapshot([]string{"a", "b"}, "a")})
	if err != nil || len(first.Changes) != 3 {
		t.Fatalf("%+v, %v", first, err)
	}
	res, err := pushSnapshot(t, s, sources.SnapshotRequest{Body: snapshot([]string{"b", "c"})})
	if err != nil || fmt.Sprint(res.Changes) != "[{ClusterLoadAssignment/c added added with 1 usable endpoint}]" {
		t.Errorf("adding: %+v, %v", res, err)
	}
	servicetest.Expect(t, "clusters", clusterNames(s), "a b c")
	_, err = pushSnapshot(t, s, sources.SnapshotRequest{Replace: true, MaxRemoved: 2, Body: snapshot([]string{"a"})})
	if servicetest.Code(err) != fault.Blocked || !strings.Contains(err.Error(), "would remove 3 resources") {
		t.Errorf("more than max_removed: %v", err)
	}
	back, err := pushSnapshot(t, s, sources.SnapshotRequest{Replace: true, MaxRemoved: 1, Body: snapshot([]string{"a", "b"}, "a")})
	if err != nil || back.Hash != first.Hash {
		t.Errorf("equal content has an equal tag: %+v, %v; first %s", back, err, first.Hash)
	}
	kept, err := s.Sources.Snapshot(t.Context(), "", nil, sources.JSON)
	if err != nil || kept.Hash != first.Hash {
		t.Fatalf("%+v, %v", kept, err)
	}
	if shared, err := s.Sources.Snapshot(t.Context(), "", nil, sources.JSON); err != nil || shared != kept {
		t.Errorf("a second reader has another copy: %v", err)
	}
	if other, err := s.Sources.Snapshot(t.Context(), "", nil, sources.YAML); err != nil || bytes.Equal(other.Body.Bytes(), kept.Body.Bytes()) {
		t.Errorf("YAML is %s, %v", other.Body.Bytes(), err)
	}
	stop()

	// What one daemon gives out, another takes.
	other, _ := servicetest.Start(t, "", nil)
	again, err := pushSnapshot(t, other, sources.SnapshotRequest{Replace: true, MaxRemoved: 0, Body: kept.Body.Bytes()})
	if err != nil || again.Hash != first.Hash {
		t.Errorf("%+v, %v; first %s", again, err, first.Hash)
	}
	s, _ = servicetest.Start(t, dir, nil)
	servicetest.Expect(t, "after a restart: clusters", clusterNames(s), "a b")
}

func TestSnapshotIsRefusedWhole(t *testing.T) {
	good := snapshot([]string{"a", "b"}, "a")
	with := func(extra servicetest.Object) []byte {
		var v struct {
			Resources []servicetest.Object `json:"resources"`
		}
		servicetest.Must(t, json.Unmarshal(good, &v))
		v.Resources = append(v.Resources, extra)
		return servicetest.Encode(v)
	}
	for name, c := range map[string]struct {
		request sources.SnapshotRequest
		want    fault.Code
		says    string
	}{
		"a broken resource":  {sources.SnapshotRequest{Body: with(servicetest.Object{"@type": sources.Config.URL(), "name": "z", "type": "STATIC"})}, fault.InvalidResource, "resources[3].type"},
		"another type":       {sources.SnapshotRequest{Body: with(servicetest.Object{"@type": "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration", "name": "l"})}, fault.InvalidResource, "ScopedRouteConfiguration"},
		"no endpoint":        {sources.SnapshotRequest{Body: with(servicetest.Object{"@type": sources.Endpoints.URL(), "cluster_name": "z"})}, fault.Blocked, `"z"`},
		"endpoints are lost": {sources.SnapshotRequest{Body: snapshot(nil, "a"), Replace: true, MaxRemoved: -1}, fault.Blocked, `"a"`},
		"nothing at all":     {sources.SnapshotRequest{Body: []byte(`{"resources":[]}`), Replace: true, MaxRemoved: -1}, fault.Blocked, "all 3 resources"},
		"another content":    {sources.SnapshotRequest{Body: good, Options: sources.ChangeOptions{Precondition: sources.Precondition{IfMatch: []string{"x"}}}}, fault.PreconditionFailed, "the snapshot has changed"},
		"no snapshot":        {sources.SnapshotRequest{Body: []byte(`[]`)}, fault.InvalidArgument, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := servicetest.Start(t, "", nil)
			_, err := pushSnapshot(t, s, sources.SnapshotRequest{Body: good})
			servicetest.Must(t, err)
			before, err := s.Sources.Snapshot(t.Context(), "", nil, sources.Protobuf)
			servicetest.Must(t, err)
			_, err = pushSnapshot(t, s, c.request)
			if servicetest.Code(err) != c.want || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v: %v; want %v saying %q", servicetest.Code(err), err, c.want, c.says)
			}
			if after, err := s.Sources.Snapshot(t.Context(), "", nil, sources.Protobuf); err != nil || after.Hash != before.Hash {
				t.Errorf("half applied: %+v, %v", after, err)
			}
		})
	}
}
