package lb_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	_ "google.golang.org/grpc/balancer/leastrequest" // grpc's, which lbd runs as a foreign policy here
	"google.golang.org/grpc/balancer/pickfirst"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// named is a policy of grpc's under a name that lbd has none of.
type named struct {
	balancer.Builder

	name string
}

func (n named) Name() string { return n.name }

// parsing is one that takes a config.
type parsing struct {
	named
	balancer.ConfigParser
}

var registered atomic.Int64

// foreignName registers grpc's policy under a name of its own.
func foreignName(t *testing.T, grpcs string) string {
	t.Helper()
	b := balancer.Get(grpcs)
	n := named{b, fmt.Sprintf("foreign_%s_%d", grpcs, registered.Add(1))}
	if parser, ok := b.(balancer.ConfigParser); ok {
		balancer.Register(parsing{n, parser})
	} else {
		balancer.Register(n)
	}
	return n.name
}

func foreignConfig(name, json string, ls ...*resource.LocalityEndpoints) *resource.Config {
	c := config(nil, 100, ls...)
	cc := *c.Clusters.Get(cluster).Cluster
	cc.Policy = resource.Policy{Name: resource.PolicyWRRLocality, Child: &resource.Policy{Name: resource.PolicyName(name), Config: json}}
	c.Clusters.Get(cluster).Cluster = &cc
	return c
}

// TestForeignPolicies runs grpc's own policies, which keep grpc's contract and no
// more: they call from other goroutines and know no Call.
func TestForeignPolicies(t *testing.T) {
	for _, c := range []struct {
		policy, config string
		all            bool // picks reach every endpoint
	}{
		{"least_request_experimental", `{"choiceCount":2}`, true},
		{pickfirst.Name, `{}`, false},
	} {
		t.Run(c.policy, func(t *testing.T) {
			name := foreignName(t, c.policy)
			synctest.Test(t, func(t *testing.T) {
				board := newSwitchboard()
				ch := newChannel(t, board)
				board.set(true, "a-0:80", "a-1:80", "a-2:80")
				offer(t, ch, foreignConfig(name, c.config, locality("a", 0, 1, 3)))
				synctest.Wait()
				got := addressesOf(ch, 200)
				if want := "a-0:80 a-1:80 a-2:80"; c.all && got != want || !c.all && got != "a-0:80" {
					t.Errorf("picks reach %q", got)
				}

				// What is held is given back to the policy too, and the
				// decision is one step.
				call := newCall()
				call.Hold, call.Trace = true, new(policy.Trace)
				noError(t, ch.Pick(call, 0))
				if last := call.Trace.Steps[len(call.Trace.Steps)-1]; last != (policy.OpaqueStep{Policy: name}) {
					t.Errorf("the last step is %#v", last)
				}
				call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)

				// It is asked again for another endpoint, and not for ever.
				call = newCall()
				call.Exclude = []string{"a-0:80", "a-1:80", "a-2:80"}
				err := ch.Pick(call, 0)
				if r, ok := errors.AsType[*policy.Refusal](err); !ok || r.Kind != policy.KindAllExcluded {
					t.Errorf("all excluded: %v", err)
				}

				board.set(false, "a-0:80")
				// The first back-off is over then, whatever its jitter, and the
				// second is not.
				time.Sleep(1500 * time.Millisecond)
				synctest.Wait()
				// pick_first stays IDLE until somebody picks.
				if err := ch.Pick(newCall(), time.Minute); err != nil {
					t.Error(err)
				}
				got = addressesOf(ch, 200)
				if strings.Contains(got, "a-0:80") || strings.Contains(got, "!") {
					t.Errorf("after the loss picks reach %q", got)
				}
				n, err := ch.Describe(t.Context())
				if err != nil || len(find(n).Endpoints) == 0 {
					t.Errorf("described as %+v, %v", find(n), err)
				}
			})
		})
	}
}

// find returns the description of the first endpoint policy.
func find(n policy.Node) policy.Node {
	for {
		switch {
		case n.Clusters != nil:
			n = n.Clusters[cluster]
		case n.Priorities != nil:
			n = n.Priorities[0].Child
		case n.Localities != nil:
			n = n.Localities[0].Child
		case n.Child != nil:
			n = *n.Child
		default:
			return n
		}
	}
}

func TestForeignPolicyThatCannotBe(t *testing.T) {
	good := foreignName(t, "least_request_experimental")
	for name, c := range map[string]struct{ policy, config, says string }{
		"unknown":    {"unknown_policy", "{}", `load balancing policy "unknown_policy" is not registered`},
		"bad config": {good, `{"choiceCount":1}`, "choiceCount"},
		"no JSON":    {good, `{`, "config of policy " + good},
	} {
		t.Run(name, func(t *testing.T) {
			ch := newChannel(t, nil)
			cfg := foreignConfig(c.policy, c.config, locality("a", 0, 1, 1))
			other := resource.DefaultCluster("other")
			cfg.Roots = append(cfg.Roots, "other")
			cfg.Clusters.Set("other", &resource.ClusterConfig{
				Cluster:    other,
				Assignment: &resource.Assignment{Localities: []*resource.LocalityEndpoints{locality("o", 0, 1, 1)}},
			})
			offer(t, ch, cfg)
			err := ch.Pick(newCall(), 0)
			if _, ok := errors.AsType[*lb.NotReadyError](err); !ok || !strings.Contains(err.Error(), c.says) {
				t.Errorf("picked: %v", err)
			}
			call := newCall()
			call.Cluster = "other"
			if err := ch.Pick(call, 0); err != nil {
				t.Errorf("the other cluster: %v", err)
			}
		})
	}
}
