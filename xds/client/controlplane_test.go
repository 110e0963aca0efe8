package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

// deadline is how long a test waits for real servers and connections.
const deadline = 2 * time.Minute

// controlPlane is go-control-plane's server on a loopback address that it keeps.
type controlPlane struct {
	t       testing.TB
	address string
	cache   cache.Cache
	nacks   chan string

	server *grpc.Server
	cancel context.CancelFunc
	served sync.WaitGroup
}

func newControlPlane(t testing.TB, c cache.Cache) *controlPlane {
	p := &controlPlane{t: t, address: "127.0.0.1:0", cache: c, nacks: make(chan string, 10000)}
	p.start()
	t.Cleanup(p.kill)
	return p
}

func (p *controlPlane) start() {
	l, err := new(net.ListenConfig).Listen(p.t.Context(), "tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	server := grpc.NewServer()
	p.server = server
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, serverv3.NewServer(ctx, p.cache, serverv3.CallbackFuncs{
		StreamRequestFunc: func(_ int64, r *discoveryv3.DiscoveryRequest) error {
			if d := r.GetErrorDetail(); d != nil {
				p.nacks <- d.GetMessage()
			}
			return nil
		},
	}))
	p.served.Go(func() {
		if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			p.t.Error(err)
		}
	})
}

func (p *controlPlane) kill() {
	p.cancel()
	p.server.Stop()
	p.served.Wait()
}

// follower stores the updates.
type follower struct {
	t       testing.TB
	client  *Client
	mu      sync.Mutex
	changed chan struct{} // closed and replaced with each update
	known   map[resource.Key]Update
	updates int // with a value
}

func follow(t testing.TB, planes ...*controlPlane) *follower {
	var list []string
	for _, p := range planes {
		list = append(list, fmt.Sprintf(`{"server_uri":%q,"channel_creds":[{"type":"insecure"}]}`, p.address))
	}
	b, err := bootstrap.Parse([]byte(`{"node":{"id":"test"},"xds_servers":[`+strings.Join(list, ",")+`]}`), bootstrap.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t, changed: make(chan struct{}), known: map[resource.Key]Update{}}
	if f.client, err = New(Options{Bootstrap: b, OnUpdate: f.update}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.client.Close)
	return f
}

func (f *follower) update(updates []Update) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range updates {
		f.known[u.Key] = u
		if u.Err == nil { // a server under load may be late
			f.updates++
		}
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *follower) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.updates
}

func (f *follower) want(t resource.Type, names ...string) {
	var add []resource.Key
	for _, n := range names {
		add = append(add, resource.Key{Type: t, Name: n})
	}
	f.client.Want("t", add, nil)
}

// until waits for a condition.
func (f *follower) until(what string, is func(known map[resource.Key]Update) bool) {
	f.t.Helper()
	late := time.After(deadline)
	for {
		f.mu.Lock()
		done, changed := is(f.known), f.changed
		f.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-late:
			f.mu.Lock()
			defer f.mu.Unlock()
			f.t.Fatalf("%s did not happen; %d resources are known", what, len(f.known))
		}
	}
}

func (f *follower) untilVersion(t resource.Type, name, version string) {
	f.t.Helper()
	f.until(fmt.Sprintf("%s %s at %s", t, name, version), func(known map[resource.Key]Update) bool {
		u := known[resource.Key{Type: t, Name: name}]
		return u.Err == nil && u.Version == version
	})
}

// untilError waits for an error of a cluster.
func (f *follower) untilError(name string, kind ErrorKind) {
	f.t.Helper()
	f.until("an error of "+name, func(known map[resource.Key]Update) bool {
		return isKind(known[resource.Key{Type: cds, Name: name}].Err, kind)
	})
}

// snapshot sets a version of all resources.
func snapshot(t testing.TB, c cache.SnapshotCache, version string, resources map[string][]types.Resource) {
	t.Helper()
	s, err := cache.NewSnapshot(version, resources)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetSnapshot(t.Context(), "test", s); err != nil {
		t.Fatal(err)
	}
}

func TestFollowSnapshotCache(t *testing.T) {
	c := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	p := newControlPlane(t, c)
	good, bad := clusterProto("b"), clusterProto("b")
	bad.LbPolicy = 5 // MAGLEV
	snapshot(t, c, "1", map[string][]types.Resource{
		cds.URL(): {clusterProto("a"), good},
		eds.URL(): {assignmentProto("a", 3, 80), assignmentProto("b", 3, 80)},
	})
	f := follow(t, p)
	f.want(cds, "a", "b")
	f.want(eds, "a", "b")
	f.untilVersion(cds, "a", "1")
	f.untilVersion(cds, "b", "1")
	f.untilVersion(eds, "a", "1")
	f.untilVersion(eds, "b", "1")

	// One change is one update, although all is sent.
	before := f.count()
	snapshot(t, c, "2", map[string][]types.Resource{
		cds.URL(): {clusterProto("a"), good},
		eds.URL(): {assignmentProto("a", 4, 80), assignmentProto("b", 3, 80)},
	})
	f.untilVersion(eds, "a", "2")
	if n := f.count() - before; n != 1 {
		t.Errorf("%d updates of one change", n)
	}

	// The server gets the NACK, and the last good version stays.
	snapshot(t, c, "3", map[string][]types.Resource{
		cds.URL(): {clusterProto("a"), bad},
		eds.URL(): {assignmentProto("a", 4, 80), assignmentProto("b", 3, 80)},
	})
	select {
	case text := <-p.nacks:
		if !strings.Contains(text, "Cluster/b: lb_policy") {
			t.Errorf("the NACK is %q", text)
		}
	case <-time.After(deadline):
		t.Fatal("no NACK came")
	}
	f.untilError("b", ErrorRejected)

	// A restarted server has changes.
	p.kill()
	f.untilError("a", ErrorUnreachable)
	snapshot(t, c, "4", map[string][]types.Resource{
		cds.URL(): {clusterProto("a"), good},
		eds.URL(): {assignmentProto("a", 5, 80), assignmentProto("b", 3, 80)},
	})
	p.start()
	f.untilVersion(eds, "a", "4")
	f.until("no error of a cluster", func(known map[resource.Key]Update) bool {
		return known[resource.Key{Type: cds, Name: "a"}].Err == nil && known[resource.Key{Type: cds, Name: "b"}].Err == nil
	})

	// A deleted cluster is reported; assignments stay.
	snapshot(t, c, "5", map[string][]types.Resource{cds.URL(): {clusterProto("a")}, eds.URL(): {assignmentProto("a", 6, 80)}})
	f.untilError("b", ErrorDeleted)
	f.untilVersion(eds, "a", "5")
	f.mu.Lock()
	if u := f.known[resource.Key{Type: eds, Name: "b"}]; u.Err != nil || u.Assignment == nil {
		t.Errorf("the assignment is %+v", u)
	}
	f.mu.Unlock()

	// A resource that is dropped and wanted again is sent again.
	f.mu.Lock()
	delete(f.known, resource.Key{Type: cds, Name: "a"})
	f.mu.Unlock()
	f.client.Want("t", []resource.Key{{Type: cds, Name: "a"}}, []resource.Key{{Type: cds, Name: "a"}})
	f.untilVersion(cds, "a", "5")
}

func TestFallBackToControlPlane(t *testing.T) {
	first, second := cache.NewSnapshotCache(false, cache.IDHash{}, nil), cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	one, two := newControlPlane(t, first), newControlPlane(t, second)
	snapshot(t, first, "1", map[string][]types.Resource{cds.URL(): {clusterProto("a"), clusterProto("b")}})
	snapshot(t, second, "2", map[string][]types.Resource{cds.URL(): {clusterProto("a"), clusterProto("b")}})
	one.kill()
	f := follow(t, one, two)
	f.want(cds, "a")
	f.untilVersion(cds, "a", "2")
	f.want(cds, "b")
	f.untilVersion(cds, "b", "2")
	snapshot(t, first, "3", map[string][]types.Resource{cds.URL(): {clusterProto("a")}})
	one.start()
	// The first server responds without b.
	f.untilError("b", ErrorDeleted)
	for _, s := range f.client.Status().Servers {
		if wanted := s.URI == one.address; s.Targets > 0 != wanted || s.Connected != wanted {
			t.Errorf("%+v", s)
		}
	}
}

// many is clusters with their assignments.
func many(clusters, endpoints int) (resources map[string][]types.Resource, names []string) {
	resources = map[string][]types.Resource{}
	for i := range clusters {
		name := fmt.Sprintf("cluster-%04d", i)
		names = append(names, name)
		resources[cds.URL()] = append(resources[cds.URL()], clusterProto(name))
		resources[eds.URL()] = append(resources[eds.URL()], assignmentProto(name, endpoints, 80))
	}
	return resources, names
}

func (f *follower) wantAll(names []string) {
	f.want(cds, names...)
	f.want(eds, names...)
}

func (f *follower) untilAll(names []string, version string) {
	f.t.Helper()
	f.until("all at "+version, func(known map[resource.Key]Update) bool {
		for _, n := range names {
			if known[resource.Key{Type: cds, Name: n}].Cluster == nil || known[resource.Key{Type: eds, Name: n}].Assignment == nil {
				return false
			}
		}
		return true
	})
}

func TestThousandClusters(t *testing.T) {
	c := cache.NewSnapshotCache(false, cache.IDHash{}, nil)
	resources, names := many(1000, 100)
	snapshot(t, c, "1", resources)
	p := newControlPlane(t, c)
	f := follow(t, p)
	f.wantAll(names)
	f.untilAll(names, "1")
	if n := f.count(); n != 2000 {
		t.Errorf("%d updates", n)
	}
	resources[eds.URL()][500] = assignmentProto(names[500], 99, 80)
	snapshot(t, c, "2", resources)
	f.untilVersion(eds, names[500], "2")
	if n := f.count(); n != 2001 {
		t.Errorf("%d updates", n)
	}
	for _, r := range f.client.Status().Resources {
		if r.State != Acked {
			t.Errorf("%+v", r)
		}
	}
}
