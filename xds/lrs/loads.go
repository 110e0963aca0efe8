package lrs

import "github.com/lbd-dev/lbd/xds/resource"

// Key names what load is counted of.
type Key struct {
	Cluster string
	// EDSServiceName is empty where it is the cluster's own name.
	EDSServiceName string
}

// Loads is where load is counted. It is not asked for a key again before what it
// returned for it is closed.
type Loads interface {
	// Open returns the load of a cluster from now on, from zero.
	Open(Key) Counters
}

// Counters are the load of one cluster. They are used by one goroutine at a time,
// take no long to answer and call nothing back.
type Counters interface {
	// Read returns what was counted since the last reading that was acknowledged,
	// and what is in progress now.
	Read() resource.Load
	// Acknowledge says that what the last Read returned has been reported.
	Acknowledge()
	// Close ends the counting for reports.
	Close()
}
