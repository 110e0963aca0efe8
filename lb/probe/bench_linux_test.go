package probe

import (
	"bufio"
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// servers starts a process that accepts connections at n addresses.
func servers(b *testing.B, n int) (addresses []netip.AddrPort) {
	b.Helper()
	c := exec.CommandContext(b.Context(), os.Args[0])
	c.Env = append(os.Environ(), "LBD_TEST_PROBE_SERVERS="+strconv.Itoa(n))
	in, err := c.StdinPipe()
	noError(b, err)
	out, err := c.StdoutPipe()
	noError(b, err)
	noError(b, c.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = c.Wait()
	})
	for s := bufio.NewScanner(out); len(addresses) < n && s.Scan(); {
		addresses = append(addresses, netip.MustParseAddrPort(s.Text()))
	}
	if len(addresses) < n {
		b.Fatalf("the other process listens at %d addresses of %d", len(addresses), n)
	}
	return addresses
}

// cpu returns the CPU time of this process.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	noError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkProbe compares the CPU time of a probe with that of a dial of net.Dialer in
// a goroutine of its own, with a timeout, side by side: rounds of both take turns.
func BenchmarkProbe(b *testing.B) {
	const round = 100
	addresses := servers(b, round)
	p := newPoller(b, nil)
	r := make(result, round)
	rounds := [2]func(){
		func() {
			for _, a := range addresses {
				p.Probe(a, 3*time.Second, r)
			}
		},
		func() {
			for _, a := range addresses {
				go func() {
					ctx, cancel := context.WithTimeout(b.Context(), 3*time.Second)
					defer cancel()
					conn, err := new(net.Dialer).DialContext(ctx, "tcp", a.String())
					if err == nil {
						_ = conn.Close()
					}
					r <- err
				}()
			}
		},
	}
	var used [2]time.Duration
	for b.Loop() {
		for i, begin := range rounds {
			before := cpu(b)
			begin()
			for range round {
				noError(b, <-r)
			}
			used[i] += cpu(b) - before
		}
	}
	n := float64(b.N) * round
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(used[0])/n, "cpu-ns/probe")
	b.ReportMetric(float64(used[1])/n, "cpu-ns/dial")
	b.ReportMetric(float64(used[0])/float64(used[1]), "probe/dial")
}
