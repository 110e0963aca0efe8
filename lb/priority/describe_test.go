package priority_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

// TestDescribe: why each priority is or is not in use, in words, and when its
// timers end, counted from now.
func TestDescribe(t *testing.T) {
	tests := []struct {
		name  string
		steps []step
		want  []string
	}{
		{"just started", []step{config("a", "b"), after(time.Second)}, []string{
			"a in use: the highest priority; fails over in 9s; 1 endpoints, CONNECTING",
			"b: priority 0 is in use; 2 endpoints",
		}},
		{"READY", []step{config("a", "b"), says("a", ready)}, []string{
			"a in use: the highest priority; 1 endpoints, READY",
			"b: priority 0 is in use; 2 endpoints",
		}},
		{"failed over", []step{config("a", "b"), says("a", failure), says("b", ready)}, []string{
			"a: TRANSIENT_FAILURE: a: the actor failed; 1 endpoints, TRANSIENT_FAILURE",
			"b in use: every higher priority failed or timed out; 2 endpoints, READY",
		}},
		{"slow", []step{config("a", "b"), after(10 * time.Second), says("b", ready)}, []string{
			"a: still CONNECTING after 10s; 1 endpoints, CONNECTING",
			"b in use: every higher priority failed or timed out; 2 endpoints, READY",
		}},
		{"all failed", []step{config("a", "b"), says("a", failure), says("b", failure)}, []string{
			"a: TRANSIENT_FAILURE: a: the actor failed; 1 endpoints, TRANSIENT_FAILURE",
			"b in use: the last priority, and every higher one failed too; 2 endpoints, TRANSIENT_FAILURE",
		}},
		{"deactivated", []step{config("a", "b"), says("a", failure), says("b", ready), says("a", ready), after(time.Minute)}, []string{
			"a in use: the highest priority; 1 endpoints, READY",
			"b: priority 0 is in use; forgotten in 14m0s; 2 endpoints, READY",
		}},
		{"refused", []step{configOf("a is unknown", unknown)}, []string{
			`a: TRANSIENT_FAILURE: load balancing policy "unheard_of" is not registered; 0 endpoints, TRANSIENT_FAILURE`,
			"b in use: every higher priority failed or timed out; fails over in 10s; 0 endpoints, CONNECTING",
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
	fmt.Fprintf(&b, "; %d endpoints", p.Size)
	if p.Child.State != connectivity.Idle {
		fmt.Fprintf(&b, ", %v", p.Child.State)
	}
	return b.String()
}

// TestSummarize: the endpoints of a priority that is not built are IDLE.
func TestSummarize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		defer s.tree.Close()
		for _, step := range []step{config("a", "b"), says("a", ready)} {
			step.do(s)
		}
		got := s.tree.Summarize()
		if got.State != ready || got.Priority != 0 || len(got.Priorities) != 2 || got.Priorities[1].Idle != 2 {
			t.Errorf("got %+v", got)
		}
	})
}

// TestPassedOver: the trace names each higher priority and why it is passed over.
func TestPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		defer s.tree.Close()
		for _, step := range []step{config("a", "b", "c"), says("a", failure), after(10 * time.Second), says("c", ready)} {
			step.do(s)
		}
		call := &policy.Call{Trace: new(policy.Trace)}
		if _, err := s.tree.Pick(call); err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("%+v", call.Trace.Steps)
		want := "[{Priority:2 State:READY PassedOver:[" +
			"{Priority:0 State:TRANSIENT_FAILURE Why:TRANSIENT_FAILURE: a: the actor failed} " +
			"{Priority:1 State:CONNECTING Why:still CONNECTING after 10s}]}]"
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

func TestWrongConfig(t *testing.T) {
	s := newStage(t)
	if err := s.tree.Update(s.actors.Child("a")); err == nil || !strings.Contains(err.Error(), "priority_experimental: config is a *lbtest.Part") {
		t.Errorf("err: %v", err)
	}
}
