package parity_test

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/balancer"
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

// outlierInterval is the interval of the policies here.
const outlierInterval = 10 * time.Second

var outlierDifferences = []difference{
	byPolicy("outlier detection: an endpoint without requests, where `request_volume` is 0", "picks a b c d", "picks a b c",
		func(t *testing.T) policySide {
			return grpcOutliers(t, `"successRateEjection": {"stdevFactor": 500, "enforcementPercentage": 100, "minimumHosts": 3, "requestVolume": 0}`)
		}, func(t *testing.T) policySide {
			return lbdOutliers(t, resource.OutlierDetection{
				SuccessRate: &resource.SuccessRateEjection{StdevFactor: 500, EnforcementPercentage: 100, MinimumHosts: 3},
			})
		}, oneIsIdle),
	byPolicy("outlier detection: an endpoint that is ejected twice before it is back, by both algorithms or by late requests", "picks a b c", "picks a b",
		func(t *testing.T) policySide { return grpcOutliers(t, bothAlgorithms) },
		func(t *testing.T) policySide { return lbdOutliers(t, byBoth) }, twice),
	{
		row:      "outlier detection: an ejected endpoint that is removed, and comes back to a priority that kept its connection",
		grpc:     inBubble(keptByGRPC),
		lbd:      inBubble(keptByLBD),
		grpcDoes: "picks a b c", lbdDoes: "picks a b c d",
	},
	{
		row:      "outlier detection: an `interval` of 0",
		grpc:     grpcZeroInterval,
		lbd:      inBubble(lbdZeroInterval),
		grpcDoes: "runs the next analysis after 0s", lbdDoes: "runs the next analysis after 10ms",
	},
	{
		row: "outlier detection over pick_first",
		grpc: inBubble(func(t *testing.T) string {
			side := grpcOutliers(t, alone)
			roundRobin := side.config
			side.config = strings.Replace(side.config, "round_robin", "pick_first", 1)
			return overPickFirst(t, side, func() { side.config = roundRobin })
		}),
		lbd: inBubble(func(t *testing.T) string {
			side := lbdOutliers(t, resource.OutlierDetection{FailurePercentage: aloneToo})
			side.leaf = policy.Child{Policy: pickfirst.Name, Config: pickfirst.Config{}}
			return overPickFirst(t, side, func() { side.leaf = policy.Child{Policy: roundrobin.Name} })
		}),
		grpcDoes: "picks b c", lbdDoes: "picks a b c",
	},
}

const bothAlgorithms = `
	"successRateEjection": {"stdevFactor": 500, "enforcementPercentage": 100, "minimumHosts": 3, "requestVolume": 1},
	"failurePercentageEjection": {"threshold": 50, "enforcementPercentage": 100, "minimumHosts": 3, "requestVolume": 1}`

var byBoth = resource.OutlierDetection{
	SuccessRate:       &resource.SuccessRateEjection{StdevFactor: 500, EnforcementPercentage: 100, MinimumHosts: 3, RequestVolume: 1},
	FailurePercentage: &resource.FailurePercentageEjection{Threshold: 50, EnforcementPercentage: 100, MinimumHosts: 3, RequestVolume: 1},
}

// grpcOutliers is outlier_detection over round_robin.
func grpcOutliers(t *testing.T, algorithms string) *grpcPolicy {
	return newGRPCPolicy(t, policy.OutlierDetection, `{
		"interval": "10s", "baseEjectionTime": "100s", "maxEjectionTime": "300s", "maxEjectionPercent": 50, `+algorithms+`,
		"childPolicy": [{"round_robin": {}}]}`)
}

// lbdOutlierPolicy is the same of lbd's.
type lbdOutlierPolicy struct {
	*lbdPolicy

	interval time.Duration
	leaf     policy.Child // but its endpoints
}

func lbdOutliers(t *testing.T, c resource.OutlierDetection, others ...policy.Factory) *lbdOutlierPolicy {
	side := &lbdOutlierPolicy{interval: outlierInterval, leaf: policy.Child{Policy: roundrobin.Name}}
	side.lbdPolicy = newLBDPolicy(t, func(all []*resource.Endpoint) policy.Child {
		own, leaf := c, side.leaf
		own.Interval, own.BaseEjectionTime, own.MaxEjectionTime, own.MaxEjectionPercent = side.interval, 100*time.Second, 300*time.Second, 50
		leaf.Endpoints = all
		return policy.Child{Config: &policy.OutlierDetectionConfig{
			OutlierDetection: &own, Cluster: "c", EndpointPolicy: leaf.Policy, Priorities: [][]*policy.Locality{{{Endpoints: all}}},
			Child: policy.Child{Policy: policy.ClusterImpl, Config: &policy.ClusterImplConfig{
				Service: resource.ServiceKey{Cluster: "c"}, MaxRequests: 1 << 20, Child: leaf,
			}},
		}}
	}, outlierdetection.Builder(), append(others, clusterimpl.Builder(), priority.Builder(), weightedtarget.Builder(),
		roundrobin.Builder(), pickfirst.Builder())...)
	return side
}

// pass waits for the end of an interval.
func pass() {
	time.Sleep(outlierInterval)
	synctest.Wait()
}

// oneIsIdle has an interval in which all requests to d fail, and e is new and gets none.
func oneIsIdle(t *testing.T, side policySide) string {
	side.endpoints("a", "b", "c", "d")
	complete(t, side, 40, "d")
	side.endpoints("a", "b", "c", "d", "e")
	pass()
	side.endpoints("a", "b", "c", "d")
	return used(t, side, 40)
}

// twice ejects d by both algorithms. Half of the endpoints may be ejected: c fails
// next.
func twice(t *testing.T, side policySide) string {
	side.endpoints("a", "b", "c", "d")
	complete(t, side, 40, "d")
	pass()
	complete(t, side, 40, "c")
	pass()
	return used(t, side, 40)
}

// alone is failure-percentage ejection that a single endpoint is enough for.
const alone = `"failurePercentageEjection": {"threshold": 50, "enforcementPercentage": 100, "minimumHosts": 1, "requestVolume": 1}`

var aloneToo = &resource.FailurePercentageEjection{Threshold: 50, EnforcementPercentage: 100, MinimumHosts: 1, RequestVolume: 1}

// overPickFirst fails requests to the endpoint of pick_first, and then changes the policy
// to round_robin.
func overPickFirst(t *testing.T, side policySide, roundRobin func()) string {
	side.endpoints("a", "b", "c")
	complete(t, side, 10, "a")
	pass()
	roundRobin()
	side.endpoints("a", "b", "c")
	return used(t, side, 30)
}

// keeper is an endpoint policy that keeps the connections of endpoints that are
// removed, as a deactivated priority does.
type keeper struct {
	balancer.Balancer
	cc balancer.ClientConn

	all map[string]*kept
	now []string
}

type kept struct {
	subConn balancer.SubConn
	healthy bool
}

const keeperName = "parity_keeper"

type keeperBuilder struct{}

func init() { balancer.Register(keeperBuilder{}) }

func (keeperBuilder) Name() string { return keeperName }

func (keeperBuilder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return &keeper{cc: cc, all: make(map[string]*kept)}
}

func (k *keeper) UpdateClientConnState(s balancer.ClientConnState) error {
	k.now = nil
	for _, e := range s.ResolverState.Endpoints {
		name := e.Addresses[0].Addr
		k.now = append(k.now, name)
		if k.all[name] != nil {
			continue
		}
		own := &kept{}
		sc, err := k.cc.NewSubConn(e.Addresses, balancer.NewSubConnOptions{StateListener: func(s balancer.SubConnState) {
			if s.ConnectivityState == connectivity.Ready {
				own.subConn.RegisterHealthListener(func(s balancer.SubConnState) {
					own.healthy = s.ConnectivityState == connectivity.Ready
					k.publish()
				})
			}
		}})
		if err != nil {
			return err
		}
		own.subConn = sc
		k.all[name] = own
		sc.Connect()
	}
	k.publish()
	return nil
}

// publish publishes a picker of the healthy endpoints in turn.
func (k *keeper) publish() {
	var picks []balancer.PickResult
	for _, name := range k.now {
		if own := k.all[name]; own.healthy {
			picks = append(picks, balancer.PickResult{SubConn: own.subConn})
		}
	}
	k.cc.UpdateState(balancer.State{ConnectivityState: connectivity.Ready, Picker: &turns{picks: picks}})
}

func (k *keeper) Close() {}

type turns struct {
	picks []balancer.PickResult
	next  int
}

func (p *turns) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	p.next++
	return p.picks[p.next%len(p.picks)], nil
}

func keptByGRPC(t *testing.T) string {
	side := grpcOutliers(t, alone)
	side.config = strings.Replace(side.config, "round_robin", keeperName, 1)
	return removedAndBack(t, side)
}

// removedAndBack ejects d, removes it and brings it back.
func removedAndBack(t *testing.T, side policySide) string {
	side.endpoints("a", "b", "c", "d")
	complete(t, side, 40, "d")
	pass()
	side.endpoints("a", "b", "c")
	side.endpoints("a", "b", "c", "d")
	return used(t, side, 40)
}

// keptByLBD does the same in a priority, which is deactivated while d is away.
func keptByLBD(t *testing.T) string {
	higher := &resource.Endpoint{Addresses: []string{"h"}, Weight: 1}
	side := lbdOutliers(t, resource.OutlierDetection{FailurePercentage: aloneToo})
	lower := side.child
	side.child = func(all []*resource.Endpoint) policy.Child {
		c := lower(all)
		outliers := lbtest.As[*policy.OutlierDetectionConfig](t, c.Config)
		impl := lbtest.As[*policy.ClusterImplConfig](t, outliers.Child.Config)
		priorities := &policy.PriorityConfig{}
		outliers.Priorities = nil
		for i, endpoints := range [][]*resource.Endpoint{{higher}, all} {
			l := &policy.Locality{Weight: 1, Endpoints: endpoints}
			outliers.Priorities = append(outliers.Priorities, []*policy.Locality{l})
			priorities.Children = append(priorities.Children, policy.PriorityChild{
				Name: strconv.Itoa(i), Size: len(endpoints),
				Child: policy.Child{Policy: policy.WeightedTarget, Config: &policy.WeightedTargetConfig{
					Targets: []policy.Target{{Locality: l, Child: policy.Child{Policy: roundrobin.Name, Endpoints: endpoints}}},
				}},
			})
		}
		impl.Child = policy.Child{Policy: policy.Priority, Config: priorities}
		return c
	}
	side.down = "h"
	side.endpoints("a", "b", "c", "d")
	side.report("h", connectivity.Connecting, connectivity.TransientFailure)
	side.endpoints("a", "b", "c", "d")
	complete(t, side, 40, "d")
	pass()
	side.report("h", connectivity.Idle, connectivity.Connecting, connectivity.Ready)
	side.endpoints("a", "b", "c")
	side.endpoints("a", "b", "c", "d")
	side.report("h", connectivity.Idle, connectivity.Connecting, connectivity.TransientFailure)
	return used(t, side, 40)
}

func grpcZeroInterval(t *testing.T) string {
	if _, err := parseConfig(balancer.Get(policy.OutlierDetection), []byte(`{"interval": "0s", `+alone+`, "childPolicy": [{"round_robin": {}}]}`)); err != nil {
		return "rejects it: " + err.Error()
	}
	// This can be seen in the source only: with an interval of 0 the policy is never idle,
	// and the time of a bubble does not advance.
	source := grpcSource(t, "internal/xds/balancer/outlierdetection/balancer.go")
	if !strings.Contains(source, "b.intervalTimer = afterFunc(time.Duration(b.cfg.Interval), b.intervalTimerAlgorithm)") {
		return "sets its timer in another way"
	}
	return "runs the next analysis after 0s"
}

func lbdZeroInterval(t *testing.T) string {
	side := lbdOutliers(t, resource.OutlierDetection{FailurePercentage: aloneToo})
	side.interval = 0
	side.endpoints("a", "b")
	complete(t, side, 400, "b")
	for waited := time.Duration(0); waited < time.Second; waited += time.Millisecond {
		if used(t, side, 4) == "picks a" {
			return "runs the next analysis after " + waited.String()
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
	}
	return "runs no analysis within 1s"
}
