package parity_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	_ "google.golang.org/grpc/balancer/leastrequest" // grpc's, in both
	"google.golang.org/grpc/balancer/weightedtarget"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lbd-dev/lbd/lb/foreign"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// registryDifferences are those for policies of grpc-go's registry, and of the words about the config of a policy.
var registryDifferences = []difference{
	byDuel("a least_request whose choice_count is too small: the words", "names the type in Go", "names the field of the Cluster", func(d *duel) func() string {
		d.leaves[0].asked = &clusterv3.Cluster{
			LbPolicy: clusterv3.Cluster_LEAST_REQUEST,
			LbConfig: &clusterv3.Cluster_LeastRequestLbConfig_{LeastRequestLbConfig: &clusterv3.Cluster_LeastRequestLbConfig{ChoiceCount: wrapperspb.UInt32(1)}},
		}
		d.serve()
		return d.failsWith("Cluster_LeastRequestLbConfig.ChoiceCount must be >= 2, got: 1", "names the type in Go",
			"least_request_lb_config.choice_count: is 1: it must be at least 2", "names the field of the Cluster")
	}),
	byDuel("Producers of a policy of grpc-go's registry, such as load reports out of band",
		"the upstream answers its call", "its call is UNIMPLEMENTED", func(d *duel) func() string {
			d.leaves[0].asked = &clusterv3.Cluster{LoadBalancingPolicy: listed(scriptedBy(producingName))}
			d.serve()
			return d.failsWith("unknown service parity.Producer", "the upstream answers its call", // the error of the upstream's server
				"Unimplemented", "its call is UNIMPLEMENTED")
		}),
	byDuel("the attributes of endpoints and of the resolver's state, for such a policy", "has a locality", "has none", func(d *duel) func() string {
		d.leaves[0].asked = &clusterv3.Cluster{LoadBalancingPolicy: listed(&wrrlocalityv3.WrrLocality{EndpointPickingPolicy: listed(scriptedBy(readingName))})}
		d.serve()
		return d.failsWith("{region=", "has a locality", "no locality", "has none")
	}),
	{
		row:      "the second address of an ejected endpoint, for such a policy over pick_first",
		grpc:     inBubble(secondOfGRPC),
		lbd:      inBubble(secondOfLBD),
		grpcDoes: "connects to []", lbdDoes: `connects to ["second"]`,
	},
	byPolicy("a SubConn that cannot be made, for such a policy",
		"NewSubConn returns an error", "the SubConn is in TRANSIENT_FAILURE", unmadeByGRPC, unmadeByLBD, func(_ *testing.T, side policySide) string {
			side.endpoints("a")
			_, _, err := side.pick()
			return err.Error()
		}),
}

const (
	producingName = "parity_producing"
	makingName    = "parity_making"
	readingName   = "parity_reading"
	servingName   = "parity_serving"
	waitingName   = "parity_waiting"
)

func init() {
	balancer.Register(scripted{producingName, produce})
	balancer.Register(scripted{makingName, makeSubConn})
	balancer.Register(scripted{readingName, readLocality})
	balancer.Register(scripted{servingName, func(p *scriptedPolicy, _ balancer.ClientConnState) error {
		p.cc.UpdateState(balancer.State{ConnectivityState: connectivity.Ready, Picker: base.NewErrPicker(errRequest)})
		return nil
	}})
	balancer.Register(scripted{waitingName, func(*scriptedPolicy, balancer.ClientConnState) error { return nil }})
}

// scriptedBy is the config that asks for a scripted policy.
func scriptedBy(name string) *xdsv3.TypedStruct {
	return &xdsv3.TypedStruct{TypeUrl: "type.googleapis.com/" + name, Value: &structpb.Struct{}}
}

// scripted builds policies that do one thing with their first config.
type scripted struct {
	name string
	do   func(*scriptedPolicy, balancer.ClientConnState) error
}

func (s scripted) Name() string { return s.name }

func (s scripted) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return &scriptedPolicy{cc: cc, do: s.do}
}

type scriptedPolicy struct {
	balancer.Balancer

	cc   balancer.ClientConn
	do   func(*scriptedPolicy, balancer.ClientConnState) error
	once sync.Once
	end  func()
}

func (p *scriptedPolicy) UpdateClientConnState(s balancer.ClientConnState) (err error) {
	p.once.Do(func() { err = p.do(p, s) })
	return err
}

func (p *scriptedPolicy) Close() {
	if p.end != nil {
		p.end()
	}
}

// fail makes all picks fail with a text.
func (p *scriptedPolicy) fail(text string) {
	p.cc.UpdateState(balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: base.NewErrPicker(errors.New(text))})
}

// produce makes a call by a Producer of the first endpoint's SubConn, and reports
// how it ends.
func produce(p *scriptedPolicy, s balancer.ClientConnState) error {
	var sc balancer.SubConn
	sc, err := p.cc.NewSubConn(s.ResolverState.Endpoints[0].Addresses, balancer.NewSubConnOptions{
		StateListener: func(s balancer.SubConnState) {
			if s.ConnectivityState == connectivity.Ready && p.end == nil {
				_, p.end = sc.GetOrBuildProducer(oneCall{p})
			}
		},
	})
	if err != nil {
		return err
	}
	p.fail("not connected")
	sc.Connect()
	return nil
}

type oneCall struct{ policy *scriptedPolicy }

// Build makes the call. The Producer is the policy's alone.
func (b oneCall) Build(conn any) (balancer.Producer, func()) {
	calls, ok := conn.(grpc.ClientConnInterface)
	if !ok {
		return nil, func() {}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := calls.Invoke(ctx, "/parity.Producer/Call", &emptypb.Empty{}, &emptypb.Empty{})
		if ctx.Err() == nil {
			b.policy.fail(status.Code(err).String() + ": " + err.Error())
		}
	}()
	return nil, func() {
		cancel()
		<-done
	}
}

// makeSubConn creates a SubConn of the first endpoint, and reports its state.
func makeSubConn(p *scriptedPolicy, s balancer.ClientConnState) error {
	var sc balancer.SubConn
	sc, err := p.cc.NewSubConn(s.ResolverState.Endpoints[0].Addresses, balancer.NewSubConnOptions{
		StateListener: func(s balancer.SubConnState) { p.fail("the SubConn is in " + s.ConnectivityState.String()) },
	})
	if err == nil {
		p.fail("waits")
		sc.Connect()
	} else {
		p.fail("NewSubConn returns an error")
	}
	return nil
}

// readLocality reports the locality whose endpoints the policy has.
func readLocality(p *scriptedPolicy, s balancer.ClientConnState) error {
	p.fail(cmp.Or(weightedtarget.LocalityFromResolverState(s.ResolverState), "no locality"))
	return nil
}

// secondOfGRPC ejects an endpoint with two addresses.
func secondOfGRPC(t *testing.T) string {
	side := grpcOutliers(t, alone)
	side.config = strings.Replace(side.config, "round_robin", "least_request_experimental", 1)
	side.update([]resolver.Endpoint{{Addresses: []resolver.Address{{Addr: "a"}, {Addr: "second"}}}, {Addresses: []resolver.Address{{Addr: "b"}}}})
	complete(t, side, 40, "a")
	side.connects = nil
	pass()
	return fmt.Sprintf("connects to %q", side.connects)
}

// secondOfLBD does the same with grpc-go's policy in lbd's tree.
func secondOfLBD(t *testing.T) string {
	leastRequest := balancer.Get("least_request_experimental")
	config, err := parseConfig(leastRequest, []byte(`{}`))
	must(t, err)
	side := lbdOutliers(t, resource.OutlierDetection{FailurePercentage: aloneToo}, foreign.Wrap(leastRequest))
	side.leaf = policy.Child{Policy: leastRequest.Name(), Config: config}
	side.values["a"] = &resource.Endpoint{Addresses: []string{"a", "second"}, Weight: 1}
	side.endpoints("a", "b")
	side.tree.Batch(func() {
		for _, sc := range side.tree.SubConns {
			for _, healthy := range sc.Healths {
				healthy(balancer.SubConnState{ConnectivityState: connectivity.Ready})
			}
		}
	})
	complete(t, side, 40, "a")
	side.tree.Connected = nil
	pass()
	side.tree.Batch(func() {})
	return fmt.Sprintf("connects to %q", side.tree.Connected)
}

// unmadeByGRPC has a ClientConn that rejects SubConns, with a policy of grpc-go between it
// and the policy that creates one.
func unmadeByGRPC(t *testing.T) policySide {
	side := grpcOutliers(t, alone)
	side.config = strings.Replace(side.config, "round_robin", makingName, 1)
	side.reject = errRequest
	return side
}

// unmadeByLBD has a tree that rejects SubConns.
func unmadeByLBD(t *testing.T) policySide {
	side := newLBDPolicy(t, func(all []*resource.Endpoint) policy.Child { return policy.Child{Endpoints: all} }, foreign.Wrap(balancer.Get(makingName)))
	side.tree.RefuseSubConn = func(string) error { return errRequest }
	return side
}
