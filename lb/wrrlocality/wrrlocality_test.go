package wrrlocality_test

import (
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/lbtest"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/roundrobin"
	"github.com/lbd-dev/lbd/lb/weightedtarget"
	"github.com/lbd-dev/lbd/lb/wrrlocality"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func locality(zone string, weight uint32, addresses ...string) *policy.Locality {
	l := &policy.Locality{ID: resource.Locality{Zone: zone}, Weight: weight}
	for _, a := range addresses {
		l.Endpoints = append(l.Endpoints, &resource.Endpoint{Addresses: []string{a}, Weight: 1, Locality: l.ID})
	}
	return l
}

// TestLocalitiesBecomeTargets: each locality with its weight and its endpoints,
// under the endpoint policy of the config.
func TestLocalitiesBecomeTargets(t *testing.T) {
	tree := lbtest.NewTree(t, wrrlocality.Builder(), weightedtarget.Builder(), roundrobin.Builder())
	cfg := &policy.WRRLocalityConfig{
		Localities:     []*policy.Locality{locality("a", 1, "a1:80", "a2:80"), locality("b", 3, "b1:80")},
		EndpointPolicy: policy.Child{Policy: roundrobin.Name},
	}
	tree.Config(policy.Child{Config: cfg})
	if tree.State() != connectivity.Connecting || len(tree.SubConns) != 3 {
		t.Fatalf("%v with %d SubConns, want CONNECTING with 3", tree.State(), len(tree.SubConns))
	}
	tree.Batch(func() {
		for _, sc := range tree.SubConns {
			sc.Says(connectivity.Ready, nil)
		}
	})
	n := tree.Describe()
	if n.Policy != policy.WeightedTarget || n.State != connectivity.Ready || len(n.Localities) != 2 {
		t.Fatalf("describes %+v", n)
	}
	for i, want := range []struct {
		zone      string
		weight    uint32
		endpoints int
	}{{"a", 1, 2}, {"b", 3, 1}} {
		if l := n.Localities[i]; l.Locality.Zone != want.zone || l.Weight != want.weight || len(l.Child.Endpoints) != want.endpoints || l.Child.Policy != roundrobin.Name {
			t.Errorf("locality %d: %+v, want %+v", i, l, want)
		}
	}
	if s := tree.Summarize(); s.Census.Ready != 3 || s.State != connectivity.Ready {
		t.Errorf("summary: %+v", s)
	}
	if len(cfg.EndpointPolicy.Endpoints) != 0 {
		t.Error("the config was changed")
	}

	// Another weight alone touches no connection.
	tree.Config(policy.Child{Config: &policy.WRRLocalityConfig{
		Localities:     []*policy.Locality{{ID: cfg.Localities[0].ID, Weight: 9, Endpoints: cfg.Localities[0].Endpoints}, cfg.Localities[1]},
		EndpointPolicy: cfg.EndpointPolicy,
	}})
	if got := tree.Describe().Localities[0].Weight; got != 9 || len(tree.SubConns) != 3 {
		t.Errorf("weight %d with %d SubConns, want 9 with 3", got, len(tree.SubConns))
	}
}
