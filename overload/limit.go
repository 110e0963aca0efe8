package overload

import "syscall"

const (
	// MaxDefaultConnections is the largest default of how many API connections lbd
	// keeps open.
	MaxDefaultConnections = 65_536
	// ownDescriptors are left for lbd itself: listeners, the store, the log, resource
	// files, management servers, look-ups of names.
	ownDescriptors = 64
	// minDescriptors is the least limit that a budget is made of.
	minDescriptors = 64
)

// Budget divides the descriptors that the process may have, so that callers, probes
// and held connections do not take each other's.
type Budget struct {
	// Limit is the limit of the process (RLIMIT_NOFILE).
	Limit int
	// Connections are for the API's callers.
	Connections int
	// Dials are for attempts to connect and probes under way.
	Dials int
	// Held are for connections to endpoints that are kept (connect modes tcp_hold and
	// tls).
	Held int
}

// NewBudget divides a limit. connections is how many the API may have, three quarters
// of the limit at most; 0 for the default: half of the limit, [MaxDefaultConnections] at
// most. dials are the most that may ever be under way.
func NewBudget(limit, connections, dials int) Budget {
	limit = max(limit, minDescriptors)
	if connections == 0 {
		connections = min(limit/2, MaxDefaultConnections)
	}
	connections = min(connections, limit*3/4)
	b := Budget{Limit: limit, Connections: connections, Dials: max(1, min(dials, limit/8))}
	b.Held = max(1, limit-b.Connections-b.Dials-min(ownDescriptors, limit/8))
	return b
}

// DescriptorLimit returns how many descriptors the process may have. Go raises the
// soft limit to the hard one when the process starts.
func DescriptorLimit() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 1024 // what most systems allow at least
	}
	const most = 1 << 30 // RLIM_INFINITY and the like
	return int(min(l.Cur, most))
}
