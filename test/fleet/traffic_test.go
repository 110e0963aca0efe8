package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/lbd-dev/lbd/lb/policy"
	limits "github.com/lbd-dev/lbd/service/fleet"
	"github.com/lbd-dev/lbd/service/fleet/share"
	"github.com/lbd-dev/lbd/xds/resource"
)

// watched counts the bytes that watches receive.
type watched struct{ bytes, requests atomic.Int64 }

type methodKey struct{}

func (*watched) TagRPC(ctx context.Context, i *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, methodKey{}, i.FullMethodName)
}

func (w *watched) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InPayload); ok {
		if method, _ := ctx.Value(methodKey{}).(string); strings.HasSuffix(method, "/Watch") {
			w.bytes.Add(int64(in.WireLength))
		} else {
			w.requests.Add(int64(in.WireLength))
		}
	}
}

func (*watched) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (*watched) HandleConn(context.Context, stats.ConnStats)                       {}

// TestTraffic: a change of a limit of the fleet sends a few bytes to each replica, however many there are, and nothing is
// sent while nothing changes. The shares in etcd are never above the limit, also while all replicas take theirs at once.
func TestTraffic(t *testing.T) {
	t.Parallel()
	sizes := []int{30}
	if long() {
		sizes = []int{10, 30, 60}
	}
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) { traffic(t, n) })
	}
}

func traffic(t *testing.T, n int) {
	address := startEmbedded(t)
	ctx, stop := context.WithCancel(t.Context())
	var w watched
	all, counters, ended := make([]*limits.Fleet, n), make([]*policy.ClusterCounters, n), make(chan struct{}, n)
	for i := range n {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{grpc.WithStatsHandler(&w)}})
		noError(t, err)
		if _, err := client.Put(t.Context(), "lbd/format", "{}"); err != nil {
			t.Fatal(err)
		}
		all[i] = limits.New(limits.Options{
			Connect: func(context.Context) (*clientv3.Client, error) { return client, nil }, Prefix: "lbd/", MaxTTL: 10 * time.Minute, Log: slog.New(slog.DiscardHandler),
		})
		c := policy.NewCounters()
		c.JoinFleet()
		counters[i] = c.Acquire(resource.ServiceKey{Cluster: "orders"})
		go func() { _ = all[i].Run(ctx); ended <- struct{}{} }()
	}
	t.Cleanup(func() {
		stop()
		for range n {
			<-ended
		}
	})
	bare, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()})
	noError(t, err)
	t.Cleanup(func() { _ = bare.Close() })
	versions := func() int64 {
		res, err := bare.Get(t.Context(), "lbd/limit/orders")
		noError(t, err)
		if len(res.Kvs) == 0 {
			return 0
		}
		return res.Kvs[0].Version
	}
	for _, f := range all {
		until(t, "all have joined", func() bool { return f.Joined() && len(f.Roster(t.Context()).Members) == n })
	}
	quiet := func() (changes, bytes, requests int64) {
		from, before, beforeRequests := versions(), w.bytes.Load(), w.requests.Load()
		time.Sleep(3 * time.Second)
		return versions() - from, w.bytes.Load() - before, w.requests.Load() - beforeRequests
	}
	// says logs what one kind of change costs, since the counters were as they were.
	says := func(what string, changes, bytes, requests int64) {
		t.Helper()
		t.Logf("%d replicas, %s: %d changes, %d bytes of watches (%.0f per change and replica), %d bytes of answers", n, what, changes, bytes, float64(bytes)/float64(max(changes, 1))/float64(n), requests)
	}
	count := func(what string, change func(), settled func() bool) {
		t.Helper()
		from, before, beforeRequests := versions(), w.bytes.Load(), w.requests.Load()
		change()
		until(t, what, settled)
		for changes, _, _ := quiet(); changes > 0; changes, _, _ = quiet() {
		}
		changes, bytes := versions()-from, w.bytes.Load()-before
		says(what, changes, bytes, w.requests.Load()-beforeRequests)
		if bytes > 110*changes*int64(n) {
			t.Errorf("%s: %d bytes per change and replica", what, bytes/changes/int64(n))
		}
	}
	shares := func() (sum int64) {
		for _, c := range counters {
			sum += int64(c.SharedLimit().Limit())
		}
		return sum
	}
	const limit = 600
	// within checks what etcd has at one revision.
	within := func() {
		t.Helper()
		res, err := bare.Get(t.Context(), "lbd/share/orders/", clientv3.WithPrefix())
		noError(t, err)
		sum := int64(0)
		for _, kv := range res.Kvs {
			e, err := share.Decode("r", kv.Value)
			noError(t, err)
			sum += e.Share
		}
		if sum > limit {
			t.Fatalf("the shares are %d of %d", sum, limit)
		}
	}
	count("a new limit", func() {
		for i, f := range all {
			f.Share(counters[i], limit)
		}
	}, func() bool { within(); return shares() == limit })
	count("a demand of one replica", func() {}, func() bool {
		within()
		for range limit {
			if c := counters[0]; !c.Hold(c.SharedLimit().Limit()) {
				c.Breaker.Reject()
			}
		}
		return counters[0].SharedLimit().Limit() > limit/2
	})
	changes, bytes, requests := quiet()
	says("at rest for 3 s", changes, bytes, requests)
	if bytes > 3*10_000 {
		t.Errorf("at rest: %d bytes in 3 s", bytes)
	}
}

// TestShareKeys: a record of the former layout is ignored. While an entry cannot be read, nothing is changed. A replica
// whose entry was deleted publishes it again.
func TestShareKeys(t *testing.T) {
	t.Parallel()
	address := startEmbedded(t)
	bare, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()})
	noError(t, err)
	t.Cleanup(func() { _ = bare.Close() })
	change := func(_ any, err error) { noError(t, err) }
	change(bare.Put(t.Context(), "lbd/limit/orders", "\x01"+`{"entries":[{"replica":"a","session":1,"limit":9,"share":9,"demand":0,"bound":1}]}`))
	r := startReplica(t, address, 150)
	until(t, "it has all of the limit", func() bool { return r.counters.SharedLimit().Limit() == 150 })
	change(bare.Put(t.Context(), "lbd/share/orders/future", "\x02"))
	until(t, "the entry is seen", func() bool {
		from, err := bare.Get(t.Context(), "lbd/limit/orders")
		noError(t, err)
		r.fleet.Share(r.counters, 50+uint32(from.Kvs[0].Version)) // lower: in force at once, and published if that is possible
		time.Sleep(400 * time.Millisecond)
		to, err := bare.Get(t.Context(), "lbd/limit/orders")
		noError(t, err)
		return to.Kvs[0].Version == from.Kvs[0].Version
	})
	change(bare.Delete(t.Context(), "lbd/share/orders/future"))
	r.fleet.Share(r.counters, 200)
	until(t, "it has all of a higher limit", func() bool { return r.counters.SharedLimit().Limit() == 200 })
	change(bare.Delete(t.Context(), "lbd/share/orders/", clientv3.WithPrefix())) // its own entry as well
	until(t, "it has all of the limit again", func() bool {
		all, err := bare.Get(t.Context(), "lbd/share/orders/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		noError(t, err)
		return all.Count == 1 && r.counters.SharedLimit().Limit() == 200
	})
}
