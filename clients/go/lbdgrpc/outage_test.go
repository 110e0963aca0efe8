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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lbdclient "github.com/lbd-dev/lbd/clients/go"
	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

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
