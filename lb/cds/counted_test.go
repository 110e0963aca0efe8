package cds_test

import (
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/cds"
	"github.com/lbd-dev/lbd/lb/lbtest"
	"github.com/lbd-dev/lbd/lb/outlierdetection"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// keeper stands for cluster_impl and keeps its config.
type keeper struct {
	confidant
	config *policy.ClusterImplConfig
}

func (k *keeper) Build(balancer.ClientConn, balancer.BuildOptions) balancer.Balancer { return k }

func (k *keeper) UpdateClientConnState(s balancer.ClientConnState) error {
	k.config, _ = s.BalancerConfig.(*policy.ClusterImplConfig)
	return nil
}

// TestWhatIsCounted: cluster_impl is told by which names to count, and which
// metrics of upstreams, where the cluster's load is reported.
func TestWhatIsCounted(t *testing.T) {
	for _, reported := range []bool{false, true} {
		child := new(keeper)
		c := *resource.DefaultCluster(cluster)
		c.LRSToSelf, c.LoadMetrics = reported, &resource.LoadMetrics{AllNamed: true}
		s := &stage{t: t, cluster: &c, places: map[string]*resource.LocalityEndpoints{}}
		s.tree = lbtest.NewTree(t, cds.Builder(), outlierdetection.Builder(), child)
		assignment("a b | a", resource.Drop{Category: "x"})(s)
		got := child.config
		if len(got.Drops) != 1 || len(got.Localities) != 3 || got.Localities[1].ID.Zone != "b" {
			t.Errorf("drops %v, localities %v", got.Drops, got.Localities)
		}
		if (got.LoadMetrics != nil) != reported || reported && !got.LoadMetrics.AllNamed {
			t.Errorf("reported %t: metrics %v", reported, got.LoadMetrics)
		}
	}
}
