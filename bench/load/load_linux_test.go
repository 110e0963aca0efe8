package load_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/bench/load"
)

// serve starts a server on loopback, or on a unix socket.
func serve(t *testing.T, network string, h http.HandlerFunc) (target load.Target, connections *atomic.Int64) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "socket")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	connections = new(atomic.Int64)
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close()
	s.Listener = l
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return load.Target{Network: network, Address: l.Addr().String()}, connections
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

func TestClosedLoop(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		for _, reconnect := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/reconnect=%t", network, reconnect), func(t *testing.T) {
				var requests atomic.Int64
				target, connections := serve(t, network, func(w http.ResponseWriter, r *http.Request) {
					requests.Add(1)
					ok(w, r)
				})
				r, err := load.Run(load.Spec{
					Targets: []load.Target{target}, Script: []load.Request{{Raw: load.Get("/")}},
					Connections: 4, Reconnect: reconnect, Duration: 50 * time.Millisecond, CPUOf: []int{os.Getpid()},
				})
				if err != nil {
					t.Fatal(err)
				}
				if n := requests.Load(); r.Iterations == 0 || int64(r.Iterations) > n || n-int64(r.Iterations) > 8 {
					t.Errorf("%d iterations, %d requests", r.Iterations, n)
				}
				if r.Min <= 0 || r.P50 < r.Min*0.99 || r.P99 < r.P50 || r.PerSecond() <= 0 {
					t.Errorf("%+v", r)
				}
				if n := connections.Load(); (n == 4) == reconnect {
					t.Errorf("%d connections", n)
				}
			})
		}
	}
}

// TestOpenLoopCountsWaiting stalls one of many requests on one connection: the requests
// that are due in the meantime have the latency that their callers would see.
func TestOpenLoopCountsWaiting(t *testing.T) {
	const stall = 200 * time.Millisecond
	var requests atomic.Int64
	target, _ := serve(t, "tcp", func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 20 {
			<-time.After(stall)
		}
		ok(w, r)
	})
	r, err := load.Run(load.Spec{
		Targets: []load.Target{target}, Script: []load.Request{{Raw: load.Get("/")}},
		Connections: 1, Rate: 500, Duration: 2 * stall,
	})
	if err != nil {
		t.Fatal(err)
	}
	// About half of the 200 requests wait, for half of the stall on average.
	if mean := time.Duration(r.Mean); mean < stall/8 {
		t.Errorf("the mean latency is %s: requests that wait for a connection do not count", mean)
	}
	if p99 := time.Duration(r.P99); p99 < stall/2 {
		t.Errorf("the 99th percentile is %s", p99)
	}
}

func TestScript(t *testing.T) {
	var mu sync.Mutex
	var paths []string
	record := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		paths = append(paths, r.URL.Path)
		n := len(paths)
		mu.Unlock()
		_, _ = fmt.Fprintf(w, `{"lease":{"id":"L%d"}}`, n)
	}
	one, _ := serve(t, "unix", record)
	two, _ := serve(t, "tcp", record)
	_, err := load.Run(load.Spec{
		Targets: []load.Target{one, two},
		Script: []load.Request{
			{Target: 0, Raw: load.Post("/pick", "")},
			{Target: 1, Raw: load.Get("/use")},
			{Target: 0, Raw: load.Post("/leases/"+load.LeaseID+"/done", `{"outcome":"success"}`)},
		},
		Connections: 1, Duration: 30 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	want := []string{"/pick", "/use", "/leases/L2/done", "/pick", "/use", "/leases/L5/done"}
	if len(paths) < len(want) || strings.Join(paths[:len(want)], " ") != strings.Join(want, " ") {
		t.Errorf("the requests began with %q, want %q", paths[:min(len(paths), len(want))], want)
	}
}

func TestErrors(t *testing.T) {
	refused, _ := serve(t, "tcp", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "dropped", http.StatusServiceUnavailable)
	})
	request := []load.Request{{Raw: load.Get("/")}}
	for _, test := range []struct {
		spec load.Spec
		want string
	}{
		{load.Spec{}, "needs a target"},
		{load.Spec{Targets: []load.Target{refused}, Script: request}, "connections: 0"},
		{load.Spec{Targets: []load.Target{refused}, Script: request, Connections: 1}, "duration"},
		{load.Spec{Targets: []load.Target{refused}, Script: request, Connections: 1, Duration: time.Second}, "status 503: dropped"},
		{load.Spec{Targets: []load.Target{{Network: "tcp", Address: "192.0.2.1:80"}}, Script: request, Connections: 1, Duration: time.Second}, "loopback"},
		{load.Spec{Targets: []load.Target{refused}, Script: []load.Request{{Target: 1, Raw: load.Get("/")}}, Connections: 1, Duration: time.Second}, "no target 1"},
	} {
		if _, err := load.Run(test.spec); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %q", err, test.want)
		}
	}
}
