package policy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/test/lbtest"
)

const (
	idle       = connectivity.Idle
	connecting = connectivity.Connecting
	ready      = connectivity.Ready
	failure    = connectivity.TransientFailure
)

// switcher is a policy that is a Switch and nothing else.
type switcher struct{ *policy.Switch }

func (s switcher) Update(policy.Child) error { return nil }

type switcherBuilder struct{}

func (switcherBuilder) Name() string { return "switcher" }

func (switcherBuilder) Build(conn *policy.Conn) policy.Policy {
	return switcher{policy.NewSwitch(conn)}
}

// TestSwitch: the child of policy "old" is called old, that of policy "new" new,
// so that what is picked tells who serves.
func TestSwitch(t *testing.T) {
	var (
		olds, news *lbtest.Troupe
		tree       *lbtest.Tree
		sw         *policy.Switch
	)
	update := func(c policy.Child) func() { return func() { _ = sw.Update(c) } }
	toOld := func() { _ = sw.Update(olds.Child("old")) }
	toNew := func() { _ = sw.Update(news.Child("new")) }
	old := func(s connectivity.State) func() { return func() { olds.Actors[0].Says(s) } }
	fresh := func(s connectivity.State) func() { return func() { news.Actors[len(news.Actors)-1].Says(s) } }

	tests := []struct {
		name  string
		steps []func()
		want  string // what picks get; the policies that are alive
	}{
		{"one child", []func(){toOld, old(ready)}, "READY old; old"},
		{"the old one serves while the new one connects", []func(){toOld, old(ready), toNew, fresh(connecting)}, "READY old; old new"},
		{"a new picker of the old one goes up meanwhile", []func(){toOld, toNew, old(ready)}, "READY old; old new"},
		{"the new one is READY", []func(){toOld, old(ready), toNew, fresh(connecting), fresh(ready)}, "READY new; new"},
		{"the new one has failed", []func(){toOld, old(ready), toNew, fresh(failure)}, "TRANSIENT_FAILURE new: the actor failed; new"},
		{"the new one is IDLE", []func(){toOld, old(ready), toNew, fresh(idle)}, "IDLE queue; new"},
		{"the old one is not READY: nothing to wait for", []func(){toOld, old(connecting), toNew, fresh(connecting)}, "CONNECTING queue; new"},
		{"the old one is lost meanwhile", []func(){toOld, old(ready), toNew, fresh(connecting), old(connecting)}, "CONNECTING queue; new"},
		{"the states of the old one are ignored once it is replaced", []func(){toOld, old(ready), toNew, fresh(ready), old(failure)}, "READY new; new"},
		{
			"back to the old policy while the new one connects: a third child",
			[]func(){toOld, old(ready), toNew, func() { _ = sw.Update(olds.Child("third")) }, func() { olds.Actor("third").Says(ready) }},
			"READY third; third",
		},
		{
			"renewed: the same policy, another child",
			[]func(){toOld, old(ready), func() { _ = sw.Renew(olds.Child("renewed")) }},
			"READY old; old renewed",
		},
		{
			"renewed and READY",
			[]func(){toOld, old(ready), func() { _ = sw.Renew(olds.Child("renewed")) }, func() { olds.Actor("renewed").Says(ready) }},
			"READY renewed; renewed",
		},
		{
			"an unknown policy is the child's failure",
			[]func(){toOld, old(ready), update(policy.Child{Policy: "unheard_of"})},
			`TRANSIENT_FAILURE load balancing policy "unheard_of" is not registered; old`,
		},
		{
			"unknown at first, then known",
			[]func(){update(policy.Child{Policy: "unheard_of"}), toOld, old(ready)},
			"READY old; old",
		},
		{
			"a refused part is the child's failure, whatever the child says",
			[]func(){toOld, old(ready), func() { _ = sw.Update(olds.Refusing("old", errRefused)) }, old(ready)},
			"TRANSIENT_FAILURE refused; old",
		},
		{
			"the next part is accepted: the last state of the child counts again",
			[]func(){toOld, old(ready), func() { _ = sw.Update(olds.Refusing("old", errRefused)) }, toOld},
			"READY old; old",
		},
		{"closed", []func(){toOld, old(ready), toNew, func() { sw.Close() }, old(failure), fresh(ready)}, "READY old; "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			olds, news = &lbtest.Troupe{PolicyName: "old"}, &lbtest.Troupe{PolicyName: "new"}
			tree = lbtest.NewTree(t, switcherBuilder{}, olds, news)
			sw = lbtest.As[switcher](t, tree.Root()).Switch
			for _, step := range tt.steps {
				tree.Batch(step)
			}
			got := fmt.Sprintf("%v %s; %s", tree.State(), answer(tree), alive(olds, news))
			if got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

var errRefused = errors.New("refused")

// answer is what a pick gets, in a word.
func answer(tree *lbtest.Tree) string {
	var call policy.Call
	_, err := tree.Pick(&call)
	switch {
	case errors.Is(err, balancer.ErrNoSubConnAvailable):
		return "queue"
	case err != nil:
		return err.Error()
	default:
		return call.Endpoint.Addresses[0]
	}
}

func alive(troupes ...*lbtest.Troupe) string {
	var names []string
	for _, troupe := range troupes {
		for _, a := range troupe.Actors {
			if !a.Closed {
				names = append(names, a.Part.Name)
			}
		}
	}
	return strings.Join(names, " ")
}

func TestSwitchErrors(t *testing.T) {
	troupe := &lbtest.Troupe{PolicyName: "only"}
	tree := lbtest.NewTree(t, switcherBuilder{}, troupe)
	sw := lbtest.As[switcher](t, tree.Root()).Switch
	tree.Batch(func() {
		if n := sw.Describe(); n.State != connecting {
			t.Errorf("without child: %+v", n)
		}
		if s := sw.Summarize(); s.State != connecting || s.Priority != -1 {
			t.Errorf("without child: %+v", s)
		}
	})
	tree.Batch(func() {
		if err := sw.Update(troupe.Refusing("a", errRefused)); !errors.Is(err, errRefused) {
			t.Errorf("Update: %v, want %v", err, errRefused)
		}
		if n := sw.Describe(); n.State != failure || !errors.Is(n.Err, errRefused) {
			t.Errorf("refused: %+v", n)
		}
		if s := sw.Summarize(); s.State != failure {
			t.Errorf("refused: %+v", s)
		}
	})
}
