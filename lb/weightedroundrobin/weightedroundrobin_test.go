package weightedroundrobin_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/weightedroundrobin"
	"github.com/lbd-dev/lbd/test/lbtest"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	idle       = connectivity.Idle
	connecting = connectivity.Connecting
	ready      = connectivity.Ready
	failure    = connectivity.TransientFailure

	second = time.Second
)

type (
	stage = lbtest.Stage
	step  = lbtest.Step
)

var (
	says    = lbtest.Says
	reports = lbtest.Reports
)

// play runs steps on a stage in a bubble, whose config is the default.
func play(t *testing.T, steps ...step) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := lbtest.NewStage(t, weightedroundrobin.Builder(), weightedroundrobin.Config{
			BlackoutPeriod: 10 * second, WeightExpirationPeriod: 180 * second, WeightUpdatePeriod: second, ErrorUtilizationPenalty: 1,
		}, steps...)
		s.Check()
		s.Close()
	})
}

// config gives the endpoints: "a:3 b". A number is the EDS weight. One that was given
// before with the same weight is the same value.
func config(names string, change ...func(*weightedroundrobin.Config)) step {
	return func(s *stage) {
		c, _ := s.BalancerConfig.(weightedroundrobin.Config)
		for _, f := range change {
			f(&c)
		}
		s.BalancerConfig = c
		for n := range strings.FieldsSeq(names) {
			if address, weight, weighted := strings.Cut(n, ":"); weighted && s.Endpoints[n] == nil {
				e := &resource.Endpoint{Addresses: []string{address}}
				_, _ = fmt.Sscan(weight, &e.Weight)
				s.Endpoints[n] = e
			}
		}
		lbtest.Endpoints(strings.Fields(names)...)(s)
	}
}

// up gives the endpoints, and lets all of them be READY.
func up(names string, change ...func(*weightedroundrobin.Config)) step {
	return func(s *stage) {
		config(names, change...)(s)
		s.Batch(func() {
			for _, sc := range s.SubConns {
				if !sc.Closed && sc.State != ready {
					sc.Says(ready, nil)
				}
			}
		})
	}
}

// pick picks an endpoint by its address.
func pick(s *stage, address string, hold bool) policy.Held {
	call := &policy.Call{Hold: hold}
	for _, e := range s.Endpoints {
		if e.Addresses[0] != address {
			call.Exclude = append(call.Exclude, e.Addresses[0])
		}
	}
	if got := s.Picked(call); got != address {
		s.TB.Errorf("picked %s, want %s", got, address)
	}
	return call.Held()
}

// reportLoad ends a request to an endpoint with a load report.
func reportLoad(address string, load *orcav3.OrcaLoadReport) step {
	return func(s *stage) {
		pick(s, address, true).Finish(policy.OutcomeSuccess, balancer.DoneInfo{ServerLoad: load})
	}
}

// busy is a load of 100 requests a second at so much utilization: a weight of
// 100 / utilization.
func busy(utilization float64) *orcav3.OrcaLoadReport {
	return &orcav3.OrcaLoadReport{RpsFractional: 100, ApplicationUtilization: utilization}
}

func after(d time.Duration) step { return func(s *stage) { s.Sleep(d) } }

// keep reports the loads of the endpoints every second, n times.
func keep(n int, loads map[string]*orcav3.OrcaLoadReport) step {
	return func(s *stage) {
		for range n {
			for address, load := range loads {
				reportLoad(address, load)(s)
			}
			s.Sleep(second)
		}
	}
}

// shares asserts that picks without the excluded reach the endpoints in proportion:
// "a:1 b:2.5". A hundred picks for each unit of weight are as near as two to it.
func shares(want string, exclude ...string) step {
	return func(s *stage) {
		weights := make(map[string]float64)
		n := 0.0
		for field := range strings.FieldsSeq(want) {
			address, weight, _ := strings.Cut(field, ":")
			var w float64
			_, _ = fmt.Sscan(weight, &w)
			weights[address] = w
			n += 100 * w
		}
		got := make(map[string]int)
		for range int(n) {
			got[s.Picked(&policy.Call{Exclude: exclude})]++
		}
		for address, w := range weights {
			if math.Abs(float64(got[address])-100*w) > 2 {
				s.TB.Errorf("%.0f picks reach %v, want shares of %s", n, got, want)
				return
			}
		}
	}
}

// from asserts where the weights come from, and what the state dump and an
// explanation say of one.
func from(source weightedroundrobin.WeightSource, address string, weight, sum float64) step {
	return func(s *stage) {
		call := &policy.Call{Trace: new(policy.Trace)}
		for call.Endpoint == nil || call.Endpoint.Addresses[0] != address {
			call.Again()
			_ = s.Picked(call)
		}
		near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9*b }
		e, _ := call.Trace.Steps[0].(policy.EndpointStep)
		turn, _ := e.Detail.(*weightedroundrobin.WeightedTurn)
		if e.Policy != weightedroundrobin.Name || e.Endpoint != call.Endpoint || e.Rotation != len(s.Describe().Endpoints) ||
			turn.From != source || !near(turn.Weight, weight) || !near(turn.Share, weight/sum) {
			s.TB.Errorf("explained %+v, %+v; want %g of %g from %s", e, turn, weight, sum, source)
		}
		if n := s.Describe().Endpoints[e.Index]; n.Endpoint != call.Endpoint || !near(n.Share, weight/sum) {
			s.TB.Errorf("describes %+v, want a share of %g", n, weight/sum)
		}
	}
}

func TestWeights(t *testing.T) {
	both := map[string]*orcav3.OrcaLoadReport{"a": busy(1), "b": busy(0.1)}
	tests := []struct {
		name  string
		steps []step
	}{
		{"EDS weights, before there is a load", []step{up("a:1 b:2 c:3"), shares("a:1 b:2 c:3"), from(weightedroundrobin.WeightsFromEDS, "c", 3, 6)}},
		{"all of them alike", []step{up("a b c"), shares("a:1 b:1 c:1")}},
		{"one alone", []step{up("a:7"), reportLoad("a", busy(1)), after(20 * second), shares("a:7"), from(weightedroundrobin.WeightsFromEDS, "a", 7, 7)}},
		{"the turns of an excluded one go to the others by their weights", []step{
			up("a:5 b:4 c:1"), spread, shares("b:4 c:1", "a"), spread, shares("a:5 c:1", "b"), shares("b:1", "a", "c"),
		}},
		{"an EDS weight changes", []step{up("a:1 b:2"), config("a:3 b:2"), shares("a:3 b:2")}},
		{"one of three does not say its load: it has the mean", []step{
			up("a:9 b:9 c"), keep(11, both), shares("a:1 b:10 c:5.5"), from(weightedroundrobin.WeightsFromLoads, "c", 550, 1650),
		}},
		{"two of three do not: EDS weights", []step{
			up("a:1 b:2 c:3"), keep(11, map[string]*orcav3.OrcaLoadReport{"a": busy(1)}), shares("a:1 b:2 c:3"),
		}},
		{"new weights make no new picker", []step{up("a b"), reports(2), keep(11, both), shares("a:1 b:10"), reports(1)}},
		{"only with the next update", []step{
			up("a b", blackout(0), update(5*second)), reportLoad("a", busy(1)), reportLoad("b", busy(0.1)), after(5*second - 1), shares("a:1 b:1"),
			after(1), shares("a:1 b:10"), reportLoad("a", busy(0.1)), after(5*second - 1), shares("a:1 b:10"), after(1), shares("a:1 b:1"),
		}},
		{"one update in each period, in whatever order endpoints report", []step{
			up("a b", blackout(0), update(5*second)), reportLoad("a", busy(1)), after(3 * second), reportLoad("b", busy(0.1)), after(2 * second), shares("a:1 b:10"),
			reportLoad("a", busy(0.1)), after(5*second - 1), shares("a:1 b:10"), after(1), shares("a:1 b:1"),
		}},
		{"which restarts with a new picker", []step{
			up("a b", blackout(0), update(5*second)), reportLoad("a", busy(1)), reportLoad("b", busy(0.1)), after(3 * second), config("a:2 b"), shares("a:1 b:10"),
			reportLoad("a", busy(0.1)), after(5*second - 1), shares("a:1 b:10"), after(1), shares("a:1 b:1"),
		}},
		{"or with a new picker", []step{
			up("a b", blackout(0), update(1000*second)), reportLoad("a", busy(1)), reportLoad("b", busy(0.1)), up("a b c"), shares("a:1 b:10 c:5.5"),
		}},
		{"application over CPU", []step{up("a b", blackout(0)), keep(1, map[string]*orcav3.OrcaLoadReport{
			"a": {RpsFractional: 10, ApplicationUtilization: 0.5, CpuUtilization: 0.1}, "b": {RpsFractional: 10, ApplicationUtilization: 0.1, CpuUtilization: 0.5},
		}), shares("a:1 b:5")}},
		{"CPU without application", []step{up("a b", blackout(0)), keep(1, map[string]*orcav3.OrcaLoadReport{
			"a": {RpsFractional: 10, CpuUtilization: 0.5}, "b": {RpsFractional: 10, CpuUtilization: 0.1},
		}), shares("a:1 b:5")}},
		{"more requests, more weight", []step{up("a b", blackout(0)), keep(1, map[string]*orcav3.OrcaLoadReport{
			"a": {RpsFractional: 10, CpuUtilization: 0.5}, "b": {RpsFractional: 30, CpuUtilization: 0.5},
		}), shares("a:1 b:3")}},
		{"errors have their penalty", []step{up("a b", blackout(0), penalty(0.5)), keep(1, map[string]*orcav3.OrcaLoadReport{
			"a": {RpsFractional: 10, CpuUtilization: 0.1, Eps: 8}, "b": {RpsFractional: 10, CpuUtilization: 0.1},
		}), shares("a:1 b:5"), from(weightedroundrobin.WeightsFromLoads, "b", 100, 120)}},
		{"another penalty holds at once", []step{up("a b", blackout(0)), keep(1, map[string]*orcav3.OrcaLoadReport{
			"a": {RpsFractional: 10, CpuUtilization: 0.1, Eps: 4}, "b": {RpsFractional: 10, CpuUtilization: 0.1},
		}), shares("a:1 b:5"), config("a b", penalty(0)), shares("a:1 b:1"), reports(3)}},
		{"the last report counts", []step{
			up("a b", blackout(0)), reportLoad("a", busy(1)), reportLoad("a", busy(0.2)), reportLoad("b", busy(0.1)), after(second), shares("a:1 b:2"),
		}},
		{"reports that say nothing change nothing", []step{
			up("a b", blackout(0)), reportLoad("a", busy(1)), reportLoad("b", busy(0.1)),
			reportLoad("a", nil), reportLoad("a", &orcav3.OrcaLoadReport{}), reportLoad("a", &orcav3.OrcaLoadReport{RpsFractional: 5}), reportLoad("a", &orcav3.OrcaLoadReport{CpuUtilization: 1}),
			after(second), shares("a:1 b:10"),
		}},
		{"numbers that are none have no weight", []step{
			up("a b c", blackout(0)), keep(1, map[string]*orcav3.OrcaLoadReport{
				"a": {RpsFractional: 1, CpuUtilization: math.NaN()}, "b": {RpsFractional: math.MaxFloat64, CpuUtilization: 1e-9}, "c": {RpsFractional: 1, CpuUtilization: 1},
			}), from(weightedroundrobin.WeightsFromEDS, "a", 1, 3),
			reportLoad("b", &orcav3.OrcaLoadReport{RpsFractional: -1, CpuUtilization: 1}), after(second), from(weightedroundrobin.WeightsFromEDS, "a", 1, 3),
		}},
		{"but the mean of those that have", []step{
			up("a b c d", blackout(0)), keep(1, map[string]*orcav3.OrcaLoadReport{
				"a": {RpsFractional: 1, CpuUtilization: math.NaN()}, "b": {RpsFractional: math.Inf(1), CpuUtilization: 1}, "c": busy(1), "d": busy(0.5),
			}), shares("a:1.5 b:1.5 c:1 d:2"),
		}},
		{"blackout: as long as that after the first report", []step{
			up("a b"), reportLoad("a", busy(1)), reportLoad("b", busy(0.1)), after(10*second - 1), shares("a:1 b:1"), after(1), shares("a:1 b:10"),
		}},
		{"each for itself", []step{
			up("a b c:3"), reportLoad("a", busy(1)), after(5 * second), reportLoad("b", busy(0.1)), after(5 * second), shares("a:1 b:1 c:3"), after(5 * second), shares("a:1 b:10 c:5.5"),
		}},
		{"expired: as long as that after the last", []step{
			up("a b"), reportLoad("a", busy(1)), reportLoad("b", busy(0.1)), after(100 * second), reportLoad("a", busy(1)), reportLoad("b", busy(0.1)),
			after(180*second - 1), shares("a:1 b:10"), after(1), shares("a:1 b:1"),
		}},
		{"after that there is blackout again", []step{
			up("a b"), reportLoad("a", busy(1)), reportLoad("b", busy(0.1)), after(180 * second), shares("a:1 b:1"), reportLoad("a", busy(1)), reportLoad("b", busy(0.1)),
			after(9 * second), shares("a:1 b:1"), after(2 * second), shares("a:1 b:10"),
		}},
		{"reconnected: blackout again", []step{
			up("a b:3"), keep(11, both), shares("a:1 b:10"), says("b", idle, connecting, ready), shares("a:1 b:3"),
			keep(9, both), shares("a:1 b:3"), keep(2, both), shares("a:1 b:10"),
		}},
		{"what was picked before it reconnected does not count", []step{
			up("a b", blackout(0)), func(s *stage) {
				held := pick(s, "b", true)
				says("b", idle, connecting)(s)
				held.Finish(policy.OutcomeSuccess, balancer.DoneInfo{ServerLoad: busy(0.1)})
			}, says("b", ready), reportLoad("a", busy(1)), after(second), shares("a:1 b:1"),
		}},
		{"given back after an ejection it is as it was", []step{
			up("a b:3"), keep(11, both), says("b", failure), shares("a:1"), says("b", ready), shares("a:1 b:10"),
		}},
		{"an endpoint that is removed and comes back is new", []step{
			up("a b:3"), keep(11, both), config("a"), up("a b:3"), shares("a:1 b:3"),
		}},
		{"other periods hold at once", []step{
			up("a b"), keep(5, both), shares("a:1 b:1"), config("a b", blackout(5*second)), shares("a:1 b:10"),
			config("a b", expiration(second)), shares("a:1 b:1"),
		}},
		{"a pick that is not held tells nothing", []step{
			up("a b", blackout(0)), func(s *stage) {
				pick(s, "a", false).Finish(policy.OutcomeSuccess, balancer.DoneInfo{ServerLoad: busy(1)})
				pick(s, "b", false).Finish(policy.OutcomeSuccess, balancer.DoneInfo{ServerLoad: busy(0.1)})
			}, after(second), shares("a:1 b:1"),
		}},
		{"loads are updated after all have been lost and found", []step{
			up("a b", blackout(0)), says("a", idle), says("b", idle), after(10 * second), up("a b"),
			reportLoad("a", busy(1)), reportLoad("b", busy(0.1)), after(second), shares("a:1 b:10"),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { play(t, tt.steps...) })
	}
}

// spread makes draws even, so that a hundred of them are nearly exact.
func spread(s *stage) {
	var draw uint64
	s.Next = func() uint64 {
		draw += 0x9e3779b97f4a7c15
		return draw
	}
}

func blackout(d time.Duration) func(*weightedroundrobin.Config) {
	return func(c *weightedroundrobin.Config) { c.BlackoutPeriod = d }
}

func expiration(d time.Duration) func(*weightedroundrobin.Config) {
	return func(c *weightedroundrobin.Config) { c.WeightExpirationPeriod = d }
}

func update(d time.Duration) func(*weightedroundrobin.Config) {
	return func(c *weightedroundrobin.Config) { c.WeightUpdatePeriod = d }
}

func penalty(p float64) func(*weightedroundrobin.Config) {
	return func(c *weightedroundrobin.Config) { c.ErrorUtilizationPenalty = p }
}

// TestRandomStart: each picker begins where its draw says. Equal weights take
// turns as round_robin's do.
func TestRandomStart(t *testing.T) {
	for draw, want := range map[uint64]string{0: "b c a b c a", 1: "c a b c a b", 2: "a b c a b c"} {
		play(t, func(s *stage) { s.Next = lbtest.Draws(draw) }, up("a:5 b:5 c:5"), func(s *stage) {
			var got []string
			for range 6 {
				got = append(got, s.Picked(new(policy.Call)))
			}
			if strings.Join(got, " ") != want {
				t.Errorf("draw %d: %v, want %s", draw, got, want)
			}
		})
	}
}
