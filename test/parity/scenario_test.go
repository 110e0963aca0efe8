package parity_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

const (
	// pause is the time between looks at both sides. Both are quiet when nothing
	// has changed for quietLooks, 200 ms; on a busy machine that is longer. A
	// side that is still not in its state after stuckLooks, 1 s, stays there.
	pause      = 20 * time.Millisecond
	quietLooks = 10
	stuckLooks = 50

	// attempts are how often what differs is compared, and respite is the time
	// between two.
	attempts = 4
	respite  = time.Second
	// patience is how long that may take: lbd's back-off grows with each
	// failure of an endpoint.
	patience = 40 * time.Second
)

// scenario is one run of both sides.
type scenario struct {
	name       string
	seed       uint64
	draw       *drawing
	net        *upstreams
	management *management
	grpc       *grpcSide
	lbd        *lbdSide

	// accepted are the resources that both sides have taken last.
	cluster    *clusterv3.Cluster
	assignment *endpointv3.ClusterLoadAssignment

	// ambiguous is true once a locality's name was there at several priorities.
	ambiguous bool

	story []string
}

// runScenario runs the nth scenario of a seed, and returns what it told.
func runScenario(t *testing.T, seed uint64, n int, m *management, server *grpc.Server) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	name := fmt.Sprintf("s%d", n)
	net, err := claimHost(server, n)
	if err != nil {
		t.Fatal(err)
	}
	defer net.close()
	s := &scenario{name: name, seed: seed, net: net, management: m}
	s.draw = &drawing{Rand: rand.New(rand.NewPCG(seed, uint64(n))), net: net}
	s.draw.begin(name)
	if s.grpc, err = newGRPCSide(name, m.address); err != nil {
		t.Fatal(err)
	}
	defer s.grpc.close()
	s.lbd = newLBDSide(name, s.draw.world.cluster)
	defer s.lbd.close()

	steps := 2 + s.draw.IntN(4)
	for i := range steps + 1 {
		what := "begin"
		if i > 0 {
			what = s.draw.step()
		}
		s.story = append(s.story, what)
		found, err := s.step(ctx, i)
		if err != nil {
			t.Fatalf("%s\nstep %d: %v", s.tell(), i, err)
		}
		if len(found) > 0 {
			t.Fatalf("%s\nstep %d differs:\n%s", s.tell(), i, strings.Join(found, "\n"))
		}
	}
}

// step brings the network and both sides to the world as drawn, and compares
// them once both are quiet. What differs is looked at again, a few times: on a
// busy machine grpc-go may not have got to the update that it has acknowledged.
func (s *scenario) step(ctx context.Context, version int) ([]string, error) {
	if err := s.net.settle(); err != nil {
		return nil, err
	}
	judged, err := s.update(ctx, version)
	if err != nil || len(judged) > 0 {
		return judged, err
	}
	if version == 0 {
		if s.grpc.ctx, err = s.grpc.probe(ctx, "any"); err != nil {
			return nil, err
		}
	}
	s.ambiguous = s.ambiguous || ambiguous(s.assignment)
	made := [2]map[string]int{make(map[string]int), make(map[string]int)}
	for attempt := 1; ; attempt++ {
		found, err := s.compare(ctx, made)
		if err != nil || len(found) == 0 || attempt == attempts {
			return found, err
		}
		time.Sleep(respite)
	}
}

// compare waits until both sides are quiet, and says in what they differ. made
// sums the connections made in the step.
func (s *scenario) compare(ctx context.Context, made [2]map[string]int) ([]string, error) {
	up := s.net.up()
	c := &compared{named: s.net.named, demand: demandOf(s.cluster, s.assignment, up)}
	gState, lState, err := s.settled(ctx, c.demand, up)
	if err != nil {
		c.differ("%v", err)
	}
	if gState != lState {
		c.differ("grpc-go is %v, lbd %v", gState, lState)
	}
	shares, priority, err := s.lbd.shares(ctx)
	if err != nil {
		return nil, err
	}
	c.described(shares, priority)
	for i, side := range []side{s.grpc, s.lbd} {
		for address, n := range side.connected() {
			made[i][address] += n
		}
	}
	before := s.lbd.dropped()
	g, l := take(s.grpc), take(s.lbd)
	c.categories(before, s.lbd.dropped())
	g.hold(s.grpc, int(c.demand.limit))
	l.hold(s.lbd, int(c.demand.limit))
	c.polled(s.grpc, g)
	c.polled(s.lbd, l)
	c.both(g, l)
	if !s.ambiguous {
		c.connections(made[0], made[1])
	}
	return c.found, nil
}

// update sends the resources to both sides, and says in what their verdicts
// differ.
func (s *scenario) update(ctx context.Context, version int) ([]string, error) {
	r := s.draw.world.resources()
	gCDS, gEDS, err := s.management.send(ctx, s.name, version, r)
	if err != nil {
		return nil, err
	}
	lCDS, lEDS, err := s.lbd.update(ctx, r)
	if err != nil {
		return nil, err
	}
	if gCDS.nack == "" {
		s.cluster = r.cluster
	}
	if gEDS.nack == "" {
		s.assignment = r.assignment
	}
	return slices.Concat(judged(r.cluster, gCDS, lCDS), judged(r.assignment, gEDS, lEDS)), nil
}

func judged(m proto.Message, g, l verdict) []string {
	if (g.nack == "") == (l.nack == "") {
		return nil
	}
	return []string{fmt.Sprintf("of %s\ngrpc-go says %q\nlbd says %q", protojson.Format(m), g.nack, l.nack)}
}

// settled waits until each side knows of every endpoint whether it can be
// connected to, and nothing has changed for a while: a long while, if a side is
// not in the state that is demanded.
func (s *scenario) settled(ctx context.Context, d *demand, up map[string]bool) (g, l connectivity.State, err error) {
	want := connectivity.TransientFailure
	if d.ready {
		want = connectivity.Ready
	}
	var last string
	var wrong error
	looks := 0 // that saw the same
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(pause) {
		gState, gReady, gSaw := s.grpc.look()
		lState, lReady, lSaw, err := s.lbd.look(ctx)
		if err != nil {
			return 0, 0, err
		}
		g, l = gState, lState
		wrong = errors.Join(s.lies("grpc-go", gReady, d, up), s.lies("lbd", lReady, d, up))
		if saw := gSaw + lSaw; wrong != nil || saw != last {
			last, looks = saw, 0
			continue
		}
		if looks++; looks >= quietLooks && g == want && l == want || looks >= stuckLooks {
			return g, l, nil
		}
	}
	return g, l, fmt.Errorf("not quiet after %v: %w", patience, wrong)
}

// lies tells of an endpoint that a side has the wrong idea of. ready has an
// entry for each address of an endpoint that the side knows.
func (s *scenario) lies(side string, ready map[string]bool, d *demand, up map[string]bool) error {
	for _, sites := range d.priorities {
		for _, site := range sites {
			for _, sp := range site.endpoints {
				if err := s.lie(side, sp, ready, up); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *scenario) lie(side string, sp spot, ready, up map[string]bool) error {
	known, connected := false, false
	for _, a := range sp.addresses {
		r, ok := ready[a]
		known = known || ok
		connected = connected || r
		if r && !up[a] {
			return fmt.Errorf("%s still takes %s for connected", side, s.net.named(a))
		}
	}
	if known && !connected && sp.live(up) {
		return fmt.Errorf("%s is not connected to %s", side, s.net.named(sp.key))
	}
	return nil
}

// tell says what led to here.
func (s *scenario) tell() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, scenario %s on %s\n", s.seed, s.name, s.net.host)
	for i, what := range s.story {
		fmt.Fprintf(&b, "step %d: %s\n", i, what)
	}
	b.WriteString("up: ")
	for _, u := range s.net.all {
		if u.listener != nil {
			fmt.Fprintf(&b, "%s(%s) ", u.name, u.address)
		}
	}
	for _, m := range []proto.Message{s.cluster, s.assignment} {
		js, err := protojson.Marshal(m)
		if err != nil {
			js = []byte(err.Error())
		}
		fmt.Fprintf(&b, "\n%s", js)
	}
	return b.String()
}
