package custompolicy_test

import (
	"log/slog"
	"os"
	"testing"

	"github.com/lbd-dev/lbd/examples/custompolicy"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

const endpoints = `{"endpoints":[{"lb_endpoints":[
	{"endpoint":{"address":{"socket_address":{"address":"10.0.0.2","port_value":80}}}},
	{"endpoint":{"address":{"socket_address":{"address":"10.0.0.1","port_value":80}}}}]}]}`

// TestPushedClusterChoosesThePolicy pushes the example as a user would.
func TestPushedClusterChoosesThePolicy(t *testing.T) {
	s := service.New(service.Options{
		Logger:     slog.New(slog.DiscardHandler),
		Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil},
	})
	defer s.Close()
	st, err := store.Open("", store.Options{OnCommit: s.Commit})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.Start(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile("cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []service.PushRequest{
		{Kind: service.Config, Cluster: "orders", Body: config, Format: service.YAML},
		{Kind: service.Endpoints, Cluster: "orders", Body: []byte(endpoints)},
	} {
		if _, err := s.Push(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		var out service.Picks
		r := service.PickRequest{Cluster: "orders", N: 1, Wait: service.MaxWait}
		if err := s.Pick(t.Context(), &r, &out); err != nil || out.Picks[0].Address != "10.0.0.1:80" {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	c, err := s.Cluster(t.Context(), "orders", "", true)
	if err != nil || c.Policy != custompolicy.Name {
		t.Errorf("policy %q, %v", c.Policy, err)
	}
}
