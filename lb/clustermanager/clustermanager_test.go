package clustermanager_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/clustermanager"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/test/lbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	idle       = connectivity.Idle
	connecting = connectivity.Connecting
	ready      = connectivity.Ready
	failure    = connectivity.TransientFailure
)

var errRefused = errors.New("refused")

// stage is a cluster_manager whose clusters' children are actors of the
// cluster's name.
type stage struct {
	t      *testing.T
	tree   *lbtest.Tree
	actors *lbtest.Troupe
	other  *lbtest.Troupe
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, actors: &lbtest.Troupe{PolicyName: "actor"}, other: &lbtest.Troupe{PolicyName: "other"}}
	s.tree = lbtest.NewTree(t, clustermanager.Builder(), s.actors, s.other)
	return s
}

type step func(s *stage)

// config gives the clusters: "a" is an actor, "a!" one that refuses its part,
// "a?" one of an unknown policy, "a'" one of another policy.
func config(clusters ...string) step {
	return func(s *stage) {
		s.t.Helper()
		cfg := &policy.ClusterManagerConfig{Children: map[string]policy.Child{}}
		for _, c := range clusters {
			name := strings.TrimRight(c, "!?'")
			switch c[len(name):] {
			case "!":
				cfg.Children[name] = s.actors.Refusing(name, errRefused)
			case "?":
				cfg.Children[name] = policy.Child{Policy: "unheard_of"}
			case "'":
				cfg.Children[name] = s.other.Child(name)
			default:
				cfg.Children[name] = s.actors.Child(name)
			}
		}
		s.tree.Config(policy.Child{Config: cfg})
	}
}

func says(cluster string, states ...connectivity.State) step {
	return func(s *stage) {
		for _, state := range states {
			a := s.actors.Actor(cluster)
			s.tree.Batch(func() { a.Says(state) })
		}
	}
}

func otherSays(cluster string, state connectivity.State) step {
	return func(s *stage) {
		a := s.other.Actor(cluster)
		s.tree.Batch(func() { a.Says(state) })
	}
}

func reports(want int) step { return func(s *stage) { s.tree.ExpectReports(want) } }

// pick returns the result of a pick from cluster.
func (s *stage) pick(cluster string) string {
	call := &policy.Call{Cluster: cluster}
	_, err := s.tree.Pick(call)
	switch {
	case errors.Is(err, balancer.ErrNoSubConnAvailable):
		return "queue"
	case err != nil:
		return err.Error()
	default:
		return "picked " + call.Endpoint.Addresses[0]
	}
}

func TestClusterManager(t *testing.T) {
	const unknown = `unknown cluster selected for RPC: `
	tests := []struct {
		name  string
		steps []step
		want  string // the state, and what picks of a and of b get
	}{
		{"no clusters", []step{config(), reports(1)}, `TRANSIENT_FAILURE; ` + unknown + `"a"; ` + unknown + `"b"`},
		{"new clusters are CONNECTING", []step{config("a", "b"), reports(1)}, "CONNECTING; queue; queue"},
		{"one is READY: the other waits", []step{config("a", "b"), says("a", ready)}, "READY; picked a; queue"},
		{"one failed", []step{config("a", "b"), says("a", ready), says("b", failure)}, "READY; picked a; b: the actor failed"},
		{"one is IDLE", []step{config("a", "b"), says("a", idle), says("b", failure)}, "IDLE; queue; b: the actor failed"},
		{"all failed", []step{config("a", "b"), says("a", failure), says("b", failure)}, "TRANSIENT_FAILURE; a: the actor failed; b: the actor failed"},
		{"a failed one that connects again still counts as failed", []step{config("a"), says("a", failure, connecting)}, `TRANSIENT_FAILURE; queue; ` + unknown + `"b"`},
		{"a removed cluster is unknown at once", []step{config("a", "b"), says("a", ready), says("b", ready), config("a")}, `READY; picked a; ` + unknown + `"b"`},
		{"the READY one is removed", []step{config("a", "b"), says("a", ready), says("b", failure), config("b")}, `TRANSIENT_FAILURE; ` + unknown + `"a"; b: the actor failed`},
		{"one that comes back is new", []step{config("a", "b"), says("b", ready), config("a"), config("a", "b")}, "CONNECTING; queue; queue"},
		{"a refused config fails its cluster only", []step{config("a", "b"), says("a", ready), says("b", ready), config("a", "b!")}, "READY; picked a; refused"},
		{"until it takes another", []step{config("a", "b"), says("a", ready), says("b", ready), config("a", "b!"), config("a", "b")}, "READY; picked a; picked b"},
		{"an unknown policy fails its cluster only", []step{config("a", "b?"), says("a", ready)}, `READY; picked a; load balancing policy "unheard_of" is not registered`},
		{"another policy: the old one serves until the new one is READY", []step{config("a"), says("a", ready), config("a'"), otherSays("a", connecting)}, `READY; picked a; ` + unknown + `"b"`},
		{"and then the new one", []step{config("a", "b"), says("a", ready), config("a'", "b"), otherSays("a", failure)}, "CONNECTING; a: the actor failed; queue"},
		{"one picker for a config and all that it brings", []step{config("a"), says("a", ready), reports(2), config("a!", "b"), reports(2)}, "CONNECTING; refused; queue"},
		{"nothing changed", []step{config("a"), says("a", ready), reports(2), config("a"), reports(1)}, `READY; picked a; ` + unknown + `"b"`},
		{"nothing changed, of nothing", []step{config(), reports(1), config(), reports(1)}, `TRANSIENT_FAILURE; ` + unknown + `"a"; ` + unknown + `"b"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			for _, step := range tt.steps {
				step(s)
			}
			if got := fmt.Sprintf("%v; %s; %s", s.tree.State(), s.pick("a"), s.pick("b")); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if n := s.tree.Describe(); n.State != s.tree.State() || n.Policy != policy.ClusterManager {
				t.Errorf("describes %+v, reported is %v", n, s.tree.State())
			}
		})
	}
}

func TestSummaryAndClose(t *testing.T) {
	s := newStage(t)
	config("a", "b")(s)
	says("a", ready)(s)
	sum := s.tree.Summarize()
	if sum.State != ready || sum.Priority != -1 || sum.Clusters.Len() != 2 || sum.Clusters.Get("a").State != ready || sum.Clusters.Get("b").State != connecting {
		t.Errorf("summary %+v", sum)
	}
	n := s.tree.Describe()
	if len(n.Clusters) != 2 || n.Clusters["a"].State != ready || n.Clusters["b"].State != connecting {
		t.Errorf("describes %+v", n)
	}
	s.tree.Close()
	for _, a := range s.actors.Actors {
		if !a.Closed {
			t.Errorf("%s is not closed", a.Part.Name)
		}
	}
}

// silent is a reporter with nothing to say.
type silent struct{}

func (silent) Report() {}

// TestSummaryFollows: what a cluster's policies mark, what the cluster says and
// which clusters there are is in the summary; nothing else is counted again.
func TestSummaryFollows(t *testing.T) {
	s := newStage(t)
	summary := func() string {
		sum := s.tree.Summarize()
		var out []string
		for _, name := range []string{"a", "b", "c"} {
			if c := sum.Clusters.Get(name); c != nil {
				out = append(out, fmt.Sprintf("%s %v", name, c.State))
			}
		}
		return strings.Join(out, ", ")
	}
	mark := func(name string) step {
		return func(s *stage) {
			conn := lbtest.As[*policy.Conn](s.t, s.actors.Actor(name).Conn)
			s.tree.Batch(func() { conn.Mark(silent{}, new(bool)) })
		}
	}
	for _, tt := range []struct {
		name string
		step step
		want string
	}{
		{"two clusters", config("a", "b"), "a CONNECTING, b CONNECTING"},
		{"a has marked itself", mark("a"), "a CONNECTING, b CONNECTING"},
		{"so has b", mark("b"), "a CONNECTING, b CONNECTING"},
		{"a fails without a mark", says("a", failure), "a TRANSIENT_FAILURE, b CONNECTING"},
		{"b is removed", config("a"), "a TRANSIENT_FAILURE"},
		{"c is added", config("a", "c"), "a TRANSIENT_FAILURE, c CONNECTING"},
		{"b comes back", config("a", "b", "c"), "a TRANSIENT_FAILURE, b CONNECTING, c CONNECTING"},
	} {
		tt.step(s)
		if got := summary(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// TestEvents: a change of a cluster's state is reported for the cluster that picks
// name, once for a batch.
func TestEvents(t *testing.T) {
	s := newStage(t)
	for _, tt := range []struct {
		name string
		step step
		want string
	}{
		{"clusters begin CONNECTING", config("a", "b"), "[]"},
		{"READY", says("a", ready), "[a CONNECTING→READY]"},
		{"READY still", says("a", ready), "[]"},
		{"to and fro in a batch", func(s *stage) {
			a := s.actors.Actor("a")
			s.tree.Batch(func() { a.Says(failure); a.Says(ready) })
		}, "[]"},
		{"both in a batch", func(s *stage) {
			a, b := s.actors.Actor("a"), s.actors.Actor("b")
			s.tree.Batch(func() { b.Says(failure); a.Says(idle) })
		}, "[a READY→IDLE b CONNECTING→TRANSIENT_FAILURE]"},
		{"connecting after a failure", says("b", connecting), "[b TRANSIENT_FAILURE→CONNECTING]"},
		{"one that goes has no state", config("b"), "[]"},
		{"one that comes back is new", config("a", "b"), "[]"},
		{"its config is refused", config("a!", "b"), "[a CONNECTING→TRANSIENT_FAILURE]"},
	} {
		s.tree.TakeEvents()
		tt.step(s)
		var got []string
		for _, e := range s.tree.TakeEvents() {
			if e, ok := e.(policy.StateChanged); ok {
				got = append(got, fmt.Sprintf("%s %v→%v", e.Cluster, e.From, e.To))
			}
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%s: %v, want %s", tt.name, got, tt.want)
		}
	}
}
