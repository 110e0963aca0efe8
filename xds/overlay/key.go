package overlay

import (
	"strings"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Type is the type of overlays in a store. It is no xDS resource. The name of an overlay is CLUSTER/ID;
// its ID has no slash.
const Type resource.Type = "Overlay"

// Key returns the key of an overlay.
func Key(cluster, id string) resource.Key {
	return resource.Key{Type: Type, Name: cluster + "/" + id}
}

// ClusterOf returns the cluster of an overlay's key.
func ClusterOf(key resource.Key) string {
	return key.Name[:max(0, strings.LastIndexByte(key.Name, '/'))]
}

// IDOf returns the ID of an overlay's key.
func IDOf(key resource.Key) string { return key.Name[strings.LastIndexByte(key.Name, '/')+1:] }
