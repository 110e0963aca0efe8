package parity_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/lbd-dev/lbd/lb"
)

var dialsDifference = byDuel("dials of a process", "dials more than 256 at a time", "dials at most 256 at a time", func(d *duel) func() string {
	port := silentPort(d)
	w := d.leaves[0]
	w.localities = w.localities[:1]
	w.localities[0].endpoints = nil
	for i := range 300 {
		w.localities[0].endpoints = append(w.localities[0].endpoints, &endpoint{
			upstreams: []*upstream{{name: "silent", address: fmt.Sprintf("127.9.%d.%d:%d", i/200, 1+i%200, port)}},
			health:    corev3.HealthStatus_HEALTHY,
		})
	}
	d.serve()
	most := 0
	return func() string {
		d.ask() // a lazy channel connects
		most = max(most, dialsTo(d, port))
		switch {
		case most == 0:
			return "dials none"
		case most <= lb.MaxDials:
			return "dials at most 256 at a time"
		}
		return "dials more than 256 at a time"
	}
})

// silentPort returns a port that answers no SYN, on all loopback addresses: its queue
// of connections is full, and none is accepted.
func silentPort(d *duel) int {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must(d.t, err)
	d.t.Cleanup(func() { _ = syscall.Close(fd) })
	must(d.t, syscall.Bind(fd, &syscall.SockaddrInet4{}))
	must(d.t, syscall.Listen(fd, 0))
	name, err := syscall.Getsockname(fd)
	must(d.t, err)
	at, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		d.t.Fatalf("the socket's name is a %T", name)
	}
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", at.Port))
	must(d.t, err)
	d.t.Cleanup(func() { _ = c.Close() })
	return at.Port
}

// dialsTo counts the sockets that wait for an answer to their SYN from a port.
func dialsTo(d *duel, port int) int {
	text, err := os.ReadFile("/proc/net/tcp")
	must(d.t, err)
	const synSent = "02"
	n := 0
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[2], fmt.Sprintf(":%04X", port)) && f[3] == synSent {
			n++
		}
	}
	return n
}
