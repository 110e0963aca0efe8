package lrs

import "github.com/lbd-dev/lbd/xds/resource"

// Key identifies the load of a cluster.
type Key struct {
	Cluster        string
	EDSServiceName string // empty if it is the name of the cluster
}

// Loads has the counters of load. A key is not opened again before its Counters are closed.
type Loads interface {
	// Open returns new counters of a cluster, from zero.
	Open(Key) Counters
}

// Counters are the load of one cluster. One goroutine at a time uses them. They neither
// block nor call the Reporter.
type Counters interface {
	// Read returns the load since the last acknowledged Read, and the requests in
	// progress.
	Read() resource.Load
	// Acknowledge marks the load of the last Read as reported.
	Acknowledge()
	// Close releases the counters.
	Close()
}
