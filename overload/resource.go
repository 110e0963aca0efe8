// Package overload knows when lbd itself lacks something that only the operating
// system can give: descriptors, memory, local ports. Such a shortage is the fault of
// no endpoint and of no server, so whoever meets one keeps the state of things as it
// is, reports the shortage to the [Monitor], and tries again.
package overload

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
)

// Resource is something that lbd can lack: of the system, or of its own budgets.
type Resource string

// The resources, with the error of the system that means the lack of each.
const (
	// Descriptors: lbd has as many open files and sockets as its limit allows (EMFILE).
	Descriptors Resource = "descriptors"
	// SystemDescriptors: the whole system has as many as it allows (ENFILE).
	SystemDescriptors Resource = "system_descriptors"
	// Buffers: the system has no room for another socket's buffers (ENOBUFS).
	Buffers Resource = "buffers"
	// Memory: the system has no memory for what was asked (ENOMEM).
	Memory Resource = "memory"
	// LocalPorts: every local port is in use toward some address (EADDRNOTAVAIL).
	LocalPorts Resource = "local_ports"
	// HeldConnections: lbd holds as many connections to endpoints as it may
	// ([Budget]'s Held).
	HeldConnections Resource = "held_connections"
	// APIConnections: the API has as many connections as it may, and none is idle.
	APIConnections Resource = "api_connections"
)

// Resources are all of them.
var Resources = []Resource{Descriptors, SystemDescriptors, Buffers, Memory, LocalPorts, HeldConnections, APIConnections}

// errnos are the errors that always mean a shortage. EADDRNOTAVAIL is not among
// them: see [OfDial].
var errnos = []struct {
	errno    syscall.Errno
	resource Resource
}{
	{syscall.EMFILE, Descriptors},
	{syscall.ENFILE, SystemDescriptors},
	{syscall.ENOBUFS, Buffers},
	{syscall.ENOMEM, Memory},
}

// Text says what is wrong, for people.
func (r Resource) Text() string {
	switch r {
	case Descriptors:
		return "lbd has no file descriptor left (EMFILE)"
	case SystemDescriptors:
		return "the system has no file descriptor left (ENFILE)"
	case Buffers:
		return "the system has no buffer space left for sockets (ENOBUFS)"
	case Memory:
		return "the system has no memory left for lbd (ENOMEM)"
	case LocalPorts:
		return "no local port is left for connections to an endpoint (EADDRNOTAVAIL)"
	case HeldConnections:
		return "lbd holds as many connections to endpoints as its limit on descriptors allows"
	default:
		return "lbd refuses API connections: it has --max-connections, and none is idle"
	}
}

// Of returns which resource was lacking when an operation failed with err; ok is
// false for any other error, and for nil.
func Of(err error) (r Resource, ok bool) {
	if err == nil {
		return "", false
	}
	for _, e := range errnos {
		if errors.Is(err, e.errno) {
			return e.resource, true
		}
	}
	// The net package keeps only the text of what a look-up failed with.
	if failed, isLookup := errors.AsType[*net.DNSError](err); isLookup {
		return OfText(failed.Err)
	}
	return "", false
}

// OfText is Of for an error of which only the text is left. It must be one that nobody
// else can write.
func OfText(text string) (Resource, bool) {
	text = strings.TrimRight(text, `"`)
	for _, e := range errnos {
		if strings.HasSuffix(text, ": "+e.errno.Error()) {
			return e.resource, true
		}
	}
	return "", false
}

// OfDial is Of for a TCP connection to address that failed with err. connect makes
// connections: EADDRNOTAVAIL is a shortage only if a UDP connection to the same
// address can be made, because it is also what an IPv6 address returns where IPv6 is
// disabled.
func OfDial(ctx context.Context, err error, address string, connect func(ctx context.Context, network, address string) (net.Conn, error)) (Resource, bool) {
	if r, ok := Of(err); ok {
		return r, true
	}
	if !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return "", false
	}
	conn, err := connect(ctx, "udp", address)
	if err != nil {
		return Of(err)
	}
	_ = conn.Close()
	return LocalPorts, true
}
