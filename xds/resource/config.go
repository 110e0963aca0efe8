package resource

// Config is all that one target's tree is built from, at one moment (gRFC
// A74's XdsConfig). It is never changed: an update is a new Config that shares
// with the last what did not change.
type Config struct {
	// Target is "cluster:NAME" or "xds:///NAME".
	Target string
	// Clusters holds every cluster that the target's routes can choose, and
	// what those need.
	Clusters map[string]*ClusterConfig
}

// ClusterConfig is one cluster of a Config.
type ClusterConfig struct {
	Cluster *Cluster
	// Assignment is nil while there is none; AssignmentErr then says why.
	Assignment *Assignment
	// Err is why the cluster cannot be used at all. Where it is set the other
	// fields mean nothing.
	Err error
	// AssignmentErr is why the last good Assignment, or none, is in use.
	AssignmentErr error
}
