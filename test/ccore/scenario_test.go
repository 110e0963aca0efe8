package ccore_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
)

const (
	roundRobin = clusterv3.Cluster_ROUND_ROBIN
	ringHash   = clusterv3.Cluster_RING_HASH

	// patience is how long both sides have to come to what is demanded: the timeout
	// of a resource that does not exist is 15 s, and the last back-off may be some seconds.
	patience = time.Minute
	pause    = 200 * time.Millisecond
	// looksToResend are how often a side may be seen to differ before the resources
	// are sent once more: go-control-plane sends a resource only once that is dropped
	// and requested again in the meantime.
	looksToResend = 25
	// calmLooks are how often, within 1 s, a step must not disturb any call.
	calmLooks = 5
)

// keys are what calls are hashed by.
var keys = func() (all []string) {
	for i := range 24 {
		all = append(all, fmt.Sprint("key-", i))
	}
	return all
}()

// scenario is one run of both sides.
type scenario struct {
	t          *testing.T
	world      *world
	management *management
	grpc       *cCore
	lbd        *daemon

	host  string
	ports uint32
	last  demand
	story []string
}

// python returns the interpreter that has grpcio.
func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("LBD_TEST_CCORE")
	if path == "" {
		t.Skip("LBD_TEST_CCORE names no Python with grpcio: run make test-ccore")
	}
	return path
}

// newScenario returns the nth one. Each has a host of its own, so that the port of a
// stopped endpoint stays closed.
func newScenario(t *testing.T, n int) *scenario {
	t.Helper()
	name := fmt.Sprintf("s%d", n)
	return &scenario{
		t: t, host: fmt.Sprintf("127.80.%d.%d", n/250, n%250+1), ports: 20000,
		world: &world{name: name, aggregates: map[string][]string{}, leaves: map[string]*leaf{}},
	}
}

// leaf adds a leaf to the world. sizes are how many endpoints its priorities have, all
// of which run.
func (s *scenario) leaf(name string, policy clusterv3.Cluster_LbPolicy, sizes ...int) *leaf {
	s.t.Helper()
	l := &leaf{name: s.world.name + "-" + name, policy: policy}
	for _, n := range sizes {
		var p []*upstream
		for range n {
			s.ports++
			u := &upstream{host: s.host, port: s.ports}
			u.start(s.t)
			s.t.Cleanup(u.stop)
			p = append(p, u)
		}
		l.priorities = append(l.priorities, p)
	}
	s.world.leaves[l.name] = l
	return l
}

// aggregate makes the root of what is named, leaves and aggregates.
func (s *scenario) aggregate(of ...string) { s.nest(s.world.name, of...) }

func (s *scenario) nest(name string, of ...string) { s.world.aggregates[name] = of }

func (l *leaf) stop() {
	for _, p := range l.priorities {
		for _, u := range p {
			u.stop()
		}
	}
}

func (l *leaf) start(t *testing.T) {
	t.Helper()
	for _, p := range l.priorities {
		for _, u := range p {
			u.start(t)
		}
	}
}

// begin starts both sides, and compares them.
func (s *scenario) begin(python string) {
	s.t.Helper()
	s.management = newManagement(s.t)
	s.send()
	features := []string{"fail_on_data_errors"}
	if s.world.keeps {
		features = nil
	}
	s.grpc = newCCore(s.t, python, bootstrap(s.management.address, "c-core", features...), s.world.name)
	s.lbd = newDaemon(s.t, bootstrap(s.management.address, "lbd", features...), s.world.name)
	s.step("begin", func() {})
}

func (s *scenario) send() {
	s.t.Helper()
	listener, clusters, assignments := s.world.resources()
	s.management.set(s.t, listener, clusters, assignments)
}

// step changes the world and waits until both sides do what is demanded then. A step
// that changes nothing for picks must be seen to disturb none.
func (s *scenario) step(what string, change func()) {
	s.t.Helper()
	s.story = append(s.story, what)
	was := s.last
	change()
	s.send()
	s.last = s.world.demand()
	if was.leaf == s.last.leaf && was.leaf != nil && was.leaf.policy == s.last.leaf.policy && slices.Equal(was.endpoints, s.last.endpoints) {
		for range calmLooks {
			if err := s.calm(); err != nil {
				s.fail(fmt.Errorf("a step that changes nothing for picks: %w", err))
			}
			time.Sleep(pause)
		}
	}
	deadline := time.After(patience)
	for looks := 1; ; looks++ {
		err := s.compare()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			s.fail(err)
		case <-time.After(pause):
		}
		if looks%looksToResend == 0 {
			s.send()
		}
	}
}

func (s *scenario) fail(err error) {
	s.t.Helper()
	inUse, skipped, _ := s.lbd.leaves(s.world.name)
	s.t.Fatalf("%s\n%v\naggregates %v, leaf in use by lbd %q, skipped %q", strings.Join(s.story, "\n"), err, s.world.aggregates, inUse, skipped)
}

// calm makes calls of both sides, none of which may fail or go elsewhere.
func (s *scenario) calm() error {
	for _, side := range []side{s.grpc, s.lbd} {
		answers, err := side.ask(keys)
		if err != nil {
			return err
		}
		for _, a := range answers {
			if !slices.Contains(s.last.endpoints, a) {
				return fmt.Errorf("%s answers %q, which is none of %q", side.name(), a, s.last.endpoints)
			}
		}
	}
	return nil
}

// compare says in what a side differs from the demand, or from the other one.
func (s *scenario) compare() error {
	var last []string
	for _, side := range []side{s.grpc, s.lbd} {
		answers, err := side.ask(keys)
		if err != nil {
			return err
		}
		if err := s.last.holds(answers); err != nil {
			return fmt.Errorf("%s: %w", side.name(), err)
		}
		if s.last.leaf == nil || s.last.leaf.policy != ringHash {
			continue
		}
		again, err := side.ask(keys)
		if err != nil {
			return err
		}
		if !slices.Equal(again, answers) {
			return fmt.Errorf("%s picks %q, and then %q for the same keys", side.name(), answers, again)
		}
		if last != nil && !slices.Equal(last, answers) {
			return fmt.Errorf("C-core picks %q, %s %q", last, side.name(), answers)
		}
		last = answers
	}
	inUse, skipped, err := s.lbd.leaves(s.world.name)
	switch {
	case err != nil:
		return err
	case s.last.leaf != nil && inUse != s.last.leaf.name:
		return fmt.Errorf("lbd says that leaf %q is in use; demanded is %s", inUse, s.last.leaf.name)
	case !slices.Equal(skipped, s.last.skipped):
		return fmt.Errorf("lbd says that %q are skipped; demanded is %q", skipped, s.last.skipped)
	}
	return nil
}

// holds compares answers with the demand.
func (d demand) holds(answers []string) error {
	used := make(map[string]int)
	for _, a := range answers {
		switch failed := strings.HasPrefix(a, "!"); {
		case d.leaf == nil && !strings.HasPrefix(a, "!UNAVAILABLE: ") && !strings.HasPrefix(a, "!no_ready_endpoint: "):
			return fmt.Errorf("answers %q where no leaf can serve", a)
		case d.leaf != nil && (failed || !slices.Contains(d.endpoints, a)):
			return fmt.Errorf("answers %q; demanded are %q of %s", a, d.endpoints, d.leaf.name)
		}
		used[a]++
	}
	if d.leaf == nil || d.leaf.policy != roundRobin {
		return nil
	}
	for _, e := range d.endpoints { // they take turns
		if n := len(answers) / len(d.endpoints); used[e] < n || used[e] > n+1 {
			return fmt.Errorf("of %d calls come %v to %q of %s, which take turns", len(answers), used, d.endpoints, d.leaf.name)
		}
	}
	return nil
}
