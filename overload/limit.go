package overload

import (
	"cmp"
	"os"
	"syscall"
)

const (
	// MaxDefaultConnections is the maximum default limit of API connections.
	MaxDefaultConnections = 65_536
	// connectionMemory is the part of the memory limit for each API connection: twice what one takes that is idle, or
	// whose request waits, for its goroutines and buffers. That is the most with HTTP/2 and TLS, 36 KiB, and 2 KiB on
	// an event loop.
	connectionMemory = 64 << 10
	// ownDescriptors are reserved for lbd itself: listeners, store, log, resource files,
	// management servers, DNS.
	ownDescriptors = 64
	// minDescriptors is the minimum limit of a budget.
	minDescriptors = 64
)

// Budget divides the descriptors of the process between its uses.
type Budget struct {
	Limit       int // of the process (RLIMIT_NOFILE)
	Connections int // of API clients
	Dials       int // concurrent dials and probes
	Held        int // open connections to endpoints (connect modes tcp_hold and tls)
}

// NewBudget divides a limit. connections is the limit of API connections, at most three
// quarters of limit; 0 for the default: half of limit, at most [MaxDefaultConnections], and what the memory limit
// has room for. dials is the maximum number of concurrent dials.
func NewBudget(limit, connections, dials int, memory int64) Budget {
	limit = max(limit, minDescriptors)
	room := max(minDescriptors, int(min(memory/connectionMemory, MaxDefaultConnections)))
	connections = min(cmp.Or(connections, min(limit/2, room)), limit*3/4)
	b := Budget{Limit: limit, Connections: connections, Dials: max(1, min(dials, limit/8))}
	b.Held = max(1, limit-b.Connections-b.Dials-min(ownDescriptors, limit/8))
	return b
}

// DescriptorLimit returns the limit of descriptors of the process. Go raises the soft
// limit to the hard limit at startup.
func DescriptorLimit() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 1024 // the default of most systems
	}
	const most = 1 << 30 // RLIM_INFINITY and the like
	return int(min(l.Cur, most))
}

// OpenDescriptors returns how many descriptors the process has open. It fails on systems without
// /proc, and if no descriptor is free to count them.
func OpenDescriptors() (int, error) {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	defer func() { _ = d.Close() }() // it was only read
	names, err := d.Readdirnames(-1)
	return max(0, len(names)-1), err // without that of d
}
