package policy_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/roundrobin"
)

// foreign registers lbd's round_robin with grpc under a name of the test's.
type foreign struct{ policy.Builder }

func (foreign) Name() string { return "lbd_round_robin" }

// serve starts a gRPC server on loopback.
func serve(t *testing.T) (address string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, health.NewServer())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	stop = func() {
		s.Stop()
		<-done
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// TestHostUnderGRPC drives a policy of lbd's from grpc's own channel.
func TestHostUnderGRPC(t *testing.T) {
	balancer.Register(foreign{roundrobin.Builder()})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	r := manual.NewBuilderWithScheme("lbdtest")
	var addresses []string
	var endpoints []resolver.Endpoint
	var stopFirst func()
	for range 3 {
		address, stop := serve(t)
		if stopFirst == nil {
			stopFirst = stop
		}
		addresses = append(addresses, address)
		endpoints = append(endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: address}}})
	}
	r.InitialState(resolver.State{Endpoints: endpoints})
	cc, err := grpc.NewClient("lbdtest:///", grpc.WithResolvers(r),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"lbd_round_robin":{}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close() //nolint:errcheck // nothing can be done about it
	client := healthpb.NewHealthClient(cc)
	call := func() (string, error) {
		var p peer.Peer
		_, err := client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&p))
		if err != nil {
			return "", err
		}
		return p.Addr.String(), nil
	}
	// until calls until everything in want, and nothing else, answered n calls
	// in a row.
	until := func(n int, want ...string) {
		t.Helper()
		wanted := make(map[string]bool)
		for _, a := range want {
			wanted[a] = true
		}
		row, seen := 0, make(map[string]bool)
		for row < n || len(seen) < len(want) {
			at, err := call()
			if ctx.Err() != nil {
				t.Fatalf("waiting for calls to reach %v, the last: %q, %v", want, at, err)
			}
			if err != nil || !wanted[at] {
				row, seen = 0, make(map[string]bool)
				continue
			}
			row++
			seen[at] = true
		}
	}

	until(3, addresses...)
	count := make(map[string]int)
	for range 300 {
		at, err := call()
		if err != nil {
			t.Fatal(err)
		}
		count[at]++
	}
	for _, a := range addresses {
		if count[a] != 100 {
			t.Errorf("%d of 300 calls reached %s, want 100 at each", count[a], a)
		}
	}

	stopFirst()
	until(30, addresses[1:]...)

	r.UpdateState(resolver.State{Endpoints: endpoints[2:]})
	until(30, addresses[2])
	cc.ResetConnectBackoff()
}

// conn is a foreign ClientConn that notes what it is told.
type conn struct {
	balancer.ClientConn
	states []balancer.State
}

func (c *conn) UpdateState(s balancer.State) { c.states = append(c.states, s) }

func (c *conn) ResolveNow(resolver.ResolveNowOptions) {}

// TestHostAnswersBeforeItReturns: what a policy has to say about a call has been
// said when the call returns, and nothing comes after Close.
func TestHostAnswersBeforeItReturns(t *testing.T) {
	for range 200 { // it was a race
		cc := new(conn)
		b := roundrobin.Builder().Build(cc, balancer.BuildOptions{})
		if err := b.UpdateClientConnState(policy.Child{}.State()); err == nil {
			t.Error("no endpoints were taken without error")
		}
		if len(cc.states) != 1 || cc.states[0].ConnectivityState != failure {
			t.Fatalf("told %v before UpdateClientConnState returned, want one TRANSIENT_FAILURE", cc.states)
		}
		b.ResolverError(errRefused)
		if len(cc.states) != 2 {
			t.Fatalf("told %v before ResolverError returned", cc.states)
		}
		b.ExitIdle()
		b.UpdateSubConnState(nil, balancer.SubConnState{})
		b.Close()
		b.ResolverError(errRefused)
		if len(cc.states) != 2 {
			t.Fatalf("told %v after Close", cc.states)
		}
	}
}
