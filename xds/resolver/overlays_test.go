package resolver_test

import (
	"testing"

	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestOverlays changes a source beneath an overlay: the overlay stays, what did not change keeps its
// pointer, and all targets share the result.
func TestOverlays(t *testing.T) {
	t.Parallel()
	r := resolver.New(resolver.Options{})
	config := func(changes []resolver.TargetConfig) *resource.ClusterConfig {
		t.Helper()
		if len(changes) != 1 {
			t.Fatalf("%d changes", len(changes))
		}
		return changes[0].Config.Clusters.Get("orders")
	}
	drain := []*resource.Overlay{{Cluster: "orders", ID: "1", Kind: resource.OverlayDrain, Endpoint: "b:80"}}
	if got := r.ApplyOverlays("orders", drain); len(got) != 0 {
		t.Errorf("an overlay of an unknown cluster changed %s", describe(got))
	}
	before := config(r.Apply(resource.SourcePush, []resource.Update{eds(t, "orders", "a", "b")}))
	if n := before.Assignment.Usable(); n != 1 {
		t.Fatalf("%d usable endpoints", n)
	}
	after := config(r.Apply(resource.SourcePush, []resource.Update{eds(t, "orders", "a", "b", "c")}))
	is, was := after.Assignment.Localities[0].Endpoints, before.Assignment.Localities[0].Endpoints
	if after.Assignment.Usable() != 2 || is[1].Health != resource.HealthDraining {
		t.Errorf("the overlay was lost: %v", is)
	}
	if is[0] != was[0] || is[1] != was[1] {
		t.Error("endpoints that did not change have other pointers")
	}
	if _, a := after.Source(); a.Usable() != 3 {
		t.Errorf("the source has %d usable endpoints", a.Usable())
	}
	if got := r.Apply(resource.SourcePush, []resource.Update{eds(t, "orders", "a", "b", "c")}); len(got) != 0 && config(got).Assignment != after.Assignment {
		t.Error("the same content made another assignment")
	}
	if ended := config(r.ApplyOverlays("orders", nil)); ended.Overlaid != nil || ended.Assignment.Usable() != 3 {
		t.Error("the overlay did not end")
	}
	if got := r.ApplyOverlays("orders", nil); len(got) != 0 {
		t.Errorf("nothing changed, and these did: %s", describe(got))
	}
}
