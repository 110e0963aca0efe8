package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rsrc "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestInvalidBootstraps(t *testing.T) {
	t.Parallel()
	const node = `"node":{"id":"test"}`
	for name, c := range map[string]struct {
		body string
		says string
	}{
		"not JSON":       {`{"xds_servers":`, "line 1, column 16"},
		"no servers":     {`{` + node + `}`, "xds_servers"},
		"no URI":         {`{"xds_servers":[{"channel_creds":[{"type":"insecure"}]}],` + node + `}`, "xds_servers[0].server_uri"},
		"no credentials": {`{"xds_servers":[{"server_uri":"127.0.0.1:1","channel_creds":[{"type":"magic"}]}],` + node + `}`, "xds_servers[0].channel_creds"},
		"a wrong type":   {`{"xds_servers":[{"server_uri":7,"channel_creds":[{"type":"insecure"}]}],` + node + `}`, "server_uri"},
		"a wrong authority": {`{"xds_servers":[{"server_uri":"127.0.0.1:1","channel_creds":[{"type":"insecure"}]}],` + node +
			`,"authorities":{"far":{"client_listener_resource_name_template":"xdstp://near/%s"}}}`, "authorities"},
	} {
		t.Run(name, func(t *testing.T) {
			file := writeBootstrap(t, c.body)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			err := serve(ctx, Config{Listen: []string{"127.0.0.1:0"}, Connect: "none", LogLevel: "error", Bootstrap: file}, func([]string) { stop() })
			if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, and the file is %s", err, file)
			}
		})
	}
	missing := filepath.Join(t.TempDir(), "bootstrap.json")
	cmd := command("serve", "--listen=127.0.0.1:0", "--data=", "--bootstrap="+missing)
	if expectFailure(t, cmd, missing); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("exit code %d", cmd.ProcessState.ExitCode())
	}
}

// scripted is a server that runs a function of the test for each stream.
type scripted struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	plane *controlPlane
	play  func(s *script) error
}

// script is one stream.
type script struct {
	discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer

	plane *controlPlane
	sent  int
}

func newScripted(t *testing.T, play func(*script) error) *controlPlane {
	t.Helper()
	return newServerOf(t, func(_ context.Context, p *controlPlane) discoveryv3.AggregatedDiscoveryServiceServer {
		return &scripted{plane: p, play: play}
	})
}

// StreamAggregatedResources plays the script.
func (s *scripted) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	return s.play(&script{AggregatedDiscoveryService_StreamAggregatedResourcesServer: stream, plane: s.plane})
}

// receive returns the next request of a type.
func (s *script) receive(of rsrc.Type) (*discoveryv3.DiscoveryRequest, error) {
	for {
		r, err := s.Recv()
		if err != nil {
			return nil, err
		}
		_ = s.plane.requested(0, r)
		if r.GetTypeUrl() == of {
			return r, nil
		}
	}
}

// exchange sends resources of a type, and returns the ACK or NACK.
func (s *script) exchange(of rsrc.Type, version string, resources ...*anypb.Any) (*discoveryv3.DiscoveryRequest, error) {
	if err := s.send(of, version, resources...); err != nil {
		return nil, err
	}
	nonce := fmt.Sprint(s.sent)
	for {
		r, err := s.receive(of)
		if err != nil || r.GetResponseNonce() == nonce {
			return r, err
		}
	}
}

// send sends resources of a type.
func (s *script) send(of rsrc.Type, version string, resources ...*anypb.Any) error {
	s.sent++
	return s.Send(&discoveryv3.DiscoveryResponse{TypeUrl: of, VersionInfo: version, Nonce: fmt.Sprint(s.sent), Resources: resources})
}

// TestInvalidResponses: each invalid response is rejected with its reason, and the last good
// version stays in use.
func TestInvalidResponses(t *testing.T) {
	t.Parallel()
	cluster, good, next := packed(t, edsCluster("orders")), packed(t, assignmentOf("orders", "10.0.0.1:80")), packed(t, assignmentOf("orders", "10.0.0.2:80"))
	begin, done := make(chan struct{}), make(chan error, 1)
	p := newScripted(t, func(s *script) error {
		for _, r := range []*anypb.Any{cluster, good} {
			if _, err := s.receive(r.GetTypeUrl()); err != nil {
				return err
			}
			if err := s.send(r.GetTypeUrl(), "1", r); err != nil {
				return err
			}
		}
		<-begin
		nonsense := []struct {
			says      string
			resources []*anypb.Any
		}{
			{"resources[0]: read protobuf", []*anypb.Any{{TypeUrl: rsrc.EndpointType, Value: []byte("\xff\xfe\x00nonsense")}}},
			{"ClusterLoadAssignment/orders: read protobuf", []*anypb.Any{{TypeUrl: rsrc.EndpointType, Value: good.GetValue()[:len(good.GetValue())-3]}}},
			{"resources[0]", []*anypb.Any{{TypeUrl: "type.googleapis.com/google.protobuf.Nothing", Value: good.GetValue()}}},
			{"resources[0]", []*anypb.Any{cluster}},
			{"resources[0]", []*anypb.Any{{TypeUrl: rsrc.EndpointType}}},
			{"resources[0]", []*anypb.Any{nil}},
			{"", nil},
			{"resources[1]", []*anypb.Any{good, {TypeUrl: rsrc.EndpointType, Value: []byte{0x0a}}}},
		}
		for i, n := range nonsense {
			r, err := s.exchange(rsrc.EndpointType, fmt.Sprint("nonsense", i), n.resources...)
			if err == nil && (r.GetErrorDetail() == nil) != (n.says == "") {
				err = fmt.Errorf("nonsense %d: answered with %v", i, r.GetErrorDetail())
			}
			if err == nil && n.says != "" && !strings.Contains(r.GetErrorDetail().GetMessage(), n.says) {
				err = fmt.Errorf("nonsense %d: refused with %s", i, r.GetErrorDetail().GetMessage())
			}
			if err == nil {
				err = s.send("type.googleapis.com/unknown.Type", "1", good)
			}
			if err != nil {
				done <- err
				return err
			}
		}
		_, err := s.exchange(rsrc.EndpointType, "3", next)
		done <- err
		<-s.Context().Done()
		return nil
	})
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p)})
	caller := call(t, url, "cluster=orders")
	caller.more()
	close(begin)
	noError(t, <-done)
	eventually(t, "what is good again", func() bool { return picked(t, url, "cluster=orders") == "10.0.0.2:80" })
	caller.more()
}

// TestServerWithoutGRPC: another server listens on the address.
func TestServerWithoutGRPC(t *testing.T) {
	t.Parallel()
	_, p := serveSnapshot(t, edsCluster("orders"), assignmentOf("orders", "10.0.0.1:80"))
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p)})
	caller := call(t, url, "cluster=orders")
	caller.more()
	p.kill()
	l := p.listen()
	var met atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(strings.Repeat("\x00\xff nonsense \r\n", 1000)))
			_ = c.Close()
			met.Add(1)
		}
	}()
	eventually(t, "the nonsense", func() bool { return met.Load() > 0 })
	untilMetric(t, url, `lbd_cluster_stale{cluster="orders"}`, "1")
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	<-ended
	p.start()
	untilMetric(t, url, `lbd_cluster_stale{cluster="orders"}`, "0")
	caller.more()
}

// TestManyUpdates sends 10,000 versions without waiting for ACKs.
func TestManyUpdates(t *testing.T) {
	if testing.Short() {
		t.Skip("long: sends 10,000 versions of a resource")
	}
	const versions = 10_000
	begin := make(chan struct{})
	var sent atomic.Int64
	p := newScripted(t, func(s *script) error {
		for _, r := range []*anypb.Any{packed(t, edsCluster("orders")), packed(t, assignmentOf("orders", "10.0.0.1:80"))} {
			if _, err := s.receive(r.GetTypeUrl()); err != nil {
				return err
			}
			if err := s.send(r.GetTypeUrl(), "0", r); err != nil {
				return err
			}
		}
		<-begin
		for i := range versions {
			address := fmt.Sprintf("10.%d.%d.1:80", (i+1)/256, (i+1)%256)
			if err := s.send(rsrc.EndpointType, fmt.Sprint(i+1), packed(t, assignmentOf("orders", address))); err != nil {
				return err
			}
			sent.Add(1)
		}
		<-s.Context().Done()
		return nil
	})
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), Data: t.TempDir()})
	caller := call(t, url, "cluster=orders")
	caller.more()
	before := heap()
	close(begin)
	last := fmt.Sprintf("10.%d.%d.1:80", versions/256, versions%256)
	most, measured := before, int64(0)
	// How long all of them take depends on the machine: patience is for each one.
	for now := ""; now != last; {
		eventually(t, "another version than "+now, func() bool {
			if n := sent.Load(); n >= measured+versions/100 {
				most, measured = max(most, heap()), n
			}
			seen := now
			now = picked(t, url, "cluster=orders")
			return now != seen
		})
	}
	t.Logf("%d versions: the heap grew by %d KiB at most", sent.Load(), int64(most-before)>>10)
	if grown := int64(most - before); grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	if state := xdsState(t, url, "type=ClusterLoadAssignment"); state.Resources[0].Version != fmt.Sprint(versions) {
		t.Errorf("%+v", state.Resources[0])
	}
	expect(t, http.StatusOK, "GET", url+"/pick?cluster=orders", "")
	caller.more()
}

// TestLoadReportsAddUp: each pick is reported once, also if the server is unreachable in the
// meantime.
func TestLoadReportsAddUp(t *testing.T) {
	t.Parallel()
	shedding := assignmentOf("orders", "10.0.0.1:80")
	shedding.Policy = &endpointv3.ClusterLoadAssignment_Policy{DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{
		Category: "throttle", DropPercentage: &typev3.FractionalPercent{Numerator: 30},
	}}}
	_, p := serveSnapshot(t,
		reporting(edsCluster("orders")), shedding, reporting(edsCluster("cart")), assignmentOf("cart", "10.0.0.2:80"),
		edsCluster("quiet"), assignmentOf("quiet", "10.0.0.3:80"),
		listenerTo(t, "shop", "routes"), routesOf("routes", route("/cart/", "cart"), route("/", "orders")),
	)
	made := make(map[string]loadSum)
	t.Cleanup(func() { // after the daemon has ended
		for _, cluster := range []string{"orders", "cart"} {
			if got := p.loads.read(cluster); got != made[cluster] {
				t.Errorf("%s: %+v was reported at the end, and %+v made", cluster, got, made[cluster])
			}
		}
	})
	url := startFollowing(t, Config{Bootstrap: bootstrapOf(t, p), Target: []string{"xds:///shop"}})

	picks := func(query, cluster string, n int) {
		t.Helper()
		for range n {
			sum := made[cluster]
			switch got := picked(t, url, query); got {
			case "dropped":
				sum.dropped++
			case "10.0.0.1:80", "10.0.0.2:80":
				sum.issued++
				sum.succeeded++
			default:
				t.Fatalf("%s: %s", query, got)
			}
			made[cluster] = sum
		}
	}
	leases := func(query, cluster, outcome string, n int) {
		t.Helper()
		for range n {
			sum := made[cluster]
			a := do(t, "POST", url+"/pick?"+query, "")
			if a.address() == "dropped" {
				sum.dropped++
				made[cluster] = sum
				continue
			}
			var v struct {
				Lease struct{ ID string }
			}
			if err := json.Unmarshal([]byte(a.body), &v); err != nil || v.Lease.ID == "" {
				t.Fatalf("%+v, %v", a, err)
			}
			expect(t, http.StatusOK, "POST", url+"/v1/leases/"+v.Lease.ID+"/done", fmt.Sprintf(`{"outcome":%q}`, outcome))
			sum.issued++
			if outcome == "success" {
				sum.succeeded++
			} else {
				sum.failed++
			}
			made[cluster] = sum
		}
	}
	all := func() {
		t.Helper()
		picks("cluster=orders", "orders", 40)
		picks("target=shop", "orders", 10)
		picks("target=shop&path=/cart/", "cart", 10)
		leases("cluster=orders", "orders", "success", 20)
		leases("cluster=orders", "orders", "error", 10)
		leases("target=shop&path=/cart/", "cart", "cancelled", 5)
		expectPick(t, url, "cluster=quiet", "10.0.0.3:80")
	}
	reported := func() {
		t.Helper()
		for _, cluster := range []string{"orders", "cart"} {
			eventually(t, "the report of "+cluster, func() bool { return p.loads.read(cluster) == made[cluster] })
		}
	}
	all()
	reported()
	if made["orders"].dropped == 0 || made["orders"].failed == 0 || made["cart"].failed == 0 {
		t.Fatalf("nothing of some kind was made: %+v", made)
	}
	p.kill()
	untilMetric(t, url, `lbd_cluster_stale{cluster="orders"}`, "1")
	all()
	p.start()
	reported()
	all()
	reported()
	if got := p.loads.read("quiet"); got != (loadSum{}) {
		t.Errorf("a cluster that wants no reports is reported: %+v", got)
	}
	state := xdsState(t, url, "").LoadReports
	if len(state) != 1 || state[0].Server != p.address || !state[0].Connected || state[0].Clusters != 2 || state[0].Interval != "50ms" || state[0].LastReport == nil {
		t.Errorf("%+v", state)
	}
	all() // sent when the daemon ends
}
