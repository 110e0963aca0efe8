package client

import (
	"fmt"
	"os"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// TestSearchSubscriptions runs every interleaving of events between one client and one
// server, for each kind of server. From each state that is reached, the messages in flight
// arrive. Then each subscribed resource that exists must have been delivered since it was
// subscribed last, the timeout must run for the others, and the server must have the
// client's list.
func TestSearchSubscriptions(t *testing.T) {
	deeper := 0
	if os.Getenv("LBD_TEST_LONG") != "" {
		deeper = 2
	}
	for _, scenario := range []struct {
		exist     string // one digit a name: 1 if it exists
		behaviors []behavior
		limits    limits
		depth     int
	}{
		{exist: "11", behaviors: behaviors, limits: limits{updates: 1, disconnects: 1}, depth: 11},
		{exist: "10", behaviors: behaviors, limits: limits{updates: 2}, depth: 10},
		{exist: "111", behaviors: behaviors[:3], limits: limits{updates: 1, disconnects: 1}, depth: 9},
	} {
		for i := range scenario.behaviors {
			b := &scenario.behaviors[i]
			t.Run(scenario.exist+" "+b.name, func(t *testing.T) {
				t.Parallel()
				depth := scenario.depth + deeper
				search(t, newSubscriptionModel(scenario.exist, b, scenario.limits), depth)
			})
		}
	}
}

// Removed names must not accumulate on a stream that lasts for months.
func TestRemovedNamesExpire(t *testing.T) {
	subs, now := newSubscriptions(eds), time.Now()
	for i := range 100 {
		name := fmt.Sprint(i)
		subs.subscribe(name)
		subs.nextRequest(nil, now)
		subs.unsubscribe(name)
		subs.nextRequest(nil, now)
		now = now.Add(removalMemory / 10)
	}
	if n := len(subs.removed); n < 9 || n > 12 {
		t.Errorf("%d of 100 names are stored", n)
	}
}

// TestResubscribeDuringResponse is one of those interleavings: a resource is unsubscribed
// before it arrives, and subscribed again before the ACK of the response that has it. The
// server ignored the request without it, which has an old nonce.
func TestResubscribeDuringResponse(t *testing.T) {
	runTest(t, "one", func(_ *testing.T, w *harness) {
		w.want(eds, "a")
		s := w.servers["one"].accept()
		s.expect(`node=test ClusterLoadAssignment [a] version="" nonce=""`)
		s.send("1", "n1", assignment("a", 1))
		w.expectUpdates("a=1")
		s.expect(`ClusterLoadAssignment [a] version="1" nonce="n1"`)
		w.want(eds, "d")
		s.expect(`ClusterLoadAssignment [a d] version="1" nonce="n1"`)
		w.want(eds, "-d")
		s.expect(`ClusterLoadAssignment [a] version="1" nonce="n1"`) // ignored: it crosses the next response
		// The owner is busy, then handles the response and the subscription together.
		w.client.post(func() { time.Sleep(time.Second) })
		w.client.post(func() {
			for _, server := range w.client.pool.channels {
				server.responseReceived(server.stream, decodeResponse(&discoveryv3.DiscoveryResponse{
					TypeUrl: eds.URL(), VersionInfo: "2", Nonce: "n2", Resources: []*anypb.Any{assignment("a", 1), assignment("d", 1)},
				}, w.client.decoding, nil))
			}
		})
		w.want(eds, "d")
		s.expect(`ClusterLoadAssignment [a] version="2" nonce="n2"`)
		s.expect(`ClusterLoadAssignment [a d] version="2" nonce="n2"`)
		s.send("2", "n3", assignment("d", 1))
		w.expectUpdates("d=2")
		s.expect(`ClusterLoadAssignment [a d] version="2" nonce="n3"`)
		s.expectNothing()
	})
}
