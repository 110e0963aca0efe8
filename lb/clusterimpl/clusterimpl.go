// Package clusterimpl is gRPC's xds_cluster_impl: drops, circuit breaking and load
// counters of a cluster (gRFC A27, A32).
package clusterimpl

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Builder returns the builder of cluster_impl policies, whose config is a
// *[policy.ClusterImplConfig].
func Builder() policy.Builder {
	return policy.NewBuilder(policy.ClusterImpl, func(conn *policy.Conn) policy.Policy {
		b := new(clusterImpl)
		b.Init(conn, policy.ClusterImpl, b, b.picker)
		return b
	})
}

// clusterImpl belongs to the owner.
type clusterImpl struct {
	policy.Wrapper

	config   *policy.ClusterImplConfig // without Child
	link     *policy.Link              // of new SubConns
	counters *policy.ClusterCounters
}

func (b *clusterImpl) Update(given policy.Child) error {
	cfg, ok := given.Config.(*policy.ClusterImplConfig)
	if !ok {
		return fmt.Errorf("%s: config is a %T", policy.ClusterImpl, given.Config)
	}
	old, child := b.config, cfg.Child
	own := *cfg
	own.Child = policy.Child{} // has a part of memory that only the child needs
	cfg, b.config = &own, &own
	b.count(old, cfg)
	if old == nil || old.Service != cfg.Service || old.MaxRequests != cfg.MaxRequests || old.FleetLimit != cfg.FleetLimit || !slices.Equal(old.Drops, cfg.Drops) {
		b.MarkStale()
	}
	connects := b.link != nil && b.link.Mode == cfg.Connect && b.link.Security.Equal(cfg.Security)
	if !connects || b.link.Cluster != cfg.Service.Cluster {
		b.link = policy.NewLink(b.Root(), cfg.Service.Cluster, cfg.Connect, cfg.Security)
	}
	b.link.MaxBackoff = cfg.MaxBackoff
	update := b.Child.Update
	if old != nil && !connects {
		update = b.Child.Renew // reconnects
	}
	_ = update(child) // the Switch reports the error
	return nil
}

// count keeps the counters of names in the config. If the service changes, the next
// picker uses other counters, while held picks keep theirs.
func (b *clusterImpl) count(old, cfg *policy.ClusterImplConfig) {
	before := b.counters
	if old == nil || old.Service != cfg.Service {
		b.counters = b.Counters().Acquire(cfg.Service)
	}
	b.counters.Metrics(cfg.LoadMetrics)
	b.counters.SetFleetLimit(cfg.FleetLimit)
	if b.counters == before && sameNames(old, cfg) {
		return
	}
	b.counters.Name(cfg.Drops, cfg.Localities)
	if before == nil {
		return
	}
	before.Unname(old.Drops, old.Localities)
	if b.counters != before {
		before.Release()
	}
}

func sameNames(a, b *policy.ClusterImplConfig) bool {
	return slices.EqualFunc(a.Drops, b.Drops, func(a, b resource.Drop) bool { return a.Category == b.Category }) &&
		slices.EqualFunc(a.Localities, b.Localities, func(a, b *resource.LocalityEndpoints) bool { return a.ID == b.ID })
}

func (b *clusterImpl) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	sc, err := b.ClientConn.NewSubConn(policy.WithLink(addrs, b.link), opts)
	if err != nil {
		return nil, err
	}
	policy.ConnectionOf(sc).Upstream().LoadIn(b.counters) // the first pick finds it
	return sc, nil
}

func (b *clusterImpl) Close() {
	b.Wrapper.Close()
	if b.counters != nil {
		b.counters.Unname(b.config.Drops, b.config.Localities)
		b.counters.Release()
	}
}
