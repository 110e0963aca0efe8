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
	"google.golang.org/grpc/connectivity"
	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

// lbdSide is a channel of lbd. It gets resources from update only.
type lbdSide struct {
	target   string
	cluster  string
	channel  *lb.Channel
	dialer   *lb.Dialer
	counters *policy.Counters

	// clusters has the accepted resources; raw, the bytes of their Clusters.
	clusters map[string]*resource.ClusterConfig
	raw      map[string][]byte
}

func newLBDSide(target, cluster string) *lbdSide {
	l := &lbdSide{
		target: target, cluster: cluster,
		dialer: lb.NewDialer(nil, overload.Budget{}, nil, nil), counters: policy.NewCounters(),
		clusters: make(map[string]*resource.ClusterConfig), raw: make(map[string][]byte),
	}
	l.channel = lb.NewChannel(lb.Options{
		Registry: lb.Policies(), Counters: l.counters, Draw: rand.Uint64,
		Connectors: l.dialer.Connectors(resource.ConnectTCPHold),
	})
	return l
}

// decodeServer decodes a resource of a management server.
func decodeServer(t resource.Type, m proto.Message) (resource.Item, error) {
	return decode.Resource(t, packed(m), decode.Options{Origin: decode.FromServer})
}

// update applies resources as an xDS client does: the last good version of a rejected
// resource stays in use. It returns the rejected ones with the errors.
func (l *lbdSide) update(ctx context.Context, r resources) (rejected map[proto.Message]error, err error) {
	rejected = make(map[proto.Message]error)
	next := make(map[string]*resource.ClusterConfig)
	for _, m := range r.clusters {
		name, cc := m.GetName(), &resource.ClusterConfig{}
		if last := l.clusters[name]; last != nil {
			*cc = *last
		}
		next[name] = cc
		item, err := decodeServer(resource.TypeCluster, m)
		if err != nil {
			rejected[m] = err
		} else if !bytes.Equal(item.Raw, l.raw[name]) {
			cc.Cluster, l.raw[name] = item.Cluster, item.Raw
		}
	}
	for _, m := range r.assignments {
		item, err := decodeServer(resource.TypeAssignment, m)
		if err != nil {
			rejected[m] = err
			continue
		}
		for _, cc := range next {
			if cc.Cluster.AssignmentName() == m.GetClusterName() {
				cc.Assignment = item.Assignment.Reuse(cc.Assignment)
			}
		}
	}
	root := next[l.cluster]
	root.Leaves = nil
	if root.Cluster.Type == resource.ClusterAggregate {
		root.Leaves = leavesOf(next, root.Cluster, nil)
	}
	l.clusters = next
	offered := l.channel.Offer(&resource.Config{
		Target: "xds:///" + l.target, Roots: []string{l.cluster}, Clusters: few.Of(next),
	})
	return rejected, offered.Wait(ctx)
}

// leavesOf lists the leaves of a cluster, depth first, each once.
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
	if err := l.channel.Pick(&call, 0); err != nil {
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

// withoutEndpoints are the errors of picks without an endpoint.
var withoutEndpoints = []string{
	"no locality in any priority: the assignment is empty",
	"no usable endpoints",
	"no locality to pick from",
}

// look returns the channel's view.
func (l *lbdSide) look(ctx context.Context) (view, error) {
	n, err := l.channel.Describe(ctx)
	if err != nil {
		return view{}, err
	}
	v := view{state: n.State, states: make(map[string]connectivity.State)}
	var used []int
	walk(n, func(n policy.Node) {
		for i, p := range n.Priorities {
			if p.InUse {
				used = append(used, i)
			}
		}
		for _, e := range n.Endpoints {
			if e.State == connectivity.Ready {
				v.states[e.Address] = e.State
				continue
			}
			for _, a := range e.Endpoint.Addresses {
				if _, ok := v.states[a]; !ok {
					v.states[a] = e.State
				}
			}
		}
	})
	v.saw = fmt.Sprint(n.State, used, readyOf(v.states))
	return v, nil
}

// walk visits all nodes of a description.
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

// shares returns each endpoint's share of the picks by lbd's own description, and the
// priority in use, or -1.
func (l *lbdSide) shares(ctx context.Context) (map[string]*big.Rat, int, error) {
	n, err := l.channel.Describe(ctx)
	if err != nil {
		return nil, 0, err
	}
	out := make(map[string]*big.Rat)
	share(n.Clusters[l.cluster], big.NewRat(1, 1), out)
	return out, l.channel.ClusterSummary(l.cluster).Priority, nil
}

// share distributes a part of all picks among the endpoints of a policy.
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

// exact returns the fraction 1/n that a share stands for, if it is one.
func exact(share float64) *big.Rat {
	if n := int64(math.Round(1 / share)); share == 1/float64(n) {
		return big.NewRat(1, n)
	}
	return new(big.Rat).SetFloat64(share)
}

// dropped counts the dropped picks by category.
func (l *lbdSide) dropped() map[string]uint64 {
	drops := make(map[string]uint64)
	for _, cc := range l.clusters {
		c := l.counters.Get(cc.Cluster.ServiceKey())
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
