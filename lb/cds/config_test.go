package cds_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/cds"
	"github.com/lbd-dev/lbd/lb/clusterimpl"
	"github.com/lbd-dev/lbd/lb/lbtest"
	"github.com/lbd-dev/lbd/lb/outlierdetection"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/lb/priority"
	"github.com/lbd-dev/lbd/xds/resource"
)

// configured is an endpoint policy that notes which configs it is given. Its configs
// are pointers, as are those of most policies in grpc's registry.
type configured struct {
	balancer.Balancer

	given *[]string
}

type givenConfig struct {
	serviceconfig.LoadBalancingConfig
	text   string
	number int
}

func (c configured) Name() string { return "configured" }

func (c configured) Build(balancer.ClientConn, balancer.BuildOptions) balancer.Balancer { return c }

// ParseConfig numbers the configs.
func (c configured) ParseConfig(text json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	if strings.Contains(string(text), "bad") {
		return nil, errors.New("bad config")
	}
	*c.given = append(*c.given, "parse "+string(text))
	return &givenConfig{text: string(text), number: len(*c.given)}, nil
}

func (c configured) UpdateClientConnState(s balancer.ClientConnState) error {
	if cfg, ok := s.BalancerConfig.(*givenConfig); ok {
		*c.given = append(*c.given, fmt.Sprintf("%s of %d endpoints", cfg.text, len(s.ResolverState.Endpoints)))
	}
	return nil
}

func (c configured) Close() {}

// TestConfigIsParsedOnce: as long as the cluster's policy stays the same, its children
// are given the same config.
func TestConfigIsParsedOnce(t *testing.T) {
	var given []string
	s := &stage{t: t, cluster: resource.DefaultCluster(cluster), places: map[string]*resource.LocalityEndpoints{}}
	s.tree = lbtest.NewTree(t, cds.Builder(), outlierdetection.Builder(), clusterimpl.Builder(), priority.Builder(), configured{given: &given})
	policyOf := func(config string) step {
		return withCluster(func(c *resource.Cluster) { c.Policy = resource.Policy{Name: "configured", Config: config} })
	}
	for _, step := range []step{
		policyOf(""), assignment("a"),
		policyOf(`{"n":1}`), assignment("a"), assignment("a b"),
		policyOf(`{"n":2}`), assignment("a b"),
	} {
		step(s)
	}
	want := `parse {}; {} of 1 endpoints; parse {"n":1}; {"n":1} of 1 endpoints; {"n":1} of 2 endpoints; parse {"n":2}; {"n":2} of 2 endpoints`
	if got := strings.Join(given, "; "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	policyOf(`{"n":"bad"}`)(s)
	assignment("a b")(s)
	if s.tree.State() != connectivity.TransientFailure {
		t.Errorf("with a bad config the state is %v", s.tree.State())
	}
	if n := s.tree.Describe(); n.Policy != policy.CDS || n.Err == nil || n.Err.Error() != "bad config" {
		t.Errorf("described as %+v", n)
	}
}
