package lbdgrpc_test

import (
	"context"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

// TestEndpointWithoutConnection has an endpoint that cannot be reached, which lbd does not know.
func TestEndpointWithoutConnection(t *testing.T) {
	each(t, func(t *testing.T, mode lbdclient.Mode) {
		d := lbdtest.Start(t)
		u, down := serve(t, "127.0.0.1:0", nil), serve(t, "127.0.0.1:0", nil)
		down.server.Stop()
		d.Push(t, "orders", "", u.address, down.address)
		d.Push(t, "down", "", down.address)
		_, channel := connect(t, "orders", lbdclient.Config{Address: d.Address, Mode: mode})
		for range 50 {
			if address, err := check(t.Context(), channel); err != nil || address != u.address {
				t.Fatalf("%s, %v", address, err)
			}
		}
		_, broken := connect(t, "down", lbdclient.Config{Address: d.Address, Mode: mode})
		if _, err := check(t.Context(), broken); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("error %v", err)
		}
		var waiting sync.WaitGroup
		for range 5 {
			waiting.Go(func() {
				if address, err := check(t.Context(), broken, grpc.WaitForReady(true)); err != nil || address != down.address {
					t.Errorf("waits for ready: %s, %v", address, err)
				}
			})
		}
		serve(t, down.address, nil)
		waiting.Wait()
	})
}

// TestConnectTimeout has an endpoint that does not answer when a connection is made.
func TestConnectTimeout(t *testing.T) {
	each(t, func(t *testing.T, mode lbdclient.Mode) {
		d := lbdtest.Start(t)
		u, silent := serve(t, "127.0.0.1:0", nil), lbdtest.Silent(t)
		d.Push(t, "orders", "", u.address, silent)
		d.Push(t, "silent", "", silent)
		config := lbdclient.Config{Address: d.Address, Mode: mode, ConnectTimeout: 50 * time.Millisecond}
		_, channel := connect(t, "orders", config)
		for range 30 {
			if address, err := check(t.Context(), channel); err != nil || address != u.address {
				t.Fatalf("%s, %v", address, err)
			}
		}
		_, broken := connect(t, "silent", config)
		if _, err := check(t.Context(), broken); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "no connection within 50ms") {
			t.Errorf("error %v", err)
		}
	})
}

// TestDropsWithoutConnection has RPCs that wait for a connection, while lbd drops half of them: each draws once.
func TestDropsWithoutConnection(t *testing.T) {
	d := lbdtest.Start(t)
	u := serve(t, "127.0.0.1:0", nil)
	d.Push(t, "orders", `{"drop_overloads":[{"category":"sale","drop_percentage":{"numerator":50}}]}`, u.address)
	_, channel := connect(t, "orders", lbdclient.Config{Address: d.Address}, grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond},
	}))
	lbdtest.Until(t, "an RPC is not dropped", func() bool { _, err := check(t.Context(), channel); return err == nil })
	u.server.Stop()
	lbdtest.Until(t, "the connection has failed", func() bool { return channel.GetState() == connectivity.TransientFailure })
	const rpcs = 200
	var waiting sync.WaitGroup
	var dropped, ended atomic.Int64
	for range rpcs {
		waiting.Go(func() {
			switch _, err := check(t.Context(), channel, grpc.WaitForReady(true)); {
			case status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "drop category sale"):
				dropped.Add(1)
			case err != nil:
				t.Error(err)
			}
			ended.Add(1)
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := check(ctx, channel, grpc.WaitForReady(true)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("without a connection: %v", err)
	}
	if got := ended.Load(); got > 0 {
		t.Errorf("%d RPCs have ended without a connection", got)
	}
	serve(t, u.address, nil)
	waiting.Wait()
	if got := dropped.Load(); got < rpcs/4 || got > rpcs*3/4 {
		t.Errorf("%d of %d RPCs are dropped, want half of them", got, rpcs)
	}
}

func TestLBDIsRestarted(t *testing.T) {
	each(t, func(t *testing.T, mode lbdclient.Mode) {
		d := lbdtest.Start(t)
		first, second := serve(t, "127.0.0.1:0", nil), serve(t, "127.0.0.1:0", nil)
		d.Push(t, "orders", "", first.address)
		d.Stop()
		_, channel := connect(t, "orders", lbdclient.Config{Address: d.Address, Mode: mode, MaxAge: time.Hour})
		if _, err := check(t.Context(), channel); status.Code(err) != codes.Unavailable {
			t.Errorf("error %v", err)
		}
		var waiting sync.WaitGroup
		for range 5 {
			waiting.Go(func() {
				if _, err := check(t.Context(), channel, grpc.WaitForReady(true)); err != nil {
					t.Errorf("waits for ready: %v", err)
				}
			})
		}
		if err := d.Restart(); err != nil {
			t.Fatal(err)
		}
		waiting.Wait()
		d.Stop()
		for range 10 {
			_, err := check(t.Context(), channel)
			if mode == lbdclient.ModeBatch && err != nil || mode != lbdclient.ModeBatch && status.Code(err) != codes.Unavailable {
				t.Fatalf("without lbd: %v", err)
			}
		}
		waiting.Go(func() {
			if _, err := check(t.Context(), channel, grpc.WaitForReady(true)); err != nil {
				t.Errorf("waits for ready again: %v", err)
			}
		})
		if err := d.Restart(); err != nil {
			t.Fatal(err)
		}
		waiting.Wait()
		d.Push(t, "orders", "", second.address)
		lbdtest.Until(t, "RPCs go to the new endpoint", func() bool {
			address, err := check(t.Context(), channel)
			return err == nil && address == second.address
		})
	})
}

// TestCallersThatGiveUp has RPCs that end while they are queued.
func TestCallersThatGiveUp(t *testing.T) {
	each(t, func(t *testing.T, mode lbdclient.Mode) {
		d := lbdtest.Start(t)
		u := serve(t, "127.0.0.1:0", nil)
		d.Push(t, "orders", "", u.address)
		_, channel := connect(t, "orders", lbdclient.Config{Address: d.Address, Mode: mode})
		if _, err := check(t.Context(), channel); err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for i := range 200 {
			callers.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Microsecond)
				defer cancel()
				if _, err := check(ctx, channel); err != nil && status.Code(err) != codes.DeadlineExceeded {
					t.Error(err)
				}
			})
		}
		callers.Wait()
		lbdtest.Until(t, "no lease is held", func() bool { return d.InFlight(t) == 0 })
	})
}

// TestEndpointThatHangs has an endpoint that accepts connections, and does not speak HTTP/2.
func TestEndpointThatHangs(t *testing.T) {
	each(t, func(t *testing.T, mode lbdclient.Mode) {
		d := lbdtest.Start(t)
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		d.Push(t, "orders", "", listener.Addr().String())
		_, channel := connect(t, "orders", lbdclient.Config{Address: d.Address, Mode: mode})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := check(ctx, channel); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("error %v", err)
		}
		lbdtest.Until(t, "no lease is held", func() bool { return d.InFlight(t) == 0 })
	})
}

// TestCloseOfChannel ends what the channel has started, while the client is open.
func TestCloseOfChannel(t *testing.T) {
	d := lbdtest.Start(t)
	d.Push(t, "orders", "", serve(t, "127.0.0.1:0", nil).address)
	_, channel := connect(t, "orders", lbdclient.Config{Address: d.Address, Mode: lbdclient.ModePick})
	if _, err := check(t.Context(), channel); err != nil {
		t.Fatal(err)
	}
	following := func() bool {
		stacks := make([]byte, 1<<20)
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "FollowEndpoints(")
	}
	if !following() {
		t.Error("nothing follows the cluster")
	}
	_ = channel.Close()
	lbdtest.Until(t, "nothing follows the cluster", func() bool { return !following() })
}

func TestCircuitBreakerHolds(t *testing.T) {
	d := lbdtest.Start(t)
	var inFlight, most atomic.Int64
	u := serve(t, "127.0.0.1:0", func(context.Context) error {
		n := inFlight.Add(1)
		defer inFlight.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		time.Sleep(2 * time.Millisecond) // an RPC takes some time
		return nil
	})
	d.Push(t, "orders", "", u.address)
	d.Limit(t, "orders", 5)
	_, channel := connect(t, "orders", lbdclient.Config{Address: d.Address, Mode: lbdclient.ModeLease})
	var callers sync.WaitGroup
	var refused, passed atomic.Int64
	for range 30 {
		callers.Go(func() {
			for range 20 {
				switch _, err := check(t.Context(), channel); status.Code(err) {
				case codes.OK:
					passed.Add(1)
				case codes.Unavailable:
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	if most.Load() > 5 || refused.Load() == 0 || passed.Load() < 5 {
		t.Errorf("%d in flight at most, %d refused, %d passed", most.Load(), refused.Load(), passed.Load())
	}
	lbdtest.Until(t, "no lease is held", func() bool { return d.InFlight(t) == 0 })
}
