package sources

import (
	"errors"
	"testing"

	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestStatesOfResourcesFromDisk: a resource that the client does not have, but a
// target uses from before the daemon's start, is shown as cached.
func TestStatesOfResourcesFromDisk(t *testing.T) {
	key := resource.Key{Type: resource.TypeCluster, Name: "cart"}
	const shop = "xds:///shop"
	s := newTestSources(t)
	for _, name := range []string{shop, "xds:///other"} {
		s.pushes.Ledger.Apply([]resolver.Change{{Target: name, Config: &resource.Config{Target: name, Pending: true}}})
	}
	h := s.pushes.Ledger.Hosted()
	h.Named(shop).SetAmbient(resolver.AmbientErrors{All: []resolver.AmbientError{{Key: key, Err: errors.New("deleted")}}})
	for _, test := range []struct {
		target, name string
		state, want  client.State
	}{
		{shop, "cart", client.DoesNotExist, client.DoesNotExistButCached},
		{shop, "cart", client.ReceivedError, client.ReceivedErrorButCached},
		{shop, "cart", client.Nacked, client.NackedButCached},
		{shop, "cart", client.Requested, client.Requested},
		{shop, "other", client.DoesNotExist, client.DoesNotExist},
		{"xds:///other", "cart", client.DoesNotExist, client.DoesNotExist},
		{"xds:///gone", "cart", client.DoesNotExist, client.DoesNotExist},
	} {
		r := client.ResourceStatus{Target: test.target, Key: resource.Key{Type: key.Type, Name: test.name}, State: test.state}
		if got := cachedState(h, r); got != test.want {
			t.Errorf("%s of %s: %s is shown as %s, want %s", test.name, test.target, test.state, got, test.want)
		}
	}
}
