package cds_test

import (
	"testing"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/cds"
	"github.com/lbd-dev/lbd/lb/clusterimpl"
	"github.com/lbd-dev/lbd/lb/lbtest"
	"github.com/lbd-dev/lbd/lb/outlierdetection"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/priority"
	"github.com/lbd-dev/lbd/xds/resource"
)

// scribe is a wrr_locality that writes down the localities it is given.
type scribe struct {
	balancer.Balancer
	given *[][]*policy.Locality
}

func (s scribe) Name() string { return policy.WRRLocality }

func (s scribe) Build(balancer.ClientConn, balancer.BuildOptions) balancer.Balancer { return s }

func (s scribe) UpdateClientConnState(c balancer.ClientConnState) error {
	if cfg, ok := c.BalancerConfig.(*policy.WRRLocalityConfig); ok {
		*s.given = append(*s.given, cfg.Localities)
	}
	return nil
}

func (s scribe) Close() {}

// TestUnchangedLocalitiesKeepTheirPointers: so that what is below need not look
// at their endpoints.
func TestUnchangedLocalitiesKeepTheirPointers(t *testing.T) {
	var given [][]*policy.Locality
	s := &stage{t: t, cluster: resource.DefaultCluster(cluster), places: map[string]*resource.LocalityEndpoints{}}
	s.tree = lbtest.NewTree(t, cds.Builder(), outlierdetection.Builder(), clusterimpl.Builder(), priority.Builder(), scribe{given: &given})
	assignment("a b")(s)
	delete(s.places, "b0") // b is decoded anew
	assignment("a b")(s)
	if len(given) != 2 || given[0][0] != given[1][0] || given[0][1] == given[1][1] {
		t.Errorf("given %v, want the same a and another b", given)
	}
	if l := given[0][0]; len(l.Endpoints) != 1 {
		t.Errorf("%d endpoints, want the usable one", len(l.Endpoints))
	}
}

// TestUnchangedEndpointsAreNotMadeAnew: where there is one more in their locality.
func TestUnchangedEndpointsAreNotMadeAnew(t *testing.T) {
	var given [][]*policy.Locality
	s := &stage{t: t, cluster: resource.DefaultCluster(cluster), places: map[string]*resource.LocalityEndpoints{}}
	s.tree = lbtest.NewTree(t, cds.Builder(), outlierdetection.Builder(), clusterimpl.Builder(), priority.Builder(), scribe{given: &given})
	assignment("a b")(s)
	changed := *s.places["a0"]
	changed.Endpoints = append(changed.Endpoints[:1:1], &resource.Endpoint{Addresses: []string{"more"}, Weight: 1, Locality: changed.ID})
	s.places["a0"] = &changed
	assignment("a b")(s)
	if len(given) != 2 || len(given[1][0].Endpoints) != 2 {
		t.Fatalf("given %v, want one more endpoint of a", given)
	}
	if before, after := given[0][0].Endpoints[0], given[1][0].Endpoints[0]; before.Attributes != after.Attributes {
		t.Error("the endpoint that stayed was made anew")
	}
}
