package priority_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/priority"
	"github.com/lbd-dev/lbd/test/lbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	idle       = connectivity.Idle
	connecting = connectivity.Connecting
	ready      = connectivity.Ready
	failure    = connectivity.TransientFailure
)

// stage is a priority policy whose children are actors: a, b, c …
type stage struct {
	t      *testing.T
	tree   *lbtest.Tree
	actors *lbtest.Troupe
	other  *lbtest.Troupe // another policy
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, actors: &lbtest.Troupe{PolicyName: "actor"}, other: &lbtest.Troupe{PolicyName: "other"}}
	s.tree = lbtest.NewTree(t, priority.Builder(), s.actors, s.other)
	return s
}

// saying is the part with which an actor reports state.
func (s *stage) saying(name string, state connectivity.State) policy.Child {
	return policy.Child{Policy: s.actors.PolicyName, Config: &lbtest.Part{Name: name, Says: &state}}
}

// step is one thing that happens to the policy.
type step struct {
	say string
	do  func(s *stage)
}

// config gives the priorities, from the highest on.
func config(names ...string) step {
	return step{"config " + strings.Join(names, " "), func(s *stage) {
		children := make([]policy.PriorityChild, len(names))
		for i, n := range names {
			children[i] = policy.PriorityChild{Name: n, Child: s.actors.Child(n), Size: i + 1}
		}
		s.config(children)
	}}
}

// configOf is config with parts of their own.
func configOf(say string, children func(s *stage) []policy.PriorityChild) step {
	return step{say, func(s *stage) { s.config(children(s)) }}
}

func (s *stage) config(children []policy.PriorityChild) {
	s.t.Helper()
	s.tree.Config(policy.Child{Config: &policy.PriorityConfig{Cluster: "orders", Children: children}})
}

// says lets a child say that it is in state.
func says(name string, state connectivity.State) step {
	return step{fmt.Sprintf("%s is %v", name, state), func(s *stage) {
		a := s.actor(name)
		s.tree.Batch(func() { a.Says(state) })
	}}
}

func (s *stage) actor(name string) *lbtest.Actor {
	s.t.Helper()
	a := s.actors.Actor(name)
	if a == nil {
		a = s.other.Actor(name)
	}
	if a == nil {
		s.t.Fatalf("%s is not built", name)
	}
	return a
}

// after lets time pass.
func after(d time.Duration) step {
	return step{"after " + d.String(), func(s *stage) { s.tree.Sleep(d) }}
}

// expect says how the policy is: what it reports, what a pick gets, and how each
// child is, in the config's order.
//
//	READY a | a* -       a is in use, b was never built
//	READY b | a b*       both are started
//	READY a | a* (b)     b is deactivated and kept
func expect(want string) step {
	return step{"", func(s *stage) {
		s.t.Helper()
		if got := s.String(); got != want {
			s.t.Errorf("got  %s\nwant %s", got, want)
		}
	}}
}

func (s *stage) String() string {
	var b strings.Builder
	var call policy.Call
	_, err := s.tree.Pick(&call)
	fmt.Fprintf(&b, "%v ", s.tree.State())
	switch {
	case errors.Is(err, balancer.ErrNoSubConnAvailable):
		b.WriteString("queue")
	case err != nil:
		b.WriteString(err.Error())
	default:
		b.WriteString(call.Endpoint.Addresses[0])
	}
	b.WriteString(" |")
	for i, p := range s.tree.Describe().Priorities {
		built := s.actors.Actor(p.Name) != nil || s.other.Actor(p.Name) != nil
		switch {
		case p.InUse:
			fmt.Fprintf(&b, " %s*", p.Name)
			if err == nil && call.Priority != i {
				s.t.Errorf("the pick reports priority %d, in use is %d", call.Priority, i)
			}
		case p.Started:
			fmt.Fprintf(&b, " %s", p.Name)
		case built:
			fmt.Fprintf(&b, " (%s)", p.Name)
		default:
			b.WriteString(" -")
		}
	}
	return b.String()
}

// reports asserts how many states went up since the last reports.
func reports(want int) step {
	return step{fmt.Sprintf("%d reports", want), func(s *stage) { s.tree.ExpectReports(want) }}
}

// switches asserts the events since the last switches.
func switches(want ...string) step {
	return step{"switches", func(s *stage) {
		s.t.Helper()
		var got []string
		for _, e := range s.tree.TakeEvents() {
			p, ok := e.(policy.PrioritySwitched)
			if !ok || p.Cluster != "orders" {
				s.t.Errorf("event %#v", e)
			}
			got = append(got, fmt.Sprintf("%d→%d %s: %s", p.From, p.To, p.Reason, p.Detail))
		}
		if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
			s.t.Errorf("switches\n%s\nwant\n%s", g, w)
		}
	}}
}

// built asserts how many times a child was built.
func built(name string, want int) step {
	return step{"built " + name, func(s *stage) {
		s.t.Helper()
		got := 0
		for _, a := range slices.Concat(s.actors.Actors, s.other.Actors) {
			if a.Part != nil && a.Part.Name == name {
				got++
			}
		}
		if got != want {
			s.t.Errorf("%s was built %d times, want %d", name, got, want)
		}
	}}
}

func TestPriority(t *testing.T) {
	for _, tt := range scenarios {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				defer s.tree.Close()
				for _, step := range tt.steps {
					step.do(s)
					if t.Failed() {
						t.Fatalf("at %q", step.say)
					}
				}
			})
		})
	}
}

// TestDescribe: why each priority is or is not in use, in words, and when its
// timers end, counted from now.
func TestDescribe(t *testing.T) {
	tests := []struct {
		name  string
		steps []step
		want  []string
	}{
		{"just started", []step{config("a", "b"), after(time.Second)}, []string{
			"a in use: the highest priority; fails over in 9s; CONNECTING",
			"b: priority 0 is in use",
		}},
		{"READY", []step{config("a", "b"), says("a", ready)}, []string{
			"a in use: the highest priority; READY",
			"b: priority 0 is in use",
		}},
		{"failed over", []step{config("a", "b"), says("a", failure), says("b", ready)}, []string{
			"a: TRANSIENT_FAILURE: a: the actor failed; TRANSIENT_FAILURE",
			"b in use: every higher priority failed or timed out; READY",
		}},
		{"slow", []step{config("a", "b"), after(10 * time.Second), says("b", ready)}, []string{
			"a: still CONNECTING after 10s; CONNECTING",
			"b in use: every higher priority failed or timed out; READY",
		}},
		{"all failed", []step{config("a", "b"), says("a", failure), says("b", failure)}, []string{
			"a: TRANSIENT_FAILURE: a: the actor failed; TRANSIENT_FAILURE",
			"b in use: the last priority, and every higher one failed too; TRANSIENT_FAILURE",
		}},
		{"deactivated", []step{config("a", "b"), says("a", failure), says("b", ready), says("a", ready), after(time.Minute)}, []string{
			"a in use: the highest priority; READY",
			"b: priority 0 is in use; forgotten in 14m0s; READY",
		}},
		{"refused", []step{configOf("a is unknown", unknown)}, []string{
			`a: TRANSIENT_FAILURE: load balancing policy "unheard_of" is not registered; TRANSIENT_FAILURE`,
			"b in use: every higher priority failed or timed out; fails over in 10s; CONNECTING",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				defer s.tree.Close()
				for _, step := range tt.steps {
					step.do(s)
				}
				n := s.tree.Describe()
				if n.State != s.tree.State() || n.Policy != policy.Priority {
					t.Errorf("describes %s in %v, reported is %v", n.Policy, n.State, s.tree.State())
				}
				if (n.Err != nil) != (n.State == failure) {
					t.Errorf("in %v the error is %v", n.State, n.Err)
				}
				for i, p := range n.Priorities {
					if got := words(p); got != tt.want[i] {
						t.Errorf("got  %s\nwant %s", got, tt.want[i])
					}
				}
			})
		})
	}
}

func words(p policy.PriorityNode) string {
	var b strings.Builder
	b.WriteString(p.Name)
	if p.InUse {
		b.WriteString(" in use")
	}
	fmt.Fprintf(&b, ": %s", p.Why)
	if !p.FailoverAt.IsZero() {
		fmt.Fprintf(&b, "; fails over in %v", time.Until(p.FailoverAt))
	}
	if !p.ForgetAt.IsZero() {
		fmt.Fprintf(&b, "; forgotten in %v", time.Until(p.ForgetAt))
	}
	if p.Child.State != connectivity.Idle {
		fmt.Fprintf(&b, "; %v", p.Child.State)
	}
	return b.String()
}
