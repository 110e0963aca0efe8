package client

import (
	"fmt"
	"os"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// TestSearchSubscriptions runs every interleaving of what can happen between one
// client and one server, for each kind of server. From each state that is reached it
// lets the messages that are under way arrive. Then each subscribed resource that
// exists must have been delivered since it was subscribed last, the server's time must
// run for the others, and the server must have the client's list.
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
				search(t, newSituation(scenario.exist, b, scenario.limits), depth)
			})
		}
	}
}

// TestRemovedNamesAreForgotten: they would pile up on a stream that lasts for months.
func TestRemovedNamesAreForgotten(t *testing.T) {
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
		t.Errorf("%d of 100 names are remembered", n)
	}
}

// TestResubscribeWhileResponseIsUnderWay is one of those interleavings: a resource
// that was unsubscribed before it arrived, and is subscribed again before the ACK of
// the response that has it. The request without it was ignored by the server, since it
// has an old nonce.
func TestResubscribeWhileResponseIsUnderWay(t *testing.T) {
	play(t, "one", func(_ *testing.T, w *world) {
		w.want(eds, "a")
		s := w.servers["one"].accept()
		s.expect(`node=test ClusterLoadAssignment [a] version="" nonce=""`)
		s.say("1", "n1", assignment("a", 1))
		w.expectTold("a=1")
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
		s.say("2", "n3", assignment("d", 1))
		w.expectTold("d=2")
		s.expect(`ClusterLoadAssignment [a d] version="2" nonce="n3"`)
		s.expectNothing()
	})
}
