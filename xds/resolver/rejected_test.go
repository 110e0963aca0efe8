package resolver_test

import (
	"errors"
	"testing"

	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// A Cluster that is rejected in a file is an error where no other source has one. It
// does not prevent a request to a management server.
func TestRejectedClusterOfFile(t *testing.T) {
	r := resolver.New(resolver.Options{Server: true})
	key := resource.Key{Type: resource.TypeCluster, Name: "a"}
	apply := func(from resource.Source, u resource.Update, want string) {
		t.Helper()
		if from == resource.SourceADS {
			u.Target = resolver.Target("a")
		}
		if got := describe(r.Apply(from, []resource.Update{u})); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	rejected := resource.Update{Item: resource.Item{Key: key}, Err: errors.New("rejected")}
	apply(resource.SourceFile, rejected, "a!rejected")
	apply(resource.SourceFile, eds(t, "a", "h"), "")
	if wants := r.Wanted(); len(wants) != 1 || len(wants[0].Add) != 1 || wants[0].Add[0] != key {
		t.Errorf("a management server is asked for %+v", wants)
	}
	apply(resource.SourcePush, cds(t, "a", "a"), "a=h(file)")
	apply(resource.SourcePush, cds(t, "a", ""), "a!rejected")
	r.Wanted()
	apply(resource.SourceADS, cds(t, "a", "a"), "a=h(file)")
	apply(resource.SourceFile, cds(t, "a", ""), "")
	apply(resource.SourceFile, rejected, "")
	apply(resource.SourceADS, cds(t, "a", ""), "a!rejected")
	apply(resource.SourceCache, cds(t, "a", "a"), "a=h(file)")
	apply(resource.SourceCache, cds(t, "a", ""), "a!rejected")
	apply(resource.SourceFile, eds(t, "a"), "")
	apply(resource.SourceFile, cds(t, "a", ""), "a gone")
}
