package parity_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"syscall"

	"github.com/cespare/xxhash/v2"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// lbdSide is a channel of lbd's. Resources reach it by update and in no other
// way, picks by pick; all else is what the channel says of itself.
type lbdSide struct {
	target   string
	cluster  string
	channel  *lb.Channel
	dialer   *lb.Dialer
	counters *policy.Counters

	// clusters holds what was taken so far; raw is what its Clusters are of.
	clusters map[string]*resource.ClusterConfig
	raw      map[string][]byte
}

func newLBDSide(target, cluster string) *lbdSide {
	l := &lbdSide{
		target: target, cluster: cluster,
		dialer: lb.NewDialer(nil), counters: policy.NewCounters(),
		clusters: make(map[string]*resource.ClusterConfig), raw: make(map[string][]byte),
	}
	l.channel = lb.NewChannel(lb.Options{
		Registry: lb.Policies(), Counters: l.counters, Draw: rand.Uint64,
		Connectors: l.dialer.Connectors(resource.ConnectTCPHold),
	})
	return l
}

// asServer decodes a resource as one of a management server.
func asServer(m proto.Message) (resource.Item, error) {
	packed, err := anypb.New(m)
	if err != nil {
		return resource.Item{}, err
	}
	body, err := proto.Marshal(&discoveryv3.DiscoveryResponse{TypeUrl: packed.GetTypeUrl(), Resources: []*anypb.Any{packed}})
	if err != nil {
		return resource.Item{}, err
	}
	b, err := decode.All(body, decode.Options{Origin: decode.FromServer, Format: decode.FormatProtobuf})
	if err != nil {
		return resource.Item{}, err
	}
	return b.Items[0], nil
}

// update takes resources as an xDS client does: what cannot be used leaves the
// last good one in use. It returns what was refused, and why.
func (l *lbdSide) update(ctx context.Context, r resources) (refused map[proto.Message]error, err error) {
	refused = make(map[proto.Message]error)
	next := make(map[string]*resource.ClusterConfig)
	for _, m := range r.clusters {
		cc := &resource.ClusterConfig{}
		if last := l.clusters[m.GetName()]; last != nil {
			*cc = *last
		}
		next[m.GetName()] = cc
		item, err := asServer(m)
		switch {
		case err != nil:
			refused[m] = err
		case !bytes.Equal(item.Raw, l.raw[m.GetName()]):
			cc.Cluster, l.raw[m.GetName()] = item.Cluster, item.Raw
		}
	}
	assignments := make(map[string]*resource.Assignment)
	for _, m := range r.assignments {
		item, err := asServer(m)
		if err != nil {
			refused[m] = err
			continue
		}
		assignments[m.GetClusterName()] = item.Assignment
	}
	for _, cc := range next {
		if a := assignments[cc.Cluster.AssignmentName()]; a != nil {
			cc.Assignment = a.Reuse(cc.Assignment)
		}
	}
	root := next[l.cluster]
	root.Leaves = nil
	if root.Cluster.Type == resource.ClusterAggregate {
		root.Leaves = leavesOf(next, root.Cluster, nil)
	}
	l.clusters = next
	offered := l.channel.Offer(&resource.Config{
		Target: "xds:///" + l.target, Roots: []string{l.cluster}, Clusters: next,
	})
	return refused, offered.Wait(ctx)
}

// leavesOf lists the clusters with endpoints that one is made of, depth first,
// each once.
func leavesOf(all map[string]*resource.ClusterConfig, c *resource.Cluster, before []string) []string {
	if c.Type != resource.ClusterAggregate {
		if slices.Contains(before, c.Name) {
			return before
		}
		return append(before, c.Name)
	}
	for _, name := range c.Leaves {
		before = leavesOf(all, all[name].Cluster, before)
	}
	return before
}

func (l *lbdSide) name() string { return "lbd" }

func (l *lbdSide) pick(n int) reply {
	var call policy.Call
	call.Reset(context.Background())
	call.Cluster, call.Hold = l.cluster, true
	call.Hash, call.HasHash = xxhash.Sum64String(hashText(n)), true
	err := l.channel.Pick(&call, 0)
	if err != nil {
		return reply{kind: l.kindOf(err), picker: call.Generation}
	}
	held := call.Held()
	return reply{kind: picked, address: call.Address, picker: call.Generation, done: func() {
		held.Finish(policy.OutcomeSuccess, policy.NoInfo)
	}}
}

func (l *lbdSide) kindOf(err error) kind {
	var timeout *lb.TimeoutError
	var refusal *policy.Refusal
	var connect *policy.ConnectError
	var notReady *lb.NotReadyError
	switch {
	case errors.As(err, &timeout):
		return queued
	case errors.As(err, &refusal):
		switch refusal.Kind {
		case policy.KindDropped:
			return dropped
		case policy.KindCircuitBroken:
			return broken
		}
		return kind(fmt.Sprintf("%v: %v", refusal.GRPCStatus().Code(), refusal))
	case errors.As(err, &connect) && errors.Is(err, syscall.ECONNREFUSED):
		return refused
	case errors.As(err, &notReady) && slices.Contains(withoutEndpoints, notReady.Error()):
		return none
	}
	return kind("not ready: " + err.Error())
}

// withoutEndpoints are lbd's words where there is no endpoint.
var withoutEndpoints = []string{
	"no locality in any priority: the assignment is empty",
	"no usable endpoints",
	"no locality to pick from",
}

// look tells the channel's state, those of its endpoints, by address, and, in
// some form, what changes only with what picks come to.
func (l *lbdSide) look(ctx context.Context) (state connectivity.State, states map[string]connectivity.State, saw string, err error) {
	n, err := l.channel.Describe(ctx)
	if err != nil {
		return 0, nil, "", err
	}
	states = make(map[string]connectivity.State)
	var used []int
	walk(n, func(n policy.Node) {
		for i, p := range n.Priorities {
			if p.InUse {
				used = append(used, i)
			}
		}
		for _, e := range n.Endpoints {
			if e.State == connectivity.Ready {
				states[e.Address] = e.State
				continue
			}
			for _, a := range e.Endpoint.Addresses {
				if _, ok := states[a]; !ok {
					states[a] = e.State
				}
			}
		}
	})
	return n.State, states, fmt.Sprint(n.State, used, readyOf(states)), nil
}

// walk visits a description.
func walk(n policy.Node, visit func(policy.Node)) {
	visit(n)
	for _, c := range n.Clusters {
		walk(c, visit)
	}
	for _, p := range n.Priorities {
		walk(p.Child, visit)
	}
	for _, c := range n.Localities {
		walk(c.Child, visit)
	}
	if n.Child != nil {
		walk(*n.Child, visit)
	}
}

// shares are the parts of picks that endpoints get by lbd's own description, and
// the priority in use; -1 without any.
func (l *lbdSide) shares(ctx context.Context) (map[string]*big.Rat, int, error) {
	n, err := l.channel.Describe(ctx)
	if err != nil {
		return nil, 0, err
	}
	out := make(map[string]*big.Rat)
	share(n.Clusters[l.cluster], big.NewRat(1, 1), out)
	return out, inUse(n.Clusters[l.cluster]), nil
}

// inUse is the number of the priority in use, over all leaves; -1 without any.
func inUse(n policy.Node) int {
	for ; n.Child != nil; n = *n.Child {
		if n.Priorities != nil {
			break
		}
	}
	for _, p := range n.Priorities {
		if p.InUse && p.Leaf {
			return max(p.Number, inUse(p.Child))
		}
		if p.InUse {
			return p.Number
		}
	}
	return -1
}

// share gives a part of all picks to what a policy serves.
func share(n policy.Node, part *big.Rat, out map[string]*big.Rat) {
	if n.State != connectivity.Ready {
		return
	}
	if n.Child != nil {
		share(*n.Child, part, out)
	}
	for _, p := range n.Priorities {
		if p.InUse {
			share(p.Child, part, out)
		}
	}
	var total int64
	for _, l := range n.Localities {
		if l.Child.State == connectivity.Ready {
			total += int64(l.Weight)
		}
	}
	for _, l := range n.Localities {
		if l.Child.State == connectivity.Ready {
			share(l.Child, new(big.Rat).Mul(part, big.NewRat(int64(l.Weight), total)), out)
		}
	}
	for _, e := range n.Endpoints {
		if e.Share > 0 {
			out[e.Endpoint.Addresses[0]] = new(big.Rat).Mul(part, exact(e.Share))
		}
	}
}

// exact is the part of one in so many that a share is nearest to, where that is as
// near as a float can be.
func exact(share float64) *big.Rat {
	if n := int64(math.Round(1 / share)); share == 1/float64(n) {
		return big.NewRat(1, n)
	}
	return new(big.Rat).SetFloat64(share)
}

// dropped counts what was dropped so far, by category.
func (l *lbdSide) dropped() map[string]uint64 {
	drops := make(map[string]uint64)
	for name, cc := range l.clusters {
		c := l.counters.Get(policy.ServiceKey{Cluster: name, EDSServiceName: cc.Cluster.EDSServiceName})
		if c == nil {
			continue
		}
		for category, n := range c.Drops() {
			drops[category] += n
		}
	}
	return drops
}

func (l *lbdSide) close() {
	l.channel.Close()
	l.dialer.Close()
}
