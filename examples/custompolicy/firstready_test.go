package custompolicy_test

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/lbd-dev/lbd/examples/custompolicy"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store/file"
)

// endpoints is an assignment of two.
func endpoints(a, b string) []byte {
	return fmt.Appendf(nil, `{"endpoints":[{"lb_endpoints":[
		{"endpoint":{"address":{"socket_address":{"address":%q,"port_value":80}}}},
		{"endpoint":{"address":{"socket_address":{"address":%q,"port_value":80}}}}]}]}`, a, b)
}

// TestPushedClusterChoosesThePolicy pushes the example as a user would.
func TestPushedClusterChoosesThePolicy(t *testing.T) {
	s := service.New(service.Options{
		Logger:     slog.New(slog.DiscardHandler),
		Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil},
	})
	defer s.Close()
	st, err := file.Open("", file.Options{OnCommit: s.Inbound.Commit})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.Start(t.Context(), sources.Connections{Store: st}); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile("cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	push := func(r sources.PushRequest) {
		t.Helper()
		r.Cluster = "orders"
		if _, err := s.Sources.Push(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	push(sources.PushRequest{Kind: sources.Config, Body: config, Format: sources.YAML})
	for i := range 20 {
		// Picks see it without waiting once the push is answered.
		first := fmt.Sprintf("10.0.%d.1", i)
		push(sources.PushRequest{Kind: sources.Endpoints, Body: endpoints("10.1.0.1", first)})
		for range 3 {
			var out picks.Picks
			r := picks.Request{Cluster: "orders", N: 1}
			if err := s.Picks.Pick(t.Context(), &r, &out); err != nil || out.Picks[0].Address != first+":80" {
				t.Fatalf("after push %d: %+v, %v", i, out, err)
			}
		}
	}
	c, err := s.State.Cluster(t.Context(), "orders", "", true)
	if err != nil || c.Policy != custompolicy.Name {
		t.Errorf("policy %q, %v", c.Policy, err)
	}
}
