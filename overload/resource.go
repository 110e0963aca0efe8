// Package overload detects that lbd itself lacks a resource of the operating system:
// descriptors, memory, local ports. Such a shortage is not a failure of an endpoint or a
// server: code that encounters one keeps all states, reports it to the [Monitor], and
// retries.
package overload

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
)

// Resource is a resource of the system, or of lbd's own budgets.
type Resource string

// The resources, with the system error of each shortage.
const (
	// Descriptors: the limit of open files of the process is reached (EMFILE).
	Descriptors Resource = "descriptors"
	// SystemDescriptors: the limit of open files of the system is reached (ENFILE).
	SystemDescriptors Resource = "system_descriptors"
	// Buffers: the system has no space for socket buffers (ENOBUFS).
	Buffers Resource = "buffers"
	// Memory: the system has no memory for the operation (ENOMEM).
	Memory Resource = "memory"
	// Watches: the limit of descriptors that the user may watch with epoll is reached (ENOSPC).
	Watches Resource = "watches"
	// LocalPorts: all local ports are in use for one address (EADDRNOTAVAIL).
	LocalPorts Resource = "local_ports"
	// HeldConnections: the limit Budget.Held of connections to endpoints is reached.
	HeldConnections Resource = "held_connections"
	// APIConnections: the limit of API connections is reached, and none is idle.
	APIConnections Resource = "api_connections"
	// MemoryLimit: most of the memory that lbd may use is in use (GOMEMLIMIT).
	MemoryLimit Resource = "memory_limit"
	// SourceMemory: resources of a management server or of a file wait for memory ([Turns.ReserveSource]).
	SourceMemory Resource = "source_memory"
	// CPU: work waits long for a CPU.
	CPU Resource = "cpu"
)

// Resources are all of them.
var Resources = []Resource{Descriptors, SystemDescriptors, Buffers, Memory, Watches, LocalPorts, HeldConnections, APIConnections, MemoryLimit, SourceMemory, CPU}

// errnos are the errors that always mean a shortage. For ENOSPC see [OfSocket], for EADDRNOTAVAIL
// [OfDial].
var errnos = map[syscall.Errno]Resource{
	syscall.EMFILE: Descriptors, syscall.ENFILE: SystemDescriptors, syscall.ENOBUFS: Buffers, syscall.ENOMEM: Memory,
}

var texts = map[Resource]string{
	Descriptors:       "lbd has no file descriptor left (EMFILE)",
	SystemDescriptors: "the system has no file descriptor left (ENFILE)",
	Buffers:           "the system has no buffer space left for sockets (ENOBUFS)",
	Memory:            "the system has no memory left for lbd (ENOMEM)",
	Watches:           "the system lets lbd watch no other descriptor (ENOSPC)",
	LocalPorts:        "no local port is left for connections to an endpoint (EADDRNOTAVAIL)",
	HeldConnections:   "lbd holds as many connections to endpoints as its limit on descriptors allows",
	APIConnections:    "API connection limit reached (--max-connections), none is idle",
	MemoryLimit:       "lbd uses most of the memory that it may use (GOMEMLIMIT)",
	SourceMemory:      "resources that lbd has received wait for memory, and their last version stays in use",
	CPU:               "lbd waits long for a CPU",
}

// Text describes the shortage.
func (r Resource) Text() string { return texts[r] }

// Of returns the resource whose shortage caused err; ok is false for other errors.
func Of(err error) (r Resource, ok bool) {
	if err == nil {
		return "", false
	}
	for errno, r := range errnos {
		if errors.Is(err, errno) {
			return r, true
		}
	}
	// The net package keeps only the text of the cause of a lookup error.
	if failed, isLookup := errors.AsType[*net.DNSError](err); isLookup {
		return OfText(failed.Err)
	}
	return "", false
}

// OfSocket is Of for the error of an operation on a socket, where ENOSPC is a shortage, too: a
// socket could not be watched. Of a file, it means a full disk.
func OfSocket(err error) (r Resource, ok bool) {
	if errors.Is(err, syscall.ENOSPC) {
		return Watches, true
	}
	return Of(err)
}

// OfText is OfSocket for the text of an error. It must not come from another party.
func OfText(text string) (Resource, bool) {
	text = strings.TrimRight(text, `"`)
	for errno, r := range errnos {
		if strings.HasSuffix(text, ": "+errno.Error()) {
			return r, true
		}
	}
	if strings.HasSuffix(text, ": "+syscall.ENOSPC.Error()) {
		return Watches, true
	}
	return "", false
}

// OfDial is OfSocket for the error of a TCP dial to address. connect dials: EADDRNOTAVAIL is a
// shortage only if UDP to the address succeeds, because a disabled IPv6 causes it too.
func OfDial(ctx context.Context, err error, address string, connect func(ctx context.Context, network, address string) (net.Conn, error)) (Resource, bool) {
	if r, ok := OfSocket(err); ok {
		return r, true
	}
	if !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return "", false
	}
	conn, err := connect(ctx, "udp", address)
	if err != nil {
		return OfSocket(err)
	}
	_ = conn.Close()
	return LocalPorts, true
}
