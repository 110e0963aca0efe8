package weightedtarget_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/weightedtarget"
	"github.com/lbd-dev/lbd/test/lbtest"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	idle       = connectivity.Idle
	connecting = connectivity.Connecting
	ready      = connectivity.Ready
	failure    = connectivity.TransientFailure
)

var errRefused = errors.New("refused")

// stage is a weighted_target whose localities' children are actors of the
// zone's name.
type stage struct {
	t          *testing.T
	tree       *lbtest.Tree
	actors     *lbtest.Troupe
	localities map[string]*policy.Locality // by zone and weight: unchanged ones keep their pointers
	parts      map[string]policy.Child
}

func newStage(t *testing.T, steps ...step) *stage {
	s := &stage{t: t, actors: &lbtest.Troupe{PolicyName: "actor"}, localities: map[string]*policy.Locality{}, parts: map[string]policy.Child{}}
	s.tree = lbtest.NewTree(t, weightedtarget.Builder(), s.actors)
	s.tree.Draw = rand.New(rand.NewPCG(1, 2)).Uint64
	for _, step := range steps {
		step(s)
	}
	return s
}

type step func(s *stage)

// config gives the localities, each as "zone:weight", or "zone:weight-" without endpoints.
func config(targets ...string) step {
	return func(s *stage) {
		s.t.Helper()
		cfg := new(policy.WeightedTargetConfig)
		for _, target := range targets {
			zone, weight, _ := strings.Cut(target, ":")
			if s.localities[target] == nil {
				l := &policy.Locality{ID: resource.Locality{Zone: zone}}
				if !strings.HasSuffix(weight, "-") {
					l.Endpoints = []*resource.Endpoint{{Addresses: []string{zone}, Weight: 1}}
				}
				if _, err := fmt.Sscan(weight, &l.Weight); err != nil {
					s.t.Fatal(err)
				}
				s.localities[target] = l
			}
			if _, ok := s.parts[zone]; !ok {
				s.parts[zone] = s.actors.Child(zone)
			}
			cfg.Targets = append(cfg.Targets, policy.Target{Locality: s.localities[target], Child: s.parts[zone]})
		}
		s.tree.Config(policy.Child{Config: cfg})
	}
}

func says(zone string, states ...connectivity.State) step {
	return func(s *stage) {
		for _, state := range states {
			a := s.actors.Actor(zone)
			s.tree.Batch(func() { a.Says(state) })
		}
	}
}

// partOfA gives a another part with the next config.
func partOfA(child func(s *stage) policy.Child) step {
	return func(s *stage) {
		s.parts["a"] = child(s)
		clear(s.localities)
	}
}

func reports(want int) step { return func(s *stage) { s.tree.ExpectReports(want) } }

// updates asserts how many parts a zone's child was given.
func updates(zone string, want int) step {
	return func(s *stage) {
		s.t.Helper()
		if got := s.actors.Actor(zone).Updates; got != want {
			s.t.Errorf("%s was updated %d times, want %d", zone, got, want)
		}
	}
}

// String returns the state and what picks get: the localities in the draw with
// their weights, or the errors.
func (s *stage) String() string {
	call := &policy.Call{Trace: new(policy.Trace)}
	_, err := s.tree.Pick(call)
	what := ""
	switch {
	case errors.Is(err, balancer.ErrNoSubConnAvailable):
		what = "queue"
	case s.tree.State() == failure:
		what = strings.Join(s.failures(), ", ")
	case err != nil:
		what = err.Error()
	default:
		for _, c := range lbtest.As[policy.LocalityStep](s.t, call.Trace.Steps[0]).Candidates {
			what += fmt.Sprintf(" %s:%d", c.Locality.Zone, c.Weight)
		}
		what = what[1:]
	}
	return fmt.Sprintf("%v %s", s.tree.State(), what)
}

// failures are all errors that picks get, sorted.
func (s *stage) failures() []string {
	var out []string
	r := rand.New(rand.NewPCG(1, 2))
	s.tree.Draw = r.Uint64
	for range 100 {
		if _, err := s.tree.Pick(nil); !slices.Contains(out, err.Error()) {
			out = append(out, err.Error())
		}
	}
	slices.Sort(out)
	return out
}

func TestWeightedTarget(t *testing.T) {
	tests := []struct {
		name  string
		steps []step
		want  string
	}{
		{"no targets", []step{config()}, "TRANSIENT_FAILURE no locality to pick from"},
		{"a new child is CONNECTING", []step{config("a:1", "b:2")}, "CONNECTING queue"},
		{"READY ones only", []step{config("a:1", "b:2", "c:3"), says("a", ready), says("c", ready)}, "READY a:1 c:3"},
		{"in the config's order", []step{config("b:1", "a:2"), says("a", ready), says("b", ready)}, "READY b:1 a:2"},
		{"one fails, one connects: there is hope", []step{config("a:1", "b:1"), says("a", failure)}, "CONNECTING queue"},
		{
			"all failed: their errors",
			[]step{config("a:1", "b:1"), says("a", failure), says("b", failure)},
			"TRANSIENT_FAILURE a: the actor failed, b: the actor failed",
		},
		{
			"a failed one that connects again still counts as failed; its picks wait",
			[]step{config("a:1", "b:1"), says("a", failure, connecting), says("b", failure)},
			"TRANSIENT_FAILURE b: the actor failed, no SubConn is available",
		},
		{"until it is READY", []step{config("a:1"), says("a", failure, connecting, ready)}, "READY a:1"},
		{"READY to CONNECTING is no failure", []step{config("a:1"), says("a", ready, connecting)}, "CONNECTING queue"},
		{"IDLE is better than failed", []step{config("a:1", "b:1"), says("a", failure), says("b", idle)}, "IDLE queue"},
		{"CONNECTING is better than IDLE", []step{config("a:1", "b:1"), says("a", idle)}, "CONNECTING queue"},
		{"READY is better than all", []step{config("a:1", "b:1", "c:1", "d:1"), says("a", ready), says("b", failure), says("c", idle)}, "READY a:1"},
		{"a weight changes alone", []step{config("a:1", "b:2"), says("a", ready), says("b", ready), reports(3), config("a:1", "b:5"), reports(2)}, "READY a:1 b:5"},
		{"the order changes alone", []step{config("a:1", "b:2"), says("a", ready), says("b", ready), config("b:2", "a:1")}, "READY b:2 a:1"},
		{"a locality is removed", []step{config("a:1", "b:2"), says("a", ready), says("b", ready), config("b:2")}, "READY b:2"},
		{"the READY one is removed", []step{config("a:1", "b:2"), says("a", ready), says("b", failure), config("b:2")}, "TRANSIENT_FAILURE b: the actor failed"},
		{"a locality is added: the READY one serves alone until it is READY too", []step{config("a:1"), says("a", ready), config("a:1", "b:2")}, "READY a:1"},
		{"and then both", []step{config("a:1"), says("a", ready), config("a:1", "b:2"), says("b", ready)}, "READY a:1 b:2"},
		{"a locality is added to failed ones: there is hope", []step{config("a:1"), says("a", failure), config("a:1", "b:2")}, "CONNECTING queue"},
		{"a locality that comes back is new", []step{config("a:1", "b:2"), says("a", ready), config("b:2"), config("a:1", "b:2")}, "CONNECTING queue"},
		{
			"a locality that gets its first endpoint is new: the failure was for want of one",
			[]step{config("a:1", "b:2-"), says("a", ready), says("b", failure), config("a:1-", "b:2"), says("a", failure), says("b", connecting)},
			"CONNECTING queue",
		},
		{
			"and is counted once",
			[]step{config("a:1-"), says("a", failure), config("a:1"), says("a", connecting, failure)},
			"TRANSIENT_FAILURE a: the actor failed",
		},
		{
			"and is found by the next config",
			[]step{config("a:1-"), says("a", failure), config("a:1"), says("a", ready), config("a:3"), updates("a", 2)},
			"READY a:3",
		},
		{
			"one that loses its last endpoint is not",
			[]step{config("a:1"), says("a", ready), config("a:1-"), updates("a", 2), says("a", failure)},
			"TRANSIENT_FAILURE a: the actor failed",
		},
		{"all are removed", []step{config("a:1"), says("a", ready), config()}, "TRANSIENT_FAILURE no locality to pick from"},
		{
			"an unchanged locality's child is left alone",
			[]step{config("a:1", "b:2"), says("a", ready), config("a:1", "b:3"), updates("a", 1), updates("b", 2)},
			"READY a:1",
		},
		{
			"a config that changes nothing says nothing",
			[]step{config("a:1"), says("a", ready), reports(2), config("a:1"), reports(1)},
			"READY a:1",
		},
		{
			"a failed locality that goes on trying makes no new picker while others serve",
			[]step{config("a:1", "b:1"), says("a", ready), says("b", failure), reports(2), says("b", connecting, failure, connecting, failure), reports(1)},
			"READY a:1",
		},
		{
			"but where it has all failed the last error is news",
			[]step{config("a:1"), says("a", failure), reports(2), says("a", failure), reports(2)},
			"TRANSIENT_FAILURE a: the actor failed",
		},
		{
			"a READY child's new picker goes up",
			[]step{config("a:1"), says("a", ready), reports(2), says("a", ready), reports(2)},
			"READY a:1",
		},
		{
			"and an IDLE one's, which knows what a pick has to wake",
			[]step{config("a:1", "b:1"), says("a", idle), says("b", idle), reports(2), says("a", idle), reports(2)},
			"IDLE queue",
		},
		{
			"a part that is refused fails that locality only",
			[]step{
				config("a:1", "b:1"), says("a", ready), says("b", ready),
				partOfA(func(s *stage) policy.Child { return s.actors.Refusing("a", errRefused) }), config("a:1", "b:1"),
			},
			"READY b:1",
		},
		{
			"until it takes another",
			[]step{
				config("a:1", "b:1"), says("a", ready), says("b", ready),
				partOfA(func(s *stage) policy.Child { return s.actors.Refusing("a", errRefused) }), config("a:1", "b:1"),
				partOfA(func(s *stage) policy.Child { return s.actors.Child("a") }), config("a:1", "b:1"),
			},
			"READY a:1 b:1",
		},
		{
			"an unknown policy fails its locality only",
			[]step{partOfA(func(*stage) policy.Child { return policy.Child{Policy: "unheard_of"} }), config("a:1", "b:1"), says("b", ready)},
			"READY b:1",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, tt.steps...)
			if got := s.String(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			n := s.tree.Describe()
			if n.State != s.tree.State() || (n.Err != nil) != (n.State == failure) {
				t.Errorf("describes %v with error %v, reported is %v", n.State, n.Err, s.tree.State())
			}
		})
	}
}

// TestShares: every draw of a thousand evenly spaced ones falls where its weight
// says.
func TestShares(t *testing.T) {
	s := newStage(t)
	draws := make([]uint64, 1000)
	for i := range draws {
		draws[i] = uint64(i)*(math.MaxUint64/1000) + 1<<40
	}
	s.tree.Draw = lbtest.Draws(draws...)
	for _, step := range []step{config("a:10", "b:20", "c:70"), says("a", ready), says("b", ready), says("c", ready)} {
		step(s)
	}
	got := make(map[string]int)
	for range draws {
		var call policy.Call
		if _, err := s.tree.Pick(&call); err != nil {
			t.Fatal(err)
		}
		got[call.Endpoint.Addresses[0]]++
	}
	if got["a"] != 100 || got["b"] != 200 || got["c"] != 700 {
		t.Errorf("got %v, want a 100, b 200, c 700", got)
	}
}

// excluding is a picker of which every endpoint is excluded.
type excluding struct{}

func (excluding) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{}, policy.NewRefusal(policy.KindAllExcluded, "", "all of mine are excluded")
}

// serve makes localities READY. Those in out have only endpoints that are excluded.
func (s *stage) serve(out []string, targets ...string) {
	for _, target := range targets {
		a := s.actors.Actor(target[:1])
		picker := a.Picker(ready)
		if slices.Contains(out, target[:1]) {
			picker = excluding{}
		}
		s.tree.Batch(func() { a.Conn.UpdateState(balancer.State{ConnectivityState: ready, Picker: picker}) })
	}
}

// TestExclude: a pick that excludes all of the drawn locality goes to another one,
// but not to another priority.
func TestExclude(t *testing.T) {
	tests := []struct {
		name    string
		out     []string // localities of which all is excluded
		exclude []string
		want    string
		visited string
	}{
		{"the drawn one serves", []string{"b"}, []string{"x"}, "a", "a"},
		{"the next one does", []string{"a"}, []string{"x"}, "b", "a b"},
		{"the last one does", []string{"a", "b"}, []string{"x"}, "c", "a b c"},
		{"none does", []string{"a", "b", "c"}, []string{"x"}, "every READY endpoint of the priority is excluded", "a b c"},
		{"a pick that excludes nothing keeps to its draw", []string{"a"}, nil, "all of mine are excluded", "a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			s.tree.Draw = lbtest.Draws(0)
			config("a:1", "b:1", "c:1")(s)
			s.serve(tt.out, "a", "b", "c")
			call := &policy.Call{Exclude: tt.exclude, Trace: new(policy.Trace)}
			_, err := s.tree.Pick(call)
			var got string
			if err != nil {
				got = err.Error()
			} else {
				got = call.Endpoint.Addresses[0]
			}
			var visited []string
			for _, step := range call.Trace.Steps {
				l := lbtest.As[policy.LocalityStep](t, step)
				visited = append(visited, l.Candidates[l.Chosen].Locality.Zone)
			}
			if got != tt.want || strings.Join(visited, " ") != tt.visited {
				t.Errorf("got %q by way of %v, want %q by way of %s", got, visited, tt.want, tt.visited)
			}
			var refusal *policy.Refusal
			if err != nil && (!errors.As(err, &refusal) || refusal.Kind != policy.KindAllExcluded) {
				t.Errorf("the error is %#v", err)
			}
		})
	}
}

// TestExcludeShares: the localities that remain share the picks of those that are
// excluded by weight, and an explanation lists only what was in the draw.
func TestExcludeShares(t *testing.T) {
	tests := []struct {
		name    string
		weights []string
		out     []string
		want    map[string]float64
	}{
		{"one of four", []string{"a:1", "b:1", "c:1", "d:1"}, []string{"b"}, map[string]float64{"a": 1. / 3, "c": 1. / 3, "d": 1. / 3}},
		{"by weight", []string{"a:1", "b:2", "c:3"}, []string{"b"}, map[string]float64{"a": .25, "c": .75}},
		{"the heavy ones", []string{"a:100000", "b:100000", "c:3", "d:1"}, []string{"a", "b"}, map[string]float64{"c": .75, "d": .25}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			config(tt.weights...)(s)
			s.serve(tt.out, tt.weights...)
			got := make(map[string]int)
			const n = 3000
			for range n {
				call := &policy.Call{Exclude: []string{"x"}, Trace: new(policy.Trace)}
				if _, err := s.tree.Pick(call); err != nil {
					t.Fatal(err)
				}
				got[call.Endpoint.Addresses[0]]++
				for i, step := range call.Trace.Steps {
					l := lbtest.As[policy.LocalityStep](t, step)
					if len(l.Candidates) != len(tt.weights)-i {
						t.Fatalf("step %d drew from %v", i, l.Candidates)
					}
				}
			}
			for name, share := range tt.want {
				if d := float64(got[name])/n - share; d < -.03 || d > .03 {
					t.Errorf("picks %v, want shares %v", got, tt.want)
				}
			}
		})
	}
}
