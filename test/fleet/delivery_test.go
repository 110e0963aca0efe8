package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/changelog"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/etcd"
)

// TestDelivery measures how long a push takes until all of 50 replicas have it, and how long a put
// takes until 50 bare watches have it, by turns.
func TestDelivery(t *testing.T) {
	const replicas, pushes = 50, 40
	m := startMember(t)
	var all []*etcd.Store
	arrived := make(chan time.Time, replicas)
	for range replicas {
		s := mustOpenAt(t, etcd.Config{Endpoints: []string{m.client}, Prefix: "lbd"}, "", etcd.Options{
			OnCommit: func(store.Commit) { arrived <- time.Now() },
		})
		all = append(all, s)
	}
	bare := m.bare(t)
	watched := make(chan time.Time, replicas)
	for range replicas {
		c := m.bare(t) // a connection for each, as the replicas have
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		w := c.Watch(ctx, "bare/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		<-w
		go func() {
			for res := range w {
				for range res.Events {
					watched <- time.Now()
				}
			}
		}()
	}
	last := func(from <-chan time.Time) (at time.Time) {
		for range replicas {
			select {
			case at = <-from:
			case <-time.After(30 * time.Second):
				t.Fatal("not all have it after 30 s")
			}
		}
		return at
	}
	value := make([]byte, 10_000)
	var ours, theirs []time.Duration
	for i := range pushes {
		value[0] = byte(i)
		began := time.Now()
		if _, err := bare.Put(t.Context(), "bare/x", string(value)); err != nil {
			t.Fatal(err)
		}
		theirs = append(theirs, last(watched).Sub(began))
		began = time.Now()
		put(t, all[i%replicas], "x", string(value))
		ours = append(ours, last(arrived).Sub(began))
	}
	a, b := median(ours), median(theirs)
	t.Logf("a push reaches %d replicas after %v, a put %d watches after %v (medians of %d): %.2f times", replicas, a, replicas, b, pushes, float64(a)/float64(b))
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// TestRate measures pushes of 10 KB by 32 clients of one replica, with their history, and bare
// transactions of the same bytes, by turns.
func TestRate(t *testing.T) {
	const clients, rounds = 32, 4
	length := 500 * time.Millisecond
	if long() {
		length = 3 * time.Second
	}
	m := &member{dir: t.TempDir(), client: freePort(t), peer: freePort(t), fsync: os.Getenv("LBD_FLEET_FSYNC") != ""}
	m.start(t)
	t.Cleanup(m.stop)
	m.create(t, "lbd")
	svc := startService(t, m)
	bare := m.bare(t)
	run := func(do func(client, n int) error) float64 {
		var group sync.WaitGroup
		counts := make([]int, clients)
		began := time.Now()
		for i := range clients {
			group.Go(func() {
				for ; time.Since(began) < length; counts[i]++ {
					if err := do(i, counts[i]); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
		sum := 0
		for _, n := range counts {
			sum += n
		}
		return float64(sum) / time.Since(began).Seconds()
	}
	versions := make([][2][]byte, clients)
	for i := range versions {
		versions[i] = pushVersions(t, i)
	}
	var ours, theirs float64
	for range rounds {
		theirs += run(func(client, n int) error {
			at := fmt.Sprint("bare/", client)
			_, err := bare.Txn(t.Context()).If(clientv3.Compare(clientv3.CreateRevision("bare/none"), "=", 0)).
				Then(clientv3.OpPut(at, string(versions[client][n%2]))).Commit()
			return err
		})
		ours += run(func(client, n int) error {
			_, err := svc.Sources.Push(t.Context(), &sources.PushRequest{
				Kind: sources.Endpoints, Cluster: fmt.Sprint("c", client), Body: versions[client][n%2], Format: sources.Protobuf,
			})
			return err
		})
	}
	t.Logf("%.0f pushes/s of %d bytes, %.0f bare transactions/s: %.2f times", ours/rounds, len(versions[0][0]), theirs/rounds, ours/theirs)
}

// startService starts lbd, without HTTP, with a store in etcd and the default history of changes.
func startService(t *testing.T, m *member) *service.Service {
	t.Helper()
	svc := service.New(service.Options{
		Logger:     slog.New(slog.DiscardHandler),
		Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil, resource.ConnectNone: nil},
		Sources:    sources.Settings{ConnectMode: resource.ConnectNone, Changelog: changelog.Limits{Changes: 1000, Bytes: 32 << 20}},
	})
	s := mustOpenAt(t, etcd.Config{Endpoints: []string{m.client}, Prefix: "lbd"}, "", etcd.Options{OnCommit: svc.Inbound.Commit, OnLost: svc.Inbound.StoreLost})
	t.Cleanup(svc.Close)
	noError(t, svc.Start(t.Context(), sources.Connections{Store: s}))
	return svc
}

// pushVersions are two assignments of about 10 KB to a cluster, of which one endpoint differs.
func pushVersions(t *testing.T, cluster int) (versions [2][]byte) {
	t.Helper()
	a := &endpointv3.ClusterLoadAssignment{ClusterName: fmt.Sprint("c", cluster), Endpoints: []*endpointv3.LocalityLbEndpoints{{
		Locality: &corev3.Locality{Zone: "a"}, LoadBalancingWeight: wrapperspb.UInt32(1),
	}}}
	endpoint := func(last int) *endpointv3.LbEndpoint {
		address := &corev3.SocketAddress{Address: fmt.Sprintf("10.0.%d.%d", last>>8, last&255), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8080}}
		return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: address}},
		}}}
	}
	for i := 0; proto.Size(a) < 10_000; i++ {
		a.Endpoints[0].LbEndpoints = append(a.Endpoints[0].LbEndpoints, endpoint(i))
	}
	for i := range versions {
		a.Endpoints[0].LbEndpoints[0] = endpoint(1<<12 + i)
		var err error
		if versions[i], err = proto.Marshal(a); err != nil {
			t.Fatal(err)
		}
	}
	return versions
}
