package lbtest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Stage is a Tree of one endpoint policy, whose endpoints are named by their
// addresses: "a+b" is an endpoint with two. "a'" is another value of endpoint "a".
type Stage struct {
	*Tree

	BalancerConfig serviceconfig.LoadBalancingConfig
	// Endpoints are those of all configs by name. A name that is new has weight 1.
	Endpoints map[string]*resource.Endpoint
	// Next is what Draw returns. It may be replaced while pickers use it.
	Next func() uint64
	// Held is what picks of the test hold, by endpoint.
	Held map[string][]policy.Held

	name string
}

// Step is one step of a test. It fails the test if an expectation is not met.
type Step func(s *Stage)

// NewStage builds the policy and runs the steps.
func NewStage(tb testing.TB, builder policy.Factory, config serviceconfig.LoadBalancingConfig, steps ...Step) *Stage {
	tb.Helper()
	s := &Stage{
		Tree: NewTree(tb, builder), BalancerConfig: config, Endpoints: make(map[string]*resource.Endpoint),
		Next: Draws(0), Held: make(map[string][]policy.Held), name: builder.Name(),
	}
	s.Draw = func() uint64 { return s.Next() }
	for _, step := range steps {
		step(s)
	}
	return s
}

// Endpoints applies the config with the endpoints of these names.
func Endpoints(names ...string) Step {
	return func(s *Stage) {
		s.TB.Helper()
		child := policy.Child{Config: s.BalancerConfig}
		for _, n := range names {
			if s.Endpoints[n] == nil {
				s.Endpoints[n] = &resource.Endpoint{Addresses: strings.Split(strings.TrimRight(n, "'"), "+"), Weight: 1}
			}
			child.Endpoints = append(child.Endpoints, s.Endpoints[n])
		}
		s.Config(child)
	}
}

// Says changes the state of a connection, once in a batch.
func Says(address string, states ...connectivity.State) Step {
	return func(s *Stage) {
		for _, state := range states {
			Together(state, address)(s)
		}
	}
}

// Together changes the state of several connections in one batch.
func Together(state connectivity.State, addresses ...string) Step {
	return func(s *Stage) {
		s.TB.Helper()
		s.Batch(func() {
			for _, a := range addresses {
				var err error
				if state == connectivity.TransientFailure {
					err = fmt.Errorf("%s refused", a)
				}
				s.SubConn(a).Says(state, err)
			}
		})
	}
}

// Reports is [Tree.ExpectReports].
func Reports(want int) Step { return func(s *Stage) { s.ExpectReports(want) } }

// Connected expects the addresses that were asked to connect, in order.
func Connected(want string) Step {
	return func(s *Stage) {
		s.TB.Helper()
		if got := strings.Join(s.Tree.Connected, " "); got != want {
			s.TB.Errorf("asked %q to connect, want %q", got, want)
		}
	}
}

// Picked picks and returns the endpoint, "queue", or the error.
func (s *Stage) Picked(call *policy.Call) string {
	s.TB.Helper()
	res, err := s.Pick(call)
	s.Batch(func() {}) // what the pick posted has happened
	if errors.Is(err, balancer.ErrNoSubConnAvailable) {
		return "queue"
	}
	if err != nil {
		return err.Error()
	}
	sc := Picked(s.TB, res)
	if at := sc.Addresses[0].Addr; sc.Closed || !slices.Contains(call.Endpoint.Addresses, at) {
		s.TB.Errorf("the endpoint is %v, the SubConn is to %s", call.Endpoint.Addresses, at)
	}
	return strings.Join(call.Endpoint.Addresses, "+")
}

// Check compares what the policy describes and counts with its connections and its
// last report.
func (s *Stage) Check() {
	s.TB.Helper()
	n := s.Describe()
	if n.State != s.State() || n.Policy != s.name || (n.Err != nil) != (n.State == connectivity.TransientFailure) {
		s.TB.Errorf("describes %s in %v with error %v, reported is %v", n.Policy, n.State, n.Err, s.State())
	}
	if err := policy.FailureOf(s.Tree.Reports[len(s.Tree.Reports)-1]); !errors.Is(err, n.Err) {
		s.TB.Errorf("the picker's failure is %v, want %v", err, n.Err)
	}
	states := make(map[string]connectivity.State)
	for _, sc := range s.Tree.SubConns {
		if !sc.Closed {
			states[sc.Addresses[0].Addr] = sc.State
		}
	}
	var want policy.Census
	shares, known := 0.0, 0
	for _, e := range n.Endpoints {
		var c policy.Census
		connected := ""
		for _, a := range e.Endpoint.Addresses {
			if state, ok := states[a]; ok {
				known++
				c.Count(state, 1)
				if state == connectivity.Ready {
					connected = a
				}
			}
		}
		state := connectivity.Idle
		if c.Total() > 0 {
			state = c.Best()
		}
		if e.State != state || e.Address != connected ||
			state == connectivity.Ready && e.LastErr != nil || state == connectivity.TransientFailure && e.LastErr == nil {
			s.TB.Errorf("describes %+v, want %v", e, state)
		}
		want.Count(state, 1)
		shares += e.Share
	}
	if !n.Shares || n.State == connectivity.Ready && math.Abs(shares-1) > 1e-9 {
		s.TB.Errorf("the shares are %v in all: %+v", shares, n)
	}
	if known < len(states) {
		s.TB.Errorf("%d of %d connections are to other endpoints", len(states)-known, len(states))
	}
	if got := s.Summarize(); got.Census != want || got.State != s.State() {
		s.TB.Errorf("summary %+v, want %+v", got, want)
	}
}

// Weighted returns two endpoints of different weights in each of two localities of
// different weights, and the share of requests that each should get.
func Weighted() (c policy.Child, shares map[string]float64) {
	for zone, weight := range map[string]uint32{"light": 1, "heavy": 3} {
		id := resource.Locality{Zone: zone}
		l := &resource.LocalityEndpoints{ID: id, Weight: weight}
		for i, w := range []uint32{1, 4} {
			l.Endpoints = append(l.Endpoints, &resource.Endpoint{Addresses: []string{fmt.Sprint(zone, i)}, Weight: w, Locality: id})
		}
		own := policy.NewLocality(l).Among(4)
		c.Localities = append(c.Localities, own)
		c.Endpoints = append(c.Endpoints, own.Endpoints...)
	}
	return c, map[string]float64{"light0": 0.05, "light1": 0.2, "heavy0": 0.15, "heavy1": 0.6}
}
