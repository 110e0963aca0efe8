package service_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
)

// snapshot is a body with an assignment for each of names, and a configuration
// for each of configs.
func snapshot(t *testing.T, names []string, configs ...string) []byte {
	t.Helper()
	var all []object
	for _, n := range names {
		all = append(all, object{
			"@type": sources.Endpoints.URL(), "cluster_name": n,
			"endpoints": []object{{"lb_endpoints": []object{endpoint("h1")}}},
		})
	}
	for _, n := range configs {
		all = append(all, object{"@type": sources.Config.URL(), "name": n, "type": "EDS"})
	}
	return encode(t, object{"version": "1", "resources": all})
}

func pushSnapshot(t *testing.T, s *service.Service, r sources.SnapshotRequest) (*sources.PushResult, error) {
	t.Helper()
	return s.PushSnapshot(t.Context(), &r)
}

func clusterNames(t *testing.T, s *service.Service) string {
	t.Helper()
	var names []string
	for _, c := range s.Clusters() {
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

func TestSnapshotReplacesOrAdds(t *testing.T) {
	dir := t.TempDir()
	s, stop := start(t, dir, nil)
	first, err := pushSnapshot(t, s, sources.SnapshotRequest{Replace: true, MaxRemoved: -1, Body: snapshot(t, []string{"a", "b"}, "a")})
	if err != nil || len(first.Changes) != 3 {
		t.Fatalf("%+v, %v", first, err)
	}
	res, err := pushSnapshot(t, s, sources.SnapshotRequest{Body: snapshot(t, []string{"b", "c"})})
	if err != nil || fmt.Sprint(res.Changes) != "[{ClusterLoadAssignment/c added added with 1 usable endpoint}]" {
		t.Errorf("adding: %+v, %v", res, err)
	}
	if got := clusterNames(t, s); got != "a b c" {
		t.Errorf("clusters %q", got)
	}
	_, err = pushSnapshot(t, s, sources.SnapshotRequest{Replace: true, MaxRemoved: 2, Body: snapshot(t, []string{"a"})})
	if code(err) != fault.Blocked || !strings.Contains(err.Error(), "would remove 3 resources") {
		t.Errorf("more than max_removed: %v", err)
	}
	back, err := pushSnapshot(t, s, sources.SnapshotRequest{Replace: true, MaxRemoved: 1, Body: snapshot(t, []string{"a", "b"}, "a")})
	if err != nil || back.Hash != first.Hash {
		t.Errorf("equal content has an equal tag: %+v, %v; first %s", back, err, first.Hash)
	}
	kept, err := s.Snapshot(sources.JSON)
	if err != nil || kept.Hash != first.Hash {
		t.Fatalf("%+v, %v", kept, err)
	}
	stop()

	// What one daemon gives out, another takes.
	other, _ := start(t, "", nil)
	again, err := pushSnapshot(t, other, sources.SnapshotRequest{Replace: true, MaxRemoved: 0, Body: kept.Body})
	if err != nil || again.Hash != first.Hash {
		t.Errorf("%+v, %v; first %s", again, err, first.Hash)
	}
	s, _ = start(t, dir, nil)
	if got := clusterNames(t, s); got != "a b" {
		t.Errorf("after a restart: clusters %q", got)
	}
}

func TestSnapshotIsRefusedWhole(t *testing.T) {
	good := snapshot(t, []string{"a", "b"}, "a")
	with := func(extra object) []byte {
		var v struct {
			Resources []object `json:"resources"`
		}
		if err := json.Unmarshal(good, &v); err != nil {
			t.Fatal(err)
		}
		v.Resources = append(v.Resources, extra)
		return encode(t, v)
	}
	for name, c := range map[string]struct {
		request sources.SnapshotRequest
		want    fault.Code
		says    string
	}{
		"a broken resource":  {sources.SnapshotRequest{Body: with(object{"@type": sources.Config.URL(), "name": "z", "type": "STATIC"})}, fault.InvalidResource, "resources[3].type"},
		"another type":       {sources.SnapshotRequest{Body: with(object{"@type": "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration", "name": "l"})}, fault.InvalidResource, "ScopedRouteConfiguration"},
		"no endpoint":        {sources.SnapshotRequest{Body: with(object{"@type": sources.Endpoints.URL(), "cluster_name": "z"})}, fault.Blocked, `"z"`},
		"endpoints are lost": {sources.SnapshotRequest{Body: snapshot(t, nil, "a"), Replace: true, MaxRemoved: -1}, fault.Blocked, `"a"`},
		"nothing at all":     {sources.SnapshotRequest{Body: []byte(`{"resources":[]}`), Replace: true, MaxRemoved: -1}, fault.Blocked, "all 3 resources"},
		"another content":    {sources.SnapshotRequest{Body: good, ChangeOptions: sources.ChangeOptions{Precondition: sources.Precondition{IfMatch: []string{"x"}}}}, fault.PreconditionFailed, "the snapshot has changed"},
		"no snapshot":        {sources.SnapshotRequest{Body: []byte(`[]`)}, fault.InvalidArgument, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := start(t, "", nil)
			if _, err := pushSnapshot(t, s, sources.SnapshotRequest{Body: good}); err != nil {
				t.Fatal(err)
			}
			before, err := s.Snapshot(sources.Protobuf)
			if err != nil {
				t.Fatal(err)
			}
			_, err = pushSnapshot(t, s, c.request)
			if code(err) != c.want || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v: %v; want %v saying %q", code(err), err, c.want, c.says)
			}
			if after, err := s.Snapshot(sources.Protobuf); err != nil || after.Hash != before.Hash {
				t.Errorf("half applied: %+v, %v", after, err)
			}
		})
	}
}
