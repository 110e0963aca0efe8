package clusterimpl_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/clusterimpl"
	"github.com/lbd-dev/lbd/lb/lbtest"
	"github.com/lbd-dev/lbd/lb/policy"
)

// TestBeforeConfig: a policy that has no config yet describes itself, and
// refuses a config that is not its own.
func TestBeforeConfig(t *testing.T) {
	tree := lbtest.NewTree(t, clusterimpl.Builder())
	if n := tree.Describe(); n.Policy != policy.ClusterImpl || n.State != connecting || n.Breaker != nil {
		t.Errorf("describes %+v", n)
	}
	if s := tree.Summarize(); s.State != connecting || s.Priority != -1 {
		t.Errorf("summary %+v", s)
	}
	if err := tree.Update(policy.Child{Config: &policy.PriorityConfig{}}); err == nil {
		t.Error("took another policy's config")
	}
	tree.Batch(func() {
		tree.Root().ExitIdle()
		tree.Root().ResolverError(errors.New("x"))
		tree.Root().UpdateSubConnState(nil, balancer.SubConnState{})
	})
	if len(tree.Reports) != 0 {
		t.Errorf("reported %v", tree.Reports)
	}
}

// TestChildRefusal: what the child refuses is the cluster's failure, until it
// takes another.
func TestChildRefusal(t *testing.T) {
	actors := &lbtest.Troupe{PolicyName: "actor"}
	tree := lbtest.NewTree(t, clusterimpl.Builder(), actors)
	child := func(c policy.Child) policy.Child {
		return config(func(cfg *policy.ClusterImplConfig) { cfg.Child = c })
	}
	tree.Config(child(actors.Child("x")))
	tree.Batch(func() { actors.Actor("x").Says(ready) })
	errBad := errors.New("bad config")
	tree.Config(child(actors.Refusing("x", errBad)))
	if _, err := tree.Pick(nil); tree.State() != failure || !errors.Is(err, errBad) {
		t.Errorf("%v, %v; want TRANSIENT_FAILURE, %v", tree.State(), err, errBad)
	}
	if n := tree.Describe(); n.State != failure || !errors.Is(n.Err, errBad) {
		t.Errorf("describes %+v", n)
	}
	tree.Config(child(actors.Child("x")))
	if _, err := tree.Pick(nil); tree.State() != ready || err != nil {
		t.Errorf("%v, %v; want READY", tree.State(), err)
	}
}
