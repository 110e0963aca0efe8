package lb_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/grpc/balancer/weightedroundrobin"
)

// TestForeignPicksSeeThePush: once a config is answered no pick is of the one
// before. What is connected to by then is READY to picks.
func TestForeignPicksSeeThePush(t *testing.T) {
	const based = "test_based_on_base"
	balancer.Register(base.NewBalancerBuilder(based, counting{waits: new(atomic.Int64)}, base.Config{}))
	for _, grpcs := range []string{based, roundrobin.Name, pickfirst.Name, weightedroundrobin.Name, "least_request_experimental"} {
		name := foreignName(t, grpcs)
		t.Run(grpcs, func(t *testing.T) {
			ch := newChannel(t, nil)
			for i := range 500 {
				l := locality("a", 0, 1, 2)
				l.Endpoints = l.Endpoints[i%2 : i%2+1]
				offer(t, ch, foreignConfig(name, `{}`, l))
				call := newCall()
				if err := ch.Pick(call, 0); err != nil || call.Address != l.Endpoints[0].Addresses[0] {
					t.Fatalf("after push %d: picked %q, %v", i, call.Address, err)
				}
			}
		})
	}
}

// TestForeignPolicyWithProducers runs a policy that asks its endpoints for reports,
// which no endpoint answers.
func TestForeignPolicyWithProducers(t *testing.T) {
	name := foreignName(t, weightedroundrobin.Name)
	synctest.Test(t, func(t *testing.T) {
		board := newSwitchboard()
		ch := newChannel(t, board)
		defer ch.Close()
		board.set(true, "a-0:80", "a-1:80")
		offer(t, ch, foreignConfig(name, `{"enableOobLoadReport":true}`, locality("a", 0, 1, 2)))
		expectPicks(t, ch, "a-0:80 a-1:80")
		board.lose("a-0:80")
		expectPicks(t, ch, "a-1:80")
		board.set(true, "a-0:80")
		time.Sleep(time.Minute)
		expectPicks(t, ch, "a-0:80 a-1:80")
	})
}
