package resource

import (
	"iter"
	"time"
)

// Config is all that one target's tree is built from, at one moment (gRFC
// A74's XdsConfig). It is never changed: an update is a new Config that shares
// with the last what did not change.
type Config struct {
	// Target is "cluster:NAME" or "xds:///NAME".
	Target string
	// Err is why the target cannot be used at all: its Listener or its routes
	// are not there. Where it is set, only Target means anything.
	Err error
	// Pending is true until what the target needs is known for the first time:
	// its picks queue. Where it is set, only Target means anything. A cluster:
	// target is not Pending itself: its cluster is.
	Pending bool
	// VirtualHost holds the routes that choose the cluster of a pick; nil for
	// a cluster: target, whose picks name it.
	VirtualHost *VirtualHost
	// Listener and RouteName are where VirtualHost comes from; both are nothing
	// for a cluster: target. RouteName is empty where the routes are inline.
	Listener     *Listener
	RouteName    string
	ListenerFrom Provenance
	RoutesFrom   Provenance
	// Roots are the clusters that picks can choose.
	Roots []string
	// Clusters holds the roots, and the clusters that they are made of.
	Clusters map[string]*ClusterConfig
}

// Leaves yields the leaf clusters of a cluster with their names: the cluster
// itself, or the leaves of an AGGREGATE, the preferred first (gRFC A37). A leaf of
// an AGGREGATE may have Err set: it does not exist or is in error, and the others
// serve (gRFC A74). A cluster that cannot be used, or that the Config does not
// have, has no leaves.
func (c *Config) Leaves(cluster string) iter.Seq2[string, *ClusterConfig] {
	return func(yield func(string, *ClusterConfig) bool) {
		root := c.Clusters[cluster]
		if root == nil || root.Err != nil {
			return
		}
		if len(root.Leaves) == 0 {
			yield(cluster, root)
			return
		}
		for _, name := range root.Leaves {
			if !yield(name, c.Clusters[name]) {
				return
			}
		}
	}
}

// Source is where a resource comes from. Of several that have it, the first in
// the order of their numbers counts.
type Source uint8

// The sources.
const (
	// SourcePush is what was pushed over HTTP.
	SourcePush Source = iota
	// SourceFile is a file of the resource directory.
	SourceFile
	// SourceADS is a management server.
	SourceADS
	// SourceCache is what a management server said last, as it was kept on
	// disk: stale.
	SourceCache
	// SourceDNS is what a LOGICAL_DNS cluster's name resolves to. It covers
	// nothing.
	SourceDNS
	// SourceDefault stands for a cluster that nobody configured.
	SourceDefault
)

// Sources are those that bring resources, in order.
var Sources = [...]Source{SourcePush, SourceFile, SourceADS, SourceCache}

// String returns "push", "file", "ads", "cache", "dns" or "default".
func (s Source) String() string {
	switch s {
	case SourcePush:
		return "push"
	case SourceFile:
		return "file"
	case SourceADS:
		return "ads"
	case SourceCache:
		return "cache"
	case SourceDNS:
		return "dns"
	default:
		return "default"
	}
}

// Provenance tells where a resource comes from and since when it is as it is.
type Provenance struct {
	Source  Source
	Updated time.Time
	// Version is the management server's version_info; empty for other sources.
	Version string
}

// ClusterConfig is one cluster of a Config.
type ClusterConfig struct {
	Cluster     *Cluster
	ClusterFrom Provenance
	// Leaves are the names of an AGGREGATE's leaf clusters, nested aggregates
	// flattened, the preferred first. They include clusters that do not exist or
	// are in error. An AGGREGATE has no Assignment of its own.
	Leaves []string
	// Pending is true until what the cluster needs is known for the first
	// time: its picks queue.
	Pending bool
	// Assignment is nil while there is none; AssignmentErr then says why. A
	// LOGICAL_DNS cluster has one of what its name resolves to.
	Assignment     *Assignment
	AssignmentFrom Provenance
	// Err is why the cluster cannot be used at all. Where it is set the other
	// fields mean nothing.
	Err error
	// AssignmentErr is why the last good Assignment, or none, is in use.
	AssignmentErr error
}
