package overload_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/overload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// failedLookup is what the net package returns for a look-up that can open no socket.
func failedLookup(t *testing.T, errno syscall.Errno) error {
	r := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "udp", Err: os.NewSyscallError("socket", errno)}
	}}
	_, err := r.LookupHost(t.Context(), "lbd.invalid")
	if err == nil {
		t.Fatal("a look-up without a socket succeeded")
	}
	return fmt.Errorf("resolve: %w", err)
}

func TestOf(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want overload.Resource
	}{
		{"nothing failed", nil, ""},
		{"the endpoint refused", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, ""},
		{"no descriptor for a socket", &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}, overload.Descriptors},
		{"no descriptor for a file", fmt.Errorf("read: %w", &fs.PathError{Op: "open", Path: "a", Err: syscall.EMFILE}), overload.Descriptors},
		{"one of several errors", errors.Join(errors.New("other"), syscall.ENFILE), overload.SystemDescriptors},
		{"no buffers", syscall.ENOBUFS, overload.Buffers},
		{"no memory", syscall.ENOMEM, overload.Memory},
		{"a full disk", &fs.PathError{Op: "write", Path: "a", Err: syscall.ENOSPC}, ""},
		{"no local address, which may be the address's fault", syscall.EADDRNOTAVAIL, ""},
		{"no descriptor for a look-up", failedLookup(t, syscall.EMFILE), overload.Descriptors},
		{"no watch for a look-up", failedLookup(t, syscall.ENOSPC), overload.Watches},
		{"no memory for a look-up", failedLookup(t, syscall.ENOMEM), overload.Memory},
		{"a name server that refused", failedLookup(t, syscall.ECONNREFUSED), ""},
		{"a name that is not known", &net.DNSError{Err: "no such host", IsNotFound: true}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := overload.Of(tt.err)
			if got != tt.want || ok != (tt.want != "") {
				t.Errorf("%v: %q, %v; want %q", tt.err, got, ok, tt.want)
			}
		})
	}
}

func TestOfDial(t *testing.T) {
	failed := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)}
	for _, tt := range []struct {
		name string
		udp  error
		want overload.Resource
	}{
		{"UDP connects: only TCP has no port left", nil, overload.LocalPorts},
		{"UDP does not either: the address cannot be reached from here", failed, ""},
		{"no descriptor to try", syscall.EMFILE, overload.Descriptors},
		{"no watch for it", os.NewSyscallError("epoll_ctl", syscall.ENOSPC), overload.Watches},
	} {
		t.Run(tt.name, func(t *testing.T) {
			near, far := net.Pipe()
			defer func() { _ = far.Close() }()
			got, _ := overload.OfDial(t.Context(), failed, "[::1]:80", func(_ context.Context, network, address string) (net.Conn, error) {
				if network != "udp" || address != "[::1]:80" {
					t.Errorf("%s connection to %s", network, address)
				}
				return near, tt.udp
			})
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestIPv6Address holds OfDial against the system: where IPv6 is disabled an address of
// it is no shortage, and where it is not nothing fails so.
func TestIPv6Address(t *testing.T) {
	d := new(net.Dialer)
	_, err := d.DialContext(t.Context(), "tcp", "[2001:db8::1]:9")
	if r, ok := overload.OfDial(t.Context(), err, "[2001:db8::1]:9", d.DialContext); ok {
		t.Errorf("%v is taken for a shortage of %s", err, r)
	}
}

// log records the calls of a watcher.
type log struct {
	mu    sync.Mutex
	start time.Time
	lines []string
}

func (l *log) add(states []overload.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []overload.Resource
	for _, s := range states {
		names = append(names, s.Resource)
	}
	l.lines = append(l.lines, fmt.Sprint(time.Since(l.start).Round(time.Second), names))
}

func (l *log) got() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// TestMonitor: a shortage begins with the first failure, and ends once nothing has
// failed for a while and the check succeeds.
func TestMonitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var checked error
		m := overload.NewMonitor(func() error {
			mu.Lock()
			defer mu.Unlock()
			return checked
		})
		defer m.Close()
		l := &log{start: time.Now()}
		stop := m.Watch(l.add)
		m.ReportIf(errors.New("refused"))
		time.Sleep(time.Second)
		for range 3 {
			m.ReportIf(syscall.EMFILE) // at 1 s, 3 s, 5 s
			time.Sleep(2 * time.Second)
		}
		m.Report(overload.LocalPorts, syscall.EADDRNOTAVAIL) // at 7 s, and over after 3 s
		mu.Lock()
		checked = syscall.EMFILE
		mu.Unlock()
		if !m.Short() {
			t.Error("no shortage")
		}
		time.Sleep(13 * time.Second)
		mu.Lock()
		checked = nil
		mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{"1s [descriptors]", "7s [descriptors local_ports]", "10s [descriptors]", "23s []"}
		if got := l.got(); !slices.Equal(got, want) {
			t.Errorf("calls %q, want %q", got, want)
		}
		stop()
		m.ReportIf(syscall.ENOMEM)
		m.Watch(l.add)
		m.Watch(func([]overload.State) {})
		synctest.Wait()
		if got := l.got(); len(got) != 5 || got[4] != "1m20s [memory]" {
			t.Errorf("calls %q: want one at once for a current shortage, and none after stop or for another watcher", got)
		}
	})
}

// A nil Monitor never has a shortage.
func TestNilMonitor(t *testing.T) {
	var m *overload.Monitor
	m.Report(overload.Memory, syscall.ENOMEM)
	m.Watch(func([]overload.State) { t.Error("the watcher was called") })()
	m.Close()
	if m.Short() || len(m.Current()) > 0 || !m.ReportIf(syscall.ENOMEM) {
		t.Error("it has a shortage")
	}
}

// With concurrent reports and watches, the last call of each watcher has the current state.
func TestConcurrentReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := overload.NewMonitor(func() error { return nil })
		defer m.Close()
		var mu sync.Mutex
		last := make([][]overload.State, 8)
		for i := range last {
			go m.Watch(func(s []overload.State) {
				mu.Lock()
				defer mu.Unlock()
				last[i] = s
			})
			go m.ReportIf(syscall.EMFILE)
			go m.ReportIf(syscall.ENOMEM)
		}
		synctest.Wait()
		mu.Lock()
		for i, s := range last {
			if len(s) != 2 {
				t.Errorf("watcher %d knows %v", i, s)
			}
		}
		mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for i, s := range last {
			if len(s) != 0 {
				t.Errorf("watcher %d knows %v in the end", i, s)
			}
		}
	})
}

func TestBudget(t *testing.T) {
	for _, tt := range []struct {
		limit, connections int
		memory             int64
		want               overload.Budget
	}{
		{1024, 0, math.MaxInt64, overload.Budget{Limit: 1024, Connections: 512, Dials: 128, Held: 320}},
		{1024, 100, math.MaxInt64, overload.Budget{Limit: 1024, Connections: 100, Dials: 128, Held: 732}},
		{1_048_576, 0, math.MaxInt64, overload.Budget{Limit: 1_048_576, Connections: 65_536, Dials: 256, Held: 982_720}},
		{64, 0, math.MaxInt64, overload.Budget{Limit: 64, Connections: 32, Dials: 8, Held: 16}},
		{1, 1000, math.MaxInt64, overload.Budget{Limit: 64, Connections: 48, Dials: 8, Held: 1}},
		{1_048_576, 0, 358 << 20, overload.Budget{Limit: 1_048_576, Connections: 5_728, Dials: 256, Held: 1_042_528}},
		{1_048_576, 20_000, 358 << 20, overload.Budget{Limit: 1_048_576, Connections: 20_000, Dials: 256, Held: 1_028_256}},
		{1024, 0, 1, overload.Budget{Limit: 1024, Connections: 64, Dials: 128, Held: 768}},
	} {
		if got := overload.NewBudget(tt.limit, tt.connections, 256, tt.memory); got != tt.want {
			t.Errorf("limit %d: %+v, want %+v", tt.limit, got, tt.want)
		}
	}
	if overload.DescriptorLimit() < 64 {
		t.Errorf("the limit is %d", overload.DescriptorLimit())
	}
}
