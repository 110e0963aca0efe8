package outlierdetection_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/clusterimpl"
	"github.com/lbd-dev/lbd/lb/outlierdetection"
	"github.com/lbd-dev/lbd/lb/pickfirst"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/priority"
	"github.com/lbd-dev/lbd/lb/roundrobin"
	"github.com/lbd-dev/lbd/lb/weightedtarget"
	"github.com/lbd-dev/lbd/test/lbtest"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	idle       = connectivity.Idle
	connecting = connectivity.Connecting
	ready      = connectivity.Ready
	failure    = connectivity.TransientFailure
)

// renamed is round_robin under another name.
type renamed struct {
	policy.Builder
	name string
}

func (r renamed) Name() string { return r.name }

// keeping declares what pick_first does.
type keeping struct{ renamed }

func (keeping) Traits() *resource.PolicyTraits { return pickfirst.Builder().Traits() }

// stage is an outlier_detection over a cluster_impl over round_robin, in a
// bubble. Endpoints are named by their addresses, several joined with "+". What
// happens is recorded with the seconds since the beginning.
type stage struct {
	t     *testing.T
	tree  *lbtest.Tree
	start time.Time
	cfg   resource.OutlierDetection
	// leaf is the endpoints' policy; names are the endpoints, those of another
	// priority behind a "|".
	leaf   string
	names  string
	values map[string]*resource.Endpoint
	held   map[string][]policy.Held
}

type step func(s *stage)

// play runs steps on a stage in a bubble.
func play(t *testing.T, steps ...step) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{
			t: t, start: time.Now(), leaf: roundrobin.Name,
			values: make(map[string]*resource.Endpoint), held: make(map[string][]policy.Held),
			tree: lbtest.NewTree(t, outlierdetection.Builder(), clusterimpl.Builder(), priority.Builder(),
				weightedtarget.Builder(), roundrobin.Builder(), keeping{renamed{roundrobin.Builder(), pickfirst.Name}}, renamed{roundrobin.Builder(), "other"}),
			cfg: resource.OutlierDetection{
				Interval: 10 * time.Second, BaseEjectionTime: 30 * time.Second, MaxEjectionTime: 300 * time.Second,
				MaxEjectionPercent: 100,
			},
		}
		defer s.tree.Close()
		for _, step := range steps {
			step(s)
		}
	})
}

func (s *stage) apply() {
	s.t.Helper()
	leaf := func(names string) policy.Child {
		c := policy.Child{Policy: s.leaf}
		for n := range strings.FieldsSeq(names) {
			if s.values[n] == nil {
				s.values[n] = &resource.Endpoint{Addresses: strings.Split(n, "+"), Weight: 1}
			}
			c.Endpoints = append(c.Endpoints, s.values[n])
		}
		return c
	}
	var child policy.Child
	var p policy.PriorityConfig
	var used [][]*policy.Locality
	for i, names := range strings.Split(s.names, "|") {
		child = leaf(names)
		l := &policy.Locality{Weight: 1, Endpoints: child.Endpoints}
		used = append(used, []*policy.Locality{l})
		c := policy.Child{Policy: policy.WeightedTarget, Config: &policy.WeightedTargetConfig{Targets: []policy.Target{{Locality: l, Child: child}}}}
		p.Children = append(p.Children, policy.PriorityChild{Name: fmt.Sprint(i), Child: c, Size: len(l.Endpoints)})
	}
	if len(used) > 1 {
		child = policy.Child{Policy: policy.Priority, Config: &p}
	}
	cfg := s.cfg // the policy keeps it
	s.tree.Config(policy.Child{Config: &policy.OutlierDetectionConfig{
		OutlierDetection: &cfg, Cluster: "orders", EndpointPolicy: s.leaf, Priorities: used,
		Child: policy.Child{Policy: policy.ClusterImpl, Config: &policy.ClusterImplConfig{
			Service: resource.ServiceKey{Cluster: "orders"}, MaxRequests: 1 << 20, Child: child,
		}},
	}})
}

// detect is a config. It is applied with the next endpoints, or at once where
// there are some.
func detect(change ...func(*resource.OutlierDetection)) step {
	return func(s *stage) {
		s.t.Helper()
		for _, f := range change {
			f(&s.cfg)
		}
		if s.names != "" {
			s.apply()
		}
	}
}

// percentage is failure-percentage ejection above 50 %, from hosts endpoints
// with volume requests on.
func percentage(hosts, volume uint32) func(*resource.OutlierDetection) {
	return func(c *resource.OutlierDetection) {
		c.FailurePercentage = &resource.FailurePercentageEjection{
			Threshold: 50, EnforcementPercentage: 100, MinimumHosts: hosts, RequestVolume: volume,
		}
	}
}

// rate is success-rate ejection below factor / 1000 standard deviations.
func rate(factor, hosts, volume uint32) func(*resource.OutlierDetection) {
	return func(c *resource.OutlierDetection) {
		c.SuccessRate = &resource.SuccessRateEjection{
			StdevFactor: factor, EnforcementPercentage: 100, MinimumHosts: hosts, RequestVolume: volume,
		}
	}
}

// endpoints gives the endpoints, and connects the new ones.
func endpoints(names string) step {
	return func(s *stage) {
		s.t.Helper()
		s.names = names
		s.apply()
		connectNew(s)
	}
}

// connectNew lets the SubConns that wait for it connect.
func connectNew(s *stage) {
	s.tree.Batch(func() {
		for _, sc := range s.tree.SubConns {
			if !sc.Closed && sc.State == idle {
				sc.Says(connecting, nil)
				sc.Says(ready, nil)
			}
		}
	})
}

// says lets a connection be in a state.
func says(address string, states ...connectivity.State) step {
	return func(s *stage) {
		s.t.Helper()
		for _, state := range states {
			var err error
			if state == failure {
				err = fmt.Errorf("%s refused", address)
			}
			sc := s.tree.SubConn(address)
			s.tree.Batch(func() { sc.Says(state, err) })
		}
	}
}

// pick picks an endpoint by name, held.
func (s *stage) pick(name string) policy.Held {
	s.t.Helper()
	return s.pickFor(name, &policy.Call{Hold: true})
}

func (s *stage) pickFor(name string, call *policy.Call) policy.Held {
	s.t.Helper()
	for n := range strings.FieldsSeq(strings.ReplaceAll(s.names, "|", " ")) {
		if n != name {
			call.Exclude = append(call.Exclude, strings.Split(n, "+")...)
		}
	}
	if _, err := s.tree.Pick(call); err != nil {
		s.t.Fatalf("pick %s: %v", name, err)
	}
	return call.Held()
}

// ends lets requests to an endpoint end: so many well, so many not.
func ends(name string, successes, failures int) step {
	return func(s *stage) {
		s.t.Helper()
		for range successes {
			s.pick(name).Finish(policy.OutcomeSuccess, policy.NoInfo)
		}
		for range failures {
			s.pick(name).Finish(policy.OutcomeError, policy.NoInfo)
		}
	}
}

// all lets n requests to each of the endpoints end well.
func all(names string, n int) step {
	return func(s *stage) {
		s.t.Helper()
		for name := range strings.FieldsSeq(names) {
			ends(name, n, 0)(s)
		}
	}
}

// holds picks an endpoint n times, for later.
func holds(name string, n int) step {
	return func(s *stage) {
		s.t.Helper()
		for range n {
			s.held[name] = append(s.held[name], s.pick(name))
		}
	}
}

// gives lets the first n held requests end, all with one outcome.
func gives(name string, n int, outcome policy.Outcome) step {
	return func(s *stage) {
		for _, h := range s.held[name][:n] {
			h.Finish(outcome, policy.NoInfo)
		}
		s.held[name] = s.held[name][n:]
	}
}

// unheld lets n requests to an endpoint fail that were not held.
func unheld(name string, n int) step {
	return func(s *stage) {
		s.t.Helper()
		for range n {
			s.pickFor(name, &policy.Call{}).Finish(policy.OutcomeError, policy.NoInfo)
		}
	}
}

func after(d time.Duration) step { return func(s *stage) { s.tree.Sleep(d) } }

// draws sets what chance gives from now on.
func draws(values ...uint64) step {
	return func(s *stage) { s.tree.Draw = lbtest.Draws(values...) }
}

// happened asserts the ejections and their ends since it was asked last.
func happened(want ...string) step {
	return func(s *stage) {
		s.t.Helper()
		var got []string
		for _, e := range s.tree.TakeEvents() {
			switch e := e.(type) {
			case policy.Ejected:
				if e.Cluster != "orders" || e.Reason == "" {
					s.t.Errorf("event %+v", e)
				}
				got = append(got, fmt.Sprintf("%s until %v", e.Address, e.Until.Sub(s.start)))
			case policy.Unejected:
				if e.Cluster != "orders" {
					s.t.Errorf("event %+v", e)
				}
				got = append(got, e.Address+" back")
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			s.t.Errorf("after %v: %q, want %q", time.Since(s.start), got, want)
		}
	}
}

// reaches asserts which endpoints picks reach, in the config's order.
func reaches(want string) step {
	return func(s *stage) {
		s.t.Helper()
		reached := make(map[string]bool)
		for range 4 * len(strings.Fields(s.names)) {
			call := &policy.Call{}
			_, err := s.tree.Pick(call)
			if err != nil {
				if got := err.Error(); got != want {
					s.t.Errorf("after %v: picks fail with %q, want %q", time.Since(s.start), got, want)
				}
				return
			}
			reached[strings.Join(call.Endpoint.Addresses, "+")] = true
		}
		var got []string
		for n := range strings.FieldsSeq(strings.ReplaceAll(s.names, "|", " ")) {
			if reached[n] {
				got = append(got, n)
			}
		}
		if strings.Join(got, " ") != want {
			s.t.Errorf("after %v: picks reach %q, want %q", time.Since(s.start), got, want)
		}
	}
}

// counts asserts the census, by priority where there are some: READY,
// CONNECTING, IDLE, TRANSIENT_FAILURE, ejected.
func counts(want ...policy.Census) step {
	return func(s *stage) {
		s.t.Helper()
		sum := s.tree.Summarize()
		got := sum.Priorities
		if len(got) == 0 {
			got = []policy.Census{sum.Census}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			s.t.Errorf("after %v: census %+v, want %+v", time.Since(s.start), got, want)
		}
	}
}

// describes asserts what the state dump says of an endpoint.
func describes(name string, state connectivity.State, lastErr string) step {
	return func(s *stage) {
		s.t.Helper()
		n := s.tree.Describe()
		if n.Policy != policy.OutlierDetection || n.State != s.tree.State() {
			s.t.Errorf("describes %s in %v, reported is %v", n.Policy, n.State, s.tree.State())
		}
		for n.Endpoints == nil && n.Child != nil {
			n = *n.Child
		}
		for _, e := range n.Endpoints {
			if strings.Join(e.Endpoint.Addresses, "+") != name {
				continue
			}
			got := ""
			if e.LastErr != nil {
				got = e.LastErr.Error()
			}
			if e.State != state || got != lastErr || (e.Address != "") != (state == ready) {
				s.t.Errorf("after %v: %s is %v at %q, %q; want %v, %q", time.Since(s.start), name, e.State, e.Address, got, state, lastErr)
			}
			return
		}
		s.t.Errorf("%s is not described", name)
	}
}

// untilOf asserts when an ejection ends.
func untilOf(name string, want time.Duration) step {
	return func(s *stage) {
		s.t.Helper()
		n := s.tree.Describe()
		for n.Endpoints == nil && n.Child != nil {
			n = *n.Child
		}
		for _, e := range n.Endpoints {
			if e.Endpoint.Addresses[0] != name {
				continue
			}
			if got := lbtest.As[*policy.EjectedError](s.t, e.LastErr).Until.Sub(s.start); got != want {
				s.t.Errorf("after %v: %s is ejected until %v, want %v", time.Since(s.start), name, got, want)
			}
		}
	}
}

func connects(address string, want int) step {
	return func(s *stage) {
		s.t.Helper()
		if got := s.tree.SubConn(address).Connects; got != want {
			s.t.Errorf("%s was asked %d times to connect, want %d", address, got, want)
		}
	}
}
