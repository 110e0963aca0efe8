package lbdgrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
	"github.com/lbd-dev/lbd/clients/go/lbdgrpc"
)

var modes = []lbdclient.Mode{lbdclient.ModeBatch, lbdclient.ModePick, lbdclient.ModeLease}

// upstream is a real gRPC server: the health service, whose answers have the address of the server in their header.
type upstream struct {
	address string
	server  *grpc.Server
}

// serve starts an upstream. handle is called before each RPC, and fails it with its error; it may be nil.
func serve(t testing.TB, address string, handle func(context.Context) error) *upstream {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{address: listener.Addr().String()}
	u.server = grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if handle != nil {
				if err := handle(ctx); err != nil {
					return nil, err
				}
			}
			if err := grpc.SetHeader(ctx, metadata.Pairs("address", u.address)); err != nil {
				return nil, err
			}
			return next(ctx, request)
		}))
	grpc_health_v1.RegisterHealthServer(u.server, health.NewServer())
	go func() { _ = u.server.Serve(listener) }()
	t.Cleanup(u.server.Stop)
	return u
}

// connect returns a channel to a cluster.
func connect(t testing.TB, cluster string, config lbdclient.Config, options ...grpc.DialOption) (*lbdclient.Client, *grpc.ClientConn) {
	t.Helper()
	client, err := lbdclient.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	options = append(options, lbdgrpc.WithClient(client), grpc.WithTransportCredentials(insecure.NewCredentials()))
	channel, err := grpc.NewClient("lbd:///"+cluster, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = channel.Close() })
	return client, channel
}

// check sends an RPC, and returns the address of the upstream that answered.
func check(ctx context.Context, channel *grpc.ClientConn, options ...grpc.CallOption) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lbdtest.Deadline)
	defer cancel()
	var header metadata.MD
	options = append(options, grpc.Header(&header))
	_, err := grpc_health_v1.NewHealthClient(channel).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, options...)
	return strings.Join(header.Get("address"), ""), err
}

// each runs a test in each mode, and looks for goroutines that are left.
func each(t *testing.T, test func(t *testing.T, mode lbdclient.Mode)) {
	t.Helper()
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, before) })
			test(t, mode)
		})
	}
}

func TestRPCsGoToAllEndpoints(t *testing.T) {
	each(t, func(t *testing.T, mode lbdclient.Mode) {
		d := lbdtest.Start(t)
		first, second := serve(t, "127.0.0.1:0", nil), serve(t, "127.0.0.1:0", nil)
		d.Push(t, "orders", "", first.address, second.address)
		client, channel := connect(t, "orders", lbdclient.Config{Address: d.Address, Mode: mode})
		var mu sync.Mutex
		seen := map[string]int{}
		var callers sync.WaitGroup
		for range 20 {
			callers.Go(func() {
				for range 20 {
					address, err := check(t.Context(), channel, grpc.WaitForReady(true))
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					seen[address]++
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		if seen[first.address] < 150 || seen[second.address] < 150 {
			t.Errorf("RPCs by endpoint: %v", seen)
		}
		_ = channel.Close()
		client.Close()
		ended := d.Metric(t, `lbd_reported_requests_total{cluster="orders",outcome="success"}`) +
			d.Metric(t, `lbd_leases_finished_total{cluster="orders",outcome="success"}`)
		if mode != lbdclient.ModePick && ended != 400 {
			t.Errorf("lbd knows %v of 400 RPCs", ended)
		}
	})
}

func TestChangeOfCluster(t *testing.T) {
	each(t, func(t *testing.T, mode lbdclient.Mode) {
		d := lbdtest.Start(t)
		first, second := serve(t, "127.0.0.1:0", nil), serve(t, "127.0.0.1:0", nil)
		d.Push(t, "orders", "", first.address)
		_, channel := connect(t, "orders", lbdclient.Config{Address: d.Address, Mode: mode, MaxAge: time.Hour})
		for i := range 4 {
			want := []*upstream{first, second}[i%2]
			d.Push(t, "orders", "", want.address)
			lbdtest.Until(t, "RPCs go to the new endpoint", func() bool {
				address, err := check(t.Context(), channel)
				if err != nil {
					t.Fatal(err)
				}
				return address == want.address
			})
		}
	})
}

func TestRefusals(t *testing.T) {
	each(t, func(t *testing.T, mode lbdclient.Mode) {
		d := lbdtest.Start(t)
		u := serve(t, "127.0.0.1:0", nil)
		d.Push(t, "half", `{"drop_overloads":[{"category":"sale","drop_percentage":{"numerator":50}}]}`, u.address)
		d.Push(t, "orders", "", u.address)
		d.Limit(t, "orders", 1)
		d.Call(t, http.MethodPost, "/v1/pick?cluster=orders&ttl=5m", "")
		retries := grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"lbd":{}}],"methodConfig":[{"name":[{}],"retryPolicy":
			{"maxAttempts":5,"initialBackoff":"0.01s","maxBackoff":"0.01s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`)
		_, half := connect(t, "half", lbdclient.Config{Address: d.Address, Mode: mode}, grpc.WithDisableServiceConfig(), retries)
		dropped := 0
		for range 100 {
			_, err := check(t.Context(), half, grpc.WaitForReady(true))
			if status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "drop category sale") {
				dropped++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if dropped < 25 || dropped > 75 { // retried, it would be 3
			t.Errorf("%d of 100 RPCs are dropped, want 50", dropped)
		}
		_, missing := connect(t, "missing", lbdclient.Config{Address: d.Address, Mode: mode})
		if _, err := check(t.Context(), missing); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "unknown_cluster") {
			t.Errorf("unknown cluster: %v", err)
		}
		if mode == lbdclient.ModePick { // does not count
			return
		}
		_, full := connect(t, "orders", lbdclient.Config{Address: d.Address, Mode: mode})
		if _, err := check(t.Context(), full, grpc.WaitForReady(true)); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "circuit_broken") {
			t.Errorf("full circuit breaker: %v", err)
		}
	})
}

func TestOutcomes(t *testing.T) {
	each(t, func(t *testing.T, mode lbdclient.Mode) {
		d := lbdtest.Start(t)
		var code atomic.Uint32
		entered := make(chan struct{}, 1)
		u := serve(t, "127.0.0.1:0", func(ctx context.Context) error {
			if code := codes.Code(code.Load()); code != codes.Canceled {
				return status.Error(code, "as told")
			}
			entered <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})
		d.Push(t, "orders", "", u.address)
		client, channel := connect(t, "orders", lbdclient.Config{Address: d.Address, Mode: mode})
		for _, c := range []codes.Code{codes.OK, codes.NotFound, codes.Unavailable, codes.Internal} {
			code.Store(uint32(c))
			if _, err := check(t.Context(), channel); status.Code(err) != c {
				t.Errorf("error %v, want %v", err, c)
			}
		}
		code.Store(uint32(codes.Canceled))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-entered
			cancel()
		}()
		if _, err := check(ctx, channel); status.Code(err) != codes.Canceled {
			t.Errorf("error %v", err)
		}
		_ = channel.Close()
		client.Close()
		metric := map[lbdclient.Mode]string{
			lbdclient.ModeBatch: "lbd_reported_requests_total", lbdclient.ModeLease: "lbd_leases_finished_total",
		}[mode]
		for outcome, want := range map[string]float64{"success": 2, "error": 2, "cancelled": 1} {
			if got := d.Metric(t, metric+`{cluster="orders",outcome="`+outcome+`"}`); metric != "" && got != want {
				t.Errorf("%s: %v, want %v", outcome, got, want)
			}
		}
	})
}

// TestChannelOfAnotherResolver has a channel that selects the balancer, and does not have its target.
func TestChannelOfAnotherResolver(t *testing.T) {
	u := serve(t, "127.0.0.1:0", nil)
	channel, err := grpc.NewClient("passthrough:///"+u.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"lbd":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = channel.Close() }()
	if _, err := check(t.Context(), channel); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "lbd:///CLUSTER") {
		t.Errorf("error %v", err)
	}
}

func TestStreams(t *testing.T) {
	d := lbdtest.Start(t)
	u := serve(t, "127.0.0.1:0", nil)
	d.Push(t, "orders", "", u.address)
	_, channel := connect(t, "orders", lbdclient.Config{Address: d.Address, Mode: lbdclient.ModeLease})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := grpc_health_v1.NewHealthClient(channel).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil || d.InFlight(t) != 1 {
		t.Errorf("%v, %d in flight", err, d.InFlight(t))
	}
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled || errors.Is(err, io.EOF) {
		t.Errorf("error %v", err)
	}
	lbdtest.Until(t, "the lease ends", func() bool { return d.InFlight(t) == 0 })
}
