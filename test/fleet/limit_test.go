package fleet

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/lbd-dev/lbd/lb/policy"
	limits "github.com/lbd-dev/lbd/service/fleet"
	"github.com/lbd-dev/lbd/xds/resource"
)

// startEmbedded starts an etcd of one member, and returns the address of its clients.
func startEmbedded(t *testing.T) string {
	t.Helper()
	c := embed.NewConfig()
	c.Dir, c.Logger, c.LogLevel = t.TempDir(), "zap", "error"
	loopback := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c.ListenClientUrls, c.ListenPeerUrls = loopback, loopback
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	e, err := embed.StartEtcd(c)
	noError(t, err)
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		t.Fatal("etcd is not ready")
	}
	return e.Clients[0].Addr().String()
}

// proxy forwards connections to etcd, until it is cut: then it forwards nothing, and closes nothing.
type proxy struct {
	listener net.Listener
	cut      atomic.Bool
	closed   chan struct{}
}

func startProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	p := &proxy{listener: l, closed: make(chan struct{})}
	t.Cleanup(func() { _ = l.Close(); close(p.closed) })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			go p.forward(client, server)
			go p.forward(server, client)
		}
	}()
	return p
}

func (p *proxy) forward(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	go func() { <-p.closed; _, _ = to.Close(), from.Close() }()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		for p.cut.Load() {
			select {
			case <-p.closed:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
		if _, writeErr := to.Write(b[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

// replica is what a daemon has of a limit of the fleet, with callers that send one request after the other.
type replica struct {
	proxy    *proxy
	fleet    *limits.Fleet
	counters *policy.ClusterCounters
	wants    atomic.Int64
	end      context.CancelFunc
	ended    chan struct{}
}

func startReplica(t *testing.T, etcd string, limit uint32) *replica {
	t.Helper()
	r := &replica{proxy: startProxy(t, etcd), ended: make(chan struct{})}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{r.proxy.listener.Addr().String()}, DialTimeout: time.Second,
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: time.Second, Logger: zap.NewNop(),
	})
	noError(t, err)
	connect := func(context.Context) (*clientv3.Client, error) { return client, nil }
	if _, err := client.Put(t.Context(), "lbd/format", "{}"); err != nil { // as the store of pushed resources does
		t.Fatal(err)
	}
	f := limits.New(limits.Options{Connect: connect, Prefix: "lbd/", MaxTTL: 10 * time.Minute, Log: slog.New(slog.DiscardHandler)})
	all := policy.NewCounters()
	all.JoinFleet()
	r.counters = all.Acquire(resource.ServiceKey{Cluster: "orders"})
	f.Share(r.counters, limit)
	r.fleet = f
	ctx, end := context.WithCancel(t.Context())
	r.end = end
	t.Cleanup(func() { end(); r.proxy.cut.Store(false); <-r.ended })
	go func() {
		defer close(r.ended)
		_ = f.Run(ctx)
	}()
	return r
}

// take admits a request as picks do.
func (r *replica) take(ttl time.Duration) bool {
	l := r.counters.SharedLimit()
	if !r.counters.Hold(l.Limit()) {
		r.counters.Breaker.Reject()
		return false
	}
	l.Ask(ttl)
	if l.Exceeded(r.counters.Breaker.InFlight()) || l.Admits(ttl, policy.Clock()) != policy.Admitted {
		r.counters.Unhold()
		r.counters.Breaker.Reject()
		return false
	}
	return true
}

// upstream counts the requests of all replicas.
type upstream struct {
	inFlight, most atomic.Int64
}

func (u *upstream) serve(d time.Duration) {
	n := u.inFlight.Add(1)
	for {
		m := u.most.Load()
		if n <= m || u.most.CompareAndSwap(m, n) {
			break
		}
	}
	time.Sleep(d)
	u.inFlight.Add(-1)
}

// TestLimit: 100 requests over 5 replicas, whose demand moves and which are cut off from etcd, or replaced,
// while it does. The upstream never counts more than 100, and 95 at least on average while nothing is
// broken. LBD_FLEET_TIME sets how long it lasts.
func TestLimit(t *testing.T) {
	const limit, replicas = 100, 5
	etcd := startEmbedded(t)
	all := make([]*replica, replicas)
	for i := range all {
		all[i] = startReplica(t, etcd, limit)
	}
	var server upstream
	var callers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	var current [replicas]atomic.Pointer[replica]
	for i, r := range all {
		current[i].Store(r)
		for number := range int64(2 * limit) {
			callers.Go(func() {
				for ctx.Err() == nil {
					r := current[i].Load()
					if number >= r.wants.Load() || !r.take(2*time.Second) {
						time.Sleep(20*time.Millisecond + rand.N(20*time.Millisecond))
						continue
					}
					server.serve(200*time.Millisecond + rand.N(600*time.Millisecond))
					r.counters.Unhold()
				}
			})
		}
	}
	move := func() {
		for i := range current {
			current[i].Load().wants.Store(rand.Int64N(limit))
		}
		current[rand.IntN(replicas)].Load().wants.Store(2 * limit)
	}
	measure := func(d time.Duration) float64 {
		sum, samples := int64(0), int64(0)
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			sum += server.inFlight.Load()
			samples++
		}
		return float64(sum) / float64(samples)
	}
	used, samples := 0.0, 0
	for range 3 { // nothing is broken
		move()
		time.Sleep(2 * time.Second)
		used += measure(2 * time.Second)
		samples++
	}
	mean := used / float64(samples)
	t.Logf("%.1f of %d in flight while nothing is broken", mean, limit)
	if mean < 0.95*limit {
		t.Errorf("%.1f of %d are used", mean, limit)
	}
	for end := time.Now().Add(duration(t)); time.Now().Before(end); {
		i := rand.IntN(replicas)
		r := current[i].Load()
		switch rand.IntN(3) {
		case 0: // cut off, for longer than its session lives or not
			r.proxy.cut.Store(true)
			move()
			time.Sleep(time.Duration(1+rand.IntN(15)) * time.Second)
			r.proxy.cut.Store(false)
		case 1: // ends, and is replaced by a new process
			next := startReplica(t, etcd, limit)
			r.end()
			<-r.ended
			current[i].Store(next)
			move()
		default: // killed: it neither admits nor says goodbye
			next := startReplica(t, etcd, limit)
			r.wants.Store(0)
			r.proxy.cut.Store(true)
			current[i].Store(next)
			move()
		}
		time.Sleep(rand.N(3 * time.Second))
	}
	stop()
	callers.Wait()
	t.Logf("%d in flight at most", server.most.Load())
	if most := server.most.Load(); most > limit {
		t.Errorf("%d in flight, more than %d", most, limit)
	}
}
