package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"

	"github.com/lbd-dev/lbd/xds/store/etcd"
)

// nextPort is what freePort tries next.
var nextPort atomic.Int32

// freePort returns an address of loopback that nothing listens on, for what stops and starts again.
// Its port is below those that systems give to connections, so that none of them takes it.
func freePort(t testing.TB) string {
	t.Helper()
	const lowest, count = 15_000, 17_000
	nextPort.CompareAndSwap(0, rand.Int32N(count)+1)
	for {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+nextPort.Add(1)%count)
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
}

// member is a member of etcd in this process.
type member struct {
	dir, client, peer string
	quota             int64
	tls               *transport.TLSInfo // of clients; nil: none
	fsync             bool
	version           string // that it says it has; "" is the true one
	running           *embed.Etcd
}

// startMember starts a cluster of one member, with a fleet at the prefix lbd.
func startMember(t testing.TB) *member {
	t.Helper()
	m := &member{dir: t.TempDir(), client: freePort(t), peer: freePort(t)}
	m.start(t)
	t.Cleanup(m.stop)
	m.create(t, "lbd")
	return m
}

// create creates a fleet at a prefix, and returns how to reach it.
func (m *member) create(t testing.TB, prefix string) etcd.Config {
	t.Helper()
	c := etcd.Config{Endpoints: []string{m.client}, Prefix: prefix}
	if _, created, err := etcd.Init(t.Context(), c); err != nil || !created {
		t.Fatalf("the prefix %s: created %v, %v", prefix, created, err)
	}
	return c
}

func (m *member) start(t testing.TB) {
	t.Helper()
	c := embed.NewConfig()
	c.Name, c.Dir, c.LogLevel, c.LogOutputs = "m0", m.dir, "panic", []string{"/dev/null"}
	c.UnsafeNoFsync = !m.fsync
	c.QuotaBackendBytes = m.quota
	client, peer := url.URL{Scheme: "http", Host: m.client}, url.URL{Scheme: "http", Host: m.peer}
	if m.tls != nil {
		client.Scheme, c.ClientTLSInfo = "https", *m.tls
	}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = fmt.Sprintf("m0=%s", peer.String())
	c.TickMs, c.ElectionMs = 20, 200
	if m.version != "" {
		c.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			res, err := next(ctx, req)
			if s, ok := res.(*etcdserverpb.StatusResponse); ok {
				s.Version = m.version
			}
			return res, err
		})}
	}
	e, err := embed.StartEtcd(c)
	// Another process may look for a moment whether the port is free.
	for end := time.Now().Add(20 * time.Second); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); e, err = embed.StartEtcd(c) {
		time.Sleep(10 * time.Millisecond)
	}
	noError(t, err)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		t.Fatal("the member does not start")
	}
	m.running = e
}

// runMember is the process of one member of a cluster: name, directory, addresses for clients
// and for members, and the members of the cluster.
func runMember(args []string) {
	c := embed.NewConfig()
	c.Name, c.Dir, c.LogLevel, c.LogOutputs = args[0], args[1], "panic", []string{"/dev/null"}
	client, peer := url.URL{Scheme: "http", Host: args[2]}, url.URL{Scheme: "http", Host: args[3]}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster, c.TickMs, c.ElectionMs = args[4], 50, 500
	e, err := embed.StartEtcd(c)
	if err == nil {
		err = <-e.Err()
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func (m *member) stop() {
	if m.running != nil {
		m.running.Close()
		m.running = nil
	}
}

// bare returns a client of the member.
func (m *member) bare(t testing.TB) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.client}})
	noError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// compact removes the history of what is stored.
func (m *member) compact(t testing.TB) {
	t.Helper()
	c := m.bare(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	res, err := c.Get(ctx, "any")
	if err == nil {
		_, err = c.Compact(ctx, res.Header.Revision, clientv3.WithCompactPhysical())
	}
	noError(t, err)
}

// long reports whether tests should take more time.
func long() bool { return os.Getenv("LBD_TEST_LONG") != "" }
