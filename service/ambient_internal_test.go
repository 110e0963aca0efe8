package service

import (
	"errors"
	"fmt"
	"testing"

	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestResolutionNote: what is added to the detail of a failed pick.
func TestResolutionNote(t *testing.T) {
	of := func(kind resource.Type, name, why string) resolver.AmbientError {
		return resolver.AmbientError{Key: resource.Key{Type: kind, Name: name}, Err: errors.New(why)}
	}
	var same, different []resolver.AmbientError
	for i := range 5 {
		same = append(same, of(resource.TypeCluster, fmt.Sprint(i), "away"))
		different = append(different, of(resource.TypeCluster, fmt.Sprint(i), fmt.Sprint("error ", i)))
	}
	for _, test := range []struct {
		errors []resolver.AmbientError
		want   string
	}{
		{nil, "refused"},
		{[]resolver.AmbientError{of(resource.TypeCluster, "cart", "deleted")}, "refused (resolution note: Cluster/cart is kept in spite of an error: deleted)"},
		{
			[]resolver.AmbientError{of(resource.TypeListener, "shop", "away"), of(resource.TypeCluster, "cart", "deleted"), of(resource.TypeAssignment, "cart", "away")},
			"refused (resolution note: Listener/shop, ClusterLoadAssignment/cart are kept in spite of an error: away; Cluster/cart is kept in spite of an error: deleted)",
		},
		{same, "refused (resolution note: Cluster/0, Cluster/1, Cluster/2 and 2 more are kept in spite of an error: away)"},
		{different, "refused (resolution note: Cluster/0 is kept in spite of an error: error 0; Cluster/1 is kept in spite of an error: error 1; " +
			"Cluster/2 is kept in spite of an error: error 2; and 2 more errors)"},
	} {
		if got := newAmbientErrors(test.errors).appendNote("refused"); got != test.want {
			t.Errorf("%s\nwant %s", got, test.want)
		}
	}
}

// TestStatesOfResourcesFromDisk: a resource that the client does not have, but a
// target uses from before the daemon's start, is shown as cached.
func TestStatesOfResourcesFromDisk(t *testing.T) {
	key := resource.Key{Type: resource.TypeCluster, Name: "cart"}
	used := &target{name: "xds:///shop"}
	used.ambient.Store(newAmbientErrors([]resolver.AmbientError{{Key: key, Err: errors.New("deleted")}}))
	h := &hosted{xds: map[string]*target{used.name: used, "xds:///other": {}}}
	for _, test := range []struct {
		target, name string
		state, want  client.State
	}{
		{used.name, "cart", client.DoesNotExist, client.DoesNotExistButCached},
		{used.name, "cart", client.ReceivedError, client.ReceivedErrorButCached},
		{used.name, "cart", client.Nacked, client.NackedButCached},
		{used.name, "cart", client.Requested, client.Requested},
		{used.name, "other", client.DoesNotExist, client.DoesNotExist},
		{"xds:///other", "cart", client.DoesNotExist, client.DoesNotExist},
		{"xds:///gone", "cart", client.DoesNotExist, client.DoesNotExist},
	} {
		r := client.ResourceStatus{Target: test.target, Key: resource.Key{Type: key.Type, Name: test.name}, State: test.state}
		if got := h.cachedState(r); got != test.want {
			t.Errorf("%s of %s: %s is shown as %s, want %s", test.name, test.target, test.state, got, test.want)
		}
	}
}
