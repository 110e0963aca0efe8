package lb_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/balancer/roundrobin"
	"google.golang.org/grpc/balancer/weightedroundrobin"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// anyPicker picks any SubConn that is READY.
type anyPicker struct{ sc balancer.SubConn }

func (anyPicker) Build(info base.PickerBuildInfo) balancer.Picker {
	for sc := range info.ReadySCs {
		return anyPicker{sc}
	}
	return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
}

func (p anyPicker) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{SubConn: p.sc}, nil
}

// TestForeignPicksSeeThePush: once a config is answered no pick is of the one
// before. What is connected to by then is READY to picks.
func TestForeignPicksSeeThePush(t *testing.T) {
	const based = "test_based_on_base"
	balancer.Register(base.NewBalancerBuilder(based, anyPicker{}, base.Config{}))
	for _, grpcs := range []string{based, roundrobin.Name, pickfirst.Name, weightedroundrobin.Name, "least_request_experimental"} {
		name := foreignName(t, grpcs)
		t.Run(grpcs, func(t *testing.T) {
			ch := newChannel(t, nil)
			for i := range 500 {
				l := locality("a", 0, 1, 2)
				l.Endpoints = l.Endpoints[i%2 : i%2+1]
				offer(t, ch, foreignConfig(name, `{}`, l))
				call := newCall()
				if err := ch.Pick(call, 0); err != nil || call.Address != l.Endpoints[0].Addresses[0] {
					t.Fatalf("after push %d: picked %q, %v", i, call.Address, err)
				}
			}
		})
	}
}

// TestForeignPolicyWithProducers runs a policy that asks its endpoints for reports,
// which no endpoint answers.
func TestForeignPolicyWithProducers(t *testing.T) {
	name := foreignName(t, weightedroundrobin.Name)
	synctest.Test(t, func(t *testing.T) {
		board := newSwitchboard()
		ch := newChannel(t, board)
		defer ch.Close()
		board.set(true, "a-0:80", "a-1:80")
		offer(t, ch, foreignConfig(name, `{"enableOobLoadReport":true}`, locality("a", 0, 1, 2)))
		synctest.Wait()
		if got := addressesOf(ch, 20); got != "a-0:80 a-1:80" {
			t.Errorf("picks reach %q", got)
		}
		board.lose("a-0:80")
		synctest.Wait()
		if got := addressesOf(ch, 20); got != "a-1:80" {
			t.Errorf("after the loss picks reach %q", got)
		}
		board.set(true, "a-0:80")
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := addressesOf(ch, 20); got != "a-0:80 a-1:80" {
			t.Errorf("once it is back picks reach %q", got)
		}
	})
}

// TestWhyForeignPolicyFailed: the state says what picks are answered with.
func TestWhyForeignPolicyFailed(t *testing.T) {
	for _, grpcs := range []string{"least_request_experimental", pickfirst.Name} {
		t.Run(grpcs, func(t *testing.T) {
			name := foreignName(t, grpcs)
			synctest.Test(t, func(t *testing.T) {
				board := newSwitchboard()
				ch := newChannel(t, board)
				defer ch.Close()
				board.set(false, "a-0:80", "a-1:80")
				board.set(true, "b-0:80")
				failed := foreignConfig(name, `{}`, locality("a", 0, 1, 2))
				offer(t, ch, failed)
				synctest.Wait()
				n, err := ch.Describe(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for who, err := range map[string]error{
					"the policy": find(n).Err, "its cluster": n.Clusters[cluster].Err, "a pick": ch.Pick(newCall(), 0),
				} {
					// grpc's own policies say in turn why each endpoint failed, and
					// do not all wrap it.
					if err == nil || !strings.Contains(err.Error(), errRefused.Error()) {
						t.Errorf("%s says %v", who, err)
					}
				}
				offer(t, ch, foreignConfig(name, `{}`, locality("a", 0, 1, 2), locality("b", 1, 1, 1)))
				synctest.Wait()
				n, err = ch.Describe(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				why := priorities(n)[0].Why
				if !strings.Contains(why, errRefused.Error()) {
					t.Errorf("priority 0: %s", why)
				}
			})
		})
	}
}

// priorities are those of the cluster.
func priorities(n policy.Node) []policy.PriorityNode {
	n = n.Clusters[cluster]
	for n.Priorities == nil {
		n = *n.Child
	}
	return n.Priorities
}

// TestForeignEndpointsAreCountedOnce: grpc's pick_first tries each address of an
// endpoint by itself.
func TestForeignEndpointsAreCountedOnce(t *testing.T) {
	for _, grpcs := range []string{pickfirst.Name, roundrobin.Name, "least_request_experimental"} {
		t.Run(grpcs, func(t *testing.T) {
			name := foreignName(t, grpcs)
			synctest.Test(t, func(t *testing.T) {
				board := newSwitchboard()
				ch := newChannel(t, board)
				defer ch.Close()
				l := locality("a", 0, 1, 1)
				l.Endpoints = []*resource.Endpoint{{Addresses: []string{"a-0:80", "a-1:80"}, Weight: 1, Locality: l.ID}}
				board.set(false, "a-0:80")
				board.set(true, "a-1:80")
				offer(t, ch, foreignConfig(name, `{}`, l))
				synctest.Wait()
				time.Sleep(500 * time.Millisecond) // the next address has its turn
				synctest.Wait()
				if got := ch.ClusterSummary(cluster).Priorities; len(got) != 1 || got[0] != (policy.Census{Ready: 1}) {
					t.Errorf("counted %+v", got)
				}
				n, err := ch.Describe(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if e := find(n).Endpoints; len(e) != 1 || e[0].Address != "a-1:80" || e[0].Endpoint != l.Endpoints[0] {
					t.Errorf("described as %+v", e)
				}
			})
		})
	}
}
