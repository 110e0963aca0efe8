package resource

import (
	"iter"
	"time"

	"github.com/lbd-dev/lbd/xds/few"
)

// Config is the configuration of one target's tree (gRFC A74's XdsConfig). It is immutable:
// an update is a new Config that shares what did not change with the last.
type Config struct {
	Target string // "cluster:NAME" or "xds:///NAME"
	// Err is why the target cannot be used: its Listener or its routes do not exist. Only
	// Target is set then.
	Err error
	// Pending is true until the target's resources are known for the first time: its picks
	// queue. Only Target is set then. A cluster: target is never Pending, but its cluster
	// may be.
	Pending bool
	// Routing chooses the cluster of a pick; nil for a cluster: target, whose picks name the
	// cluster.
	Routing  *Routing
	Roots    []string                        // the clusters that picks can choose, sorted
	Clusters few.Map[string, *ClusterConfig] // the roots and their leaves
}

// Routing is the routes of a target, and their source. It is immutable.
type Routing struct {
	VirtualHost *VirtualHost
	Listener    *Listener
	// RouteName is the name of the RouteConfiguration; empty if the routes are inline.
	RouteName    string
	ListenerFrom Provenance
	RoutesFrom   Provenance
}

// Leaves yields the leaf clusters of a cluster with their names: the cluster itself, or
// the leaves of an AGGREGATE, the preferred first (gRFC A37). A leaf of an AGGREGATE may
// have Err set; the others serve (gRFC A74). A cluster with Err, or one that the Config
// does not have, has no leaves.
func (c *Config) Leaves(cluster string) iter.Seq2[string, *ClusterConfig] {
	return func(yield func(string, *ClusterConfig) bool) {
		root := c.Clusters.Get(cluster)
		if root == nil || root.Err != nil {
			return
		}
		if len(root.Leaves) == 0 {
			yield(cluster, root)
			return
		}
		for _, name := range root.Leaves {
			if !yield(name, c.Clusters.Get(name)) {
				return
			}
		}
	}
}

// Source is the source of a resource. If several have it, the first one is used.
type Source uint8

// The sources.
const (
	SourcePush    Source = iota // pushed over HTTP
	SourceFile                  // a file of the resource directory
	SourceADS                   // a management server
	SourceCache                 // the last version of a management server, kept on disk: stale
	SourceDNS                   // the addresses of a LOGICAL_DNS cluster's name
	SourceDefault               // a cluster without configuration
)

// Sources are those with resources, in order.
var Sources = [...]Source{SourcePush, SourceFile, SourceADS, SourceCache}

// sources says of each source its name, how a sentence names it, and whether people write its resources.
var sources = [...]struct {
	name, phrase string
	byHand       bool
}{
	SourcePush:    {"push", "a push", true},
	SourceFile:    {"file", "a resource file", true},
	SourceADS:     {"ads", "a management server", false},
	SourceCache:   {"cache", "a management server, as it was in an earlier run", false},
	SourceDNS:     {"dns", "DNS", false},
	SourceDefault: {"default", "the defaults", false},
}

// String returns "push", "file", "ads", "cache", "dns" or "default".
func (s Source) String() string { return sources[min(s, SourceDefault)].name }

// Phrase names the source in a sentence: "a push".
func (s Source) Phrase() string { return sources[min(s, SourceDefault)].phrase }

// PhraseOf is Phrase for the name of a source.
func PhraseOf(name string) string {
	for _, s := range sources {
		if s.name == name {
			return s.phrase
		}
	}
	return SourceDefault.Phrase()
}

// ByHand reports whether people write the resources of the source: these host targets, and take precedence over
// those of management servers.
func (s Source) ByHand() bool { return sources[min(s, SourceDefault)].byHand }

// Provenance is the source of a resource, and the time of its last change.
type Provenance struct {
	Source  Source
	Updated time.Time
	Version string // the management server's version_info
}

// ClusterConfig is one cluster of a Config.
type ClusterConfig struct {
	Cluster     *Cluster
	ClusterFrom Provenance
	// Leaves are the names of an AGGREGATE's leaf clusters, nested aggregates flattened,
	// the preferred first. They include clusters that do not exist or are in error. An
	// AGGREGATE has no Assignment of its own.
	Leaves []string
	// Pending is true until the cluster's resources are known for the first time: its
	// picks queue.
	Pending bool
	// Assignment is nil while there is none; AssignmentErr then is the reason. That of a
	// LOGICAL_DNS cluster has the addresses of its name.
	Assignment     *Assignment
	AssignmentFrom Provenance
	Err            error // why the cluster cannot be used; the other fields are not set then
	AssignmentErr  error // why the last good Assignment, or none, is in use
	// Overlaid is what the sources say, if there are overlays: Cluster and Assignment are what the
	// overlays make of it. Else it is nil.
	Overlaid *Overlaid
}

// Overlays returns the overlays of the cluster, the oldest first.
func (c *ClusterConfig) Overlays() []*Overlay {
	if c.Overlaid == nil {
		return nil
	}
	return c.Overlaid.Overlays
}

// Source returns the Cluster and the Assignment as the sources have them.
func (c *ClusterConfig) Source() (*Cluster, *Assignment) {
	if c.Overlaid == nil {
		return c.Cluster, c.Assignment
	}
	return c.Overlaid.Cluster, c.Overlaid.Assignment
}
