package client

import (
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
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
				began, depth := time.Now(), scenario.depth+deeper
				s := newSearch(scenario.exist, b, scenario.limits)
				if err := s.run(depth); err != nil {
					t.Fatal(err)
				}
				t.Logf("%.0f interleavings of %d events, %d states, %v", s.interleavings(depth), depth, len(s.nodes), time.Since(began).Round(time.Millisecond))
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
			for _, server := range w.client.servers {
				server.receive(server.stream, decode(&discoveryv3.DiscoveryResponse{
					TypeUrl: eds.URL(), VersionInfo: "2", Nonce: "n2", Resources: []*anypb.Any{assignment("a", 1), assignment("d", 1)},
				}, w.client.decoding, nil), newReceipt())
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

// node is a situation that the search has found.
type node struct {
	parent int32
	event  searchEvent // which led here from parent
	next   []int32
}

type search struct {
	names   int
	start   *situation
	nodes   []node
	found   map[[2]uint64]int32
	settled map[[2]uint64]int // steps until nothing is under way; by fingerprint
	seeds   [2]maphash.Seed
	buffer  []byte
}

func newSearch(exist string, b *behavior, l limits) *search {
	s := &search{
		names: len(exist), found: map[[2]uint64]int32{}, settled: map[[2]uint64]int{},
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
	}
	s.start = &situation{
		client: &server{
			client: &Client{options: Options{Bootstrap: &bootstrap.Config{}}, contacts: map[string]*contact{"": {}}}, after: func(time.Duration, func()) {},
			subscriptions: map[resource.Type]*subscriptions{eds: newSubscriptions(eds)},
		},
		model: modelServer{behavior: b}, left: l,
	}
	for i := range exist {
		s.start.model.versions[i] = exist[i] - '0'
	}
	s.start.do(connect)
	return s
}

func (s *search) key(x *situation) [2]uint64 {
	s.buffer = x.fingerprint(s.buffer[:0])
	return [2]uint64{maphash.Bytes(s.seeds[0], s.buffer), maphash.Bytes(s.seeds[1], s.buffer)}
}

// run finds all situations that at most so many events lead to, breadth first.
func (s *search) run(depth int) error {
	type place struct {
		id int32
		at *situation
	}
	s.nodes = []node{{parent: -1}}
	s.found[s.key(s.start)] = 0
	level := []place{{0, s.start}}
	for range depth {
		var next []place
		for _, p := range level {
			for e := range lastEvent {
				if !p.at.can(e, s.names) {
					continue
				}
				x := p.at.copy()
				x.do(e)
				k := s.key(x)
				id, known := s.found[k]
				if !known {
					id = int32(len(s.nodes))
					s.nodes = append(s.nodes, node{parent: p.id, event: e})
					s.found[k] = id
					if err := s.settle(x.copy()); err != nil {
						return fmt.Errorf("%s:\n%w", s.path(id), err)
					}
					next = append(next, place{id, x})
				}
				s.nodes[p.id].next = append(s.nodes[p.id].next, id)
			}
		}
		level = next
	}
	return nil
}

// inOrder is the order in which what is under way arrives in the end.
var inOrder = []searchEvent{connect, requestIsSent, flush, serverTakes, clientTakes}

// most is how many steps there may be until nothing is under way.
const most = 60

// settle lets all that is under way arrive, and checks what came of it.
func (s *search) settle(x *situation) error {
	var keys [][2]uint64
	var steps []string
	for {
		k := s.key(x)
		rest, known := s.settled[k]
		if i := slices.IndexFunc(inOrder, func(e searchEvent) bool { return x.can(e, s.names) }); !known && i >= 0 {
			keys = append(keys, k)
			x.do(inOrder[i])
			steps = append(steps, inOrder[i].String())
			if len(keys) > most {
				return fmt.Errorf("and then it does not come to rest: %s", strings.Join(steps, ", "))
			}
			continue
		}
		if !known {
			if err := x.check(s.names); err != nil {
				return fmt.Errorf("and then %s: %w", strings.Join(steps, ", "), err)
			}
			s.settled[k] = 0
		}
		if rest+len(keys) > most {
			return fmt.Errorf("and then it takes %d steps until nothing is under way", rest+len(keys))
		}
		for i, k := range keys {
			s.settled[k] = rest + len(keys) - i
		}
		return nil
	}
}

// check returns what is wrong when nothing is under way.
func (s *situation) check(count int) error {
	wanted := names(0)
	for i := range count {
		sub := s.subscribed(i)
		if sub == nil {
			continue
		}
		wanted |= 1 << i
		switch version := s.model.versions[i]; {
		case version == 0 && sub.stage != asked:
			return fmt.Errorf("%s does not exist and is in stage %d", sub.name, sub.stage)
		case version > 0 && (s.got[i] != version || sub.stage != arrived):
			return fmt.Errorf("%s has version %d and was delivered in version %d, in stage %d", sub.name, version, s.got[i], sub.stage)
		}
	}
	if wanted != s.model.listed && (wanted != 0 || s.model.nonce > 0) {
		return fmt.Errorf("the server's list is %b, the client's %b", s.model.listed, wanted)
	}
	return nil
}

// path describes how a node was reached.
func (s *search) path(id int32) string {
	var events []string
	for ; id > 0; id = s.nodes[id].parent {
		events = append(events, s.nodes[id].event.String())
	}
	slices.Reverse(events)
	return strings.Join(events, ", ")
}

// interleavings returns how many sequences of so many events there are.
func (s *search) interleavings(depth int) float64 {
	ways := make([]float64, len(s.nodes))
	ways[0] = 1
	for range depth {
		after := make([]float64, len(s.nodes))
		for i, n := range s.nodes {
			if ways[i] == 0 {
				continue
			}
			for _, next := range n.next {
				after[next] += ways[i]
			}
		}
		ways = after
	}
	sum := 0.0
	for _, n := range ways {
		sum += n
	}
	return sum
}
