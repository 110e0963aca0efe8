package sources_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store/file"
)

// secured is a Cluster whose connections are secured by TLS, with these fields.
func secured(validation servicetest.Object) servicetest.Object {
	return servicetest.Object{"type": "EDS", "transport_socket": servicetest.Object{
		"name": "envoy.transport_sockets.tls", "typed_config": servicetest.Object{
			"@type":              "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
			"common_tls_context": servicetest.Object{"validation_context": validation},
		},
	}}
}

var (
	systemRoots  = servicetest.Object{"system_root_certs": servicetest.Object{}}
	plainCluster = servicetest.Object{"type": "EDS", "metadata": servicetest.Object{"filter_metadata": servicetest.Object{"lbd": servicetest.Object{"connect": "tcp"}}}}
)

// TestPushesTakeNoTLSAway: a push, a snapshot or a deletion takes no TLS away, unless the
// author requests plain connections.
func TestPushesTakeNoTLSAway(t *testing.T) {
	s, _ := servicetest.Start(t, "", nil)
	servicetest.Push(t, s, sources.Endpoints, "a", servicetest.Usable("a", 2))
	servicetest.Push(t, s, sources.Config, "a", servicetest.Encode(secured(systemRoots)))
	refused := func(what string, err error) {
		t.Helper()
		if servicetest.Code(err) != fault.Blocked || !strings.Contains(err.Error(), "cluster a: the change disables TLS") || strings.Contains(err.Error(), "allow_empty") {
			t.Errorf("%s: %v", what, err)
		}
	}
	plain := sources.PushRequest{Kind: sources.Config, Cluster: "a", Body: servicetest.Config(7)}
	_, err := s.Sources.Push(t.Context(), &plain)
	refused("a Cluster without transport_socket", err)
	plain.Options.AllowEmpty = true
	_, err = s.Sources.Push(t.Context(), &plain)
	refused("with allow_empty", err)
	_, err = s.Sources.Delete(t.Context(), sources.Config, "a", sources.ChangeOptions{})
	refused("a deletion", err)
	_, err = s.Sources.Delete(t.Context(), sources.Config, "a", sources.ChangeOptions{DryRun: true})
	refused("a dry run of a deletion", err)
	_, err = pushSnapshot(t, s, sources.SnapshotRequest{Replace: true, MaxRemoved: -1, Body: snapshot([]string{"a"})})
	refused("a snapshot without the Cluster", err)
	_, err = pushSnapshot(t, s, sources.SnapshotRequest{Replace: true, MaxRemoved: -1, Options: sources.ChangeOptions{AllowEmpty: true}, Body: snapshot([]string{"a"})})
	refused("a snapshot with allow_empty", err)
	if state, err := s.State.Cluster(t.Context(), "a", "", false); err != nil || state.Security == nil {
		t.Errorf("the state is %+v, %v", state, err)
	}

	if _, err := pushSnapshot(t, s, sources.SnapshotRequest{Replace: true, MaxRemoved: -1, Body: snapshot([]string{"b"})}); err != nil {
		t.Errorf("a snapshot without the cluster: %v", err)
	}
	servicetest.Push(t, s, sources.Endpoints, "a", servicetest.Usable("a", 2))
	servicetest.Push(t, s, sources.Config, "a", servicetest.Encode(secured(systemRoots)))
	servicetest.Push(t, s, sources.Config, "a", servicetest.Encode(plainCluster))
	if _, err := s.Sources.Delete(t.Context(), sources.Config, "a", sources.ChangeOptions{}); err != nil {
		t.Errorf("a deletion of a Cluster that asks for plain connections: %v", err)
	}
	servicetest.Push(t, s, sources.Config, "a", servicetest.Encode(secured(systemRoots)))
	if _, err := s.Sources.Delete(t.Context(), sources.Endpoints, "a", sources.ChangeOptions{}); err != nil {
		t.Errorf("a deletion of the endpoints: %v", err)
	}
	if _, err := s.Sources.Delete(t.Context(), sources.Config, "a", sources.ChangeOptions{}); err != nil {
		t.Errorf("a deletion after that of the endpoints: %v", err)
	}
}

// TestARejectedClusterOfAFileHasNoDefaults: picks of a cluster whose Cluster is rejected in
// a file fail with the reason. Its endpoints alone would get the defaults, without TLS.
func TestARejectedClusterOfAFileHasNoDefaults(t *testing.T) {
	d := startFiled(t, &archive{})
	scan := func(contents map[string]string) {
		s := &files.Scan{Identity: files.Identity{Inode: 1}, Files: map[string]*files.File{}}
		for name, body := range contents {
			o := decode.Options{Bare: true, Name: "a"}
			f := &files.File{Sum: body, Modified: time.Unix(1000, 0)}
			if f.Bundle, f.Err = decode.All([]byte(body), o); f.Err != nil {
				f.Valid, f.Since = decode.Valid([]byte(body), o), time.Unix(1000, 0)
			}
			s.Files[name] = f
		}
		d.archive.scanned(s)
		servicetest.Must(t, d.Sources.Settle(t.Context()))
	}
	eds := string(servicetest.Usable("a", 2))
	rejected := string(servicetest.Encode(secured(servicetest.Object{"trusted_ca": servicetest.Object{"filename": "f"}})))
	scan(map[string]string{"c.json": rejected, "f.json": eds})
	const why = "Cluster/a of the file c.json is rejected: transport_socket.typed_config.common_tls_context.validation_context.ca_certificate_provider_instance: required"
	_, err := servicetest.Pick(d.Service, picks.Request{Cluster: "a"})
	if servicetest.Code(err) != fault.NoReadyEndpoint || !strings.Contains(err.Error(), why) {
		t.Errorf("a pick: %v", err)
	}
	if state, err := d.State.Cluster(t.Context(), "a", "", false); err != nil || !strings.Contains(state.Error, why) || state.ConfigSource != "file" {
		t.Errorf("the state is %+v, %v", state, err)
	}

	servicetest.Push(t, d.Service, sources.Config, "a", servicetest.Encode(secured(systemRoots)))
	if _, err := servicetest.Pick(d.Service, picks.Request{Cluster: "a"}); err != nil {
		t.Errorf("a pick with a pushed Cluster: %v", err)
	}
	if _, err := d.Sources.Delete(t.Context(), sources.Config, "a", sources.ChangeOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := servicetest.Pick(d.Service, picks.Request{Cluster: "a"}); servicetest.Code(err) != fault.NoReadyEndpoint {
		t.Errorf("a pick without it: %v", err)
	}
	scan(map[string]string{"c.json": string(servicetest.Encode(secured(systemRoots))), "f.json": eds})
	if _, err := servicetest.Pick(d.Service, picks.Request{Cluster: "a"}); err != nil {
		t.Errorf("a pick after it was corrected: %v", err)
	}
}

// TestStoredClustersKeepTLSWithoutABootstrap: a pushed Cluster keeps TLS when lbd starts
// without a bootstrap: its handshakes fail.
func TestStoredClustersKeepTLSWithoutABootstrap(t *testing.T) {
	b, err := bootstrap.Parse([]byte(`{"xds_servers": [{"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}]}],
		"certificate_providers": {"mesh": {"plugin_name": "file_watcher", "config": {"ca_certificate_file": "/gone"}}}}`), bootstrap.Options{})
	servicetest.Must(t, err)
	mesh := servicetest.Encode(secured(servicetest.Object{"ca_certificate_provider_instance": servicetest.Object{"instance_name": "mesh"}}))
	dir := t.TempDir()
	var log bytes.Buffer
	secures := func(b *bootstrap.Config, f func(*service.Service)) map[string]bool {
		t.Helper()
		log.Reset()
		s, stop := servicetest.Start(t, dir, func(o *service.Options) { o.Sources.Bootstrap, o.Logger = b, slog.New(slog.NewTextHandler(&log, nil)) })
		defer stop()
		f(s)
		out := map[string]bool{}
		if state, err := s.State.Cluster(t.Context(), "new", "", false); err == nil {
			out["new"] = state.Security != nil
		}
		return out
	}
	nothing := func(*service.Service) {}

	// Pushed with a bootstrap, and then there is none.
	push1 := func(s *service.Service) { servicetest.Push(t, s, sources.Config, "new", mesh) }
	if got := secures(b, push1); !got["new"] {
		t.Errorf("with a bootstrap: %v", got)
	}
	if got := secures(nil, nothing); !got["new"] || !strings.Contains(log.String(), "every TLS handshake fails") {
		t.Errorf("without a bootstrap: %v\n%s", got, &log)
	}
	got := secures(nil, func(s *service.Service) {
		res, err := s.Sources.Push(t.Context(), &sources.PushRequest{Kind: sources.Config, Cluster: "new", Body: servicetest.Encode(plainCluster), Options: sources.ChangeOptions{DryRun: true}})
		servicetest.Must(t, err)
		if words := fmt.Sprint(res.Changes); !strings.Contains(words, "transport_socket") {
			t.Errorf("a plain Cluster instead: %s", words)
		}
		_, err = s.Sources.Delete(t.Context(), sources.Config, "new", sources.ChangeOptions{})
		servicetest.Must(t, err)
	})
	if len(got) != 0 {
		t.Errorf("after a deletion: %v", got)
	}
	st, err := file.Open(dir, file.Options{})
	servicetest.Must(t, err)
	if n := st.Snapshot().Len(); n != 0 {
		t.Errorf("the store has %d entries still", n)
	}
	servicetest.Must(t, st.Close())
}

// TestChangesNameWhatTheirCallerMayUse: whatever stores a resource asks about all that the resource names, and stores
// nothing if one of these is refused.
func TestChangesNameWhatTheirCallerMayUse(t *testing.T) {
	s, _ := servicetest.Start(t, "", withHistory)
	of := func(t resource.Type, name string, more servicetest.Object) servicetest.Object {
		more["@type"], more["name"] = t.URL(), name
		return more
	}
	var agg servicetest.Object
	servicetest.Must(t, json.Unmarshal(aggregate("leaf"), &agg))
	all := []servicetest.Object{
		servicetest.Listener("t", servicetest.Route("/a", "a=1", "b=2"), servicetest.Route("/", "a")),
		of(resource.TypeListener, "u", servicetest.Object{"api_listener": servicetest.Object{"api_listener": servicetest.Object{
			"@type":        "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
			"rds":          servicetest.Object{"route_config_name": "r", "config_source": servicetest.Object{"ads": servicetest.Object{}}},
			"http_filters": []servicetest.Object{{"name": "router", "typed_config": servicetest.Object{"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}},
		}}}),
		of(resource.TypeRoutes, "r", servicetest.Object{"virtual_hosts": []servicetest.Object{{"name": "v", "domains": []string{"*"}, "routes": []servicetest.Object{servicetest.Route("/", "c")}}}}),
		of(resource.TypeCluster, "eds", servicetest.Object{"type": "EDS", "eds_cluster_config": servicetest.Object{"service_name": "s", "eds_config": servicetest.Object{"ads": servicetest.Object{}}}}),
		of(resource.TypeCluster, "agg", agg),
		servicetest.Assigned("e", "h1"),
	}
	const want = "[Cluster/a Cluster/b RouteConfiguration/r Cluster/c ClusterLoadAssignment/s ClusterLoadAssignment/agg Cluster/leaf]"
	var named []string
	refuse := ""
	options := func(dryRun bool) sources.ChangeOptions {
		return sources.ChangeOptions{DryRun: dryRun, AllowEmpty: true, MayName: func(_, is resource.Key) error {
			if named = append(named, is.String()); refuse == is.String() {
				return fault.Errorf(fault.Blocked, "%s", is)
			}
			return nil
		}}
	}
	body := servicetest.Encode(servicetest.Object{"resources": all})
	restored := servicetest.PushAll(t, s, all...).Index
	must := func(err error) { t.Helper(); servicetest.Must(t, err) }
	empty := func() {
		_, err := pushSnapshot(t, s, sources.SnapshotRequest{Options: sources.ChangeOptions{AllowEmpty: true}, Replace: true, MaxRemoved: -1, Body: []byte(`{"resources":[]}`)})
		must(err)
	}
	for name, change := range map[string]func(dryRun bool) error{
		"a snapshot": func(dryRun bool) error {
			_, err := pushSnapshot(t, s, sources.SnapshotRequest{Options: options(dryRun), Replace: true, MaxRemoved: -1, Body: body})
			return err
		},
		"more resources": func(dryRun bool) error {
			_, err := pushSnapshot(t, s, sources.SnapshotRequest{Options: options(dryRun), Body: body})
			return err
		},
		"a restore": func(dryRun bool) error {
			_, err := s.Sources.Restore(t.Context(), &sources.RestoreRequest{Options: options(dryRun), Index: restored, MaxRemoved: -1})
			return err
		},
		"a push": func(dryRun bool) error {
			named = append(named, "Cluster/a", "Cluster/b", "RouteConfiguration/r", "Cluster/c") // Listeners and routes are pushed with others only
			for _, i := range []int{3, 4} {
				if _, err := s.Sources.Push(t.Context(), &sources.PushRequest{
					Options: options(dryRun), Kind: sources.Config, Cluster: fmt.Sprint(all[i]["name"]), Body: servicetest.Encode(all[i]),
				}); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		for _, dryRun := range []bool{true, false} {
			empty()
			named, refuse = nil, "Cluster/leaf"
			if err := change(dryRun); err == nil || err.Error() != refuse {
				t.Errorf("%s that is refused: %v", name, err)
			}
			if _, err := s.Sources.Pushed(t.Context(), "", sources.Config, "agg", sources.JSON); servicetest.Code(err) != fault.UnknownCluster {
				t.Errorf("%s that is refused is stored: %v", name, err)
			}
			empty()
			named, refuse = nil, ""
			must(change(dryRun))
			slices.Sort(named)
			if got, want := fmt.Sprint(slices.Compact(named)), strings.Split(strings.Trim(want, "[]"), " "); got != fmt.Sprint(slices.Sorted(slices.Values(want))) {
				t.Errorf("%s, dry run %v: asks about %s", name, dryRun, got)
			}
		}
	}
}
