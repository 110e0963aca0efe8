// Package lbdtest runs a real lbd for the tests of clients.
package lbdtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Deadline is for what is expected to happen soon.
const Deadline = 2 * time.Minute

// Daemon is a real lbd, with a listener on a unix socket.
type Daemon struct {
	dir     string
	Address string // of the unix socket
	args    []string
	http    *http.Client
	process *exec.Cmd
}

// Start starts lbd until the end of the test.
func Start(t testing.TB, args ...string) *Daemon {
	t.Helper()
	d, err := New(args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// New starts lbd on a unix socket, with further flags.
func New(args ...string) (*Daemon, error) {
	dir, err := os.MkdirTemp("", "lbd") // the path of a socket has to be short
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "lbd.sock")
	d := &Daemon{dir: dir, Address: "unix:" + socket, args: args, http: &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}},
	}}
	if err := d.Restart(); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Restart starts lbd, and waits until it is ready.
func (d *Daemon) Restart() error {
	bin := os.Getenv("LBD_BIN")
	if bin == "" {
		_, file, _, _ := runtime.Caller(0)
		bin = filepath.Join(filepath.Dir(file), "../../../../bin/lbd")
	}
	args := append([]string{
		"serve", "--listen=" + d.Address + ",anonymous=all", "--data=" + filepath.Join(d.dir, "data"), "--connect=none",
	}, d.args...)
	d.process = exec.Command(bin, args...) //nolint:gosec,noctx // the binary is what is tested, and Stop ends it
	var log bytes.Buffer
	d.process.Stderr = &log
	endWithTest(d.process)
	if err := d.process.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(Deadline); ; time.Sleep(10 * time.Millisecond) {
		_, err := d.Do(http.MethodGet, "/v1/daemon", "")
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			d.Stop()
			return fmt.Errorf("lbd is not ready: %w\n%s", err, &log)
		}
	}
}

// Stop kills lbd. What was pushed is still there after Restart.
func (d *Daemon) Stop() {
	if d.process != nil {
		_ = d.process.Process.Kill()
		_ = d.process.Wait()
		d.process = nil
	}
}

// Close kills lbd, and removes its data.
func (d *Daemon) Close() {
	d.Stop()
	_ = os.RemoveAll(d.dir)
}

// Do calls lbd. A status that rejects is an error.
func (d *Daemon) Do(method, path, body string) (string, error) {
	request, err := http.NewRequestWithContext(context.Background(), method, "http://lbd"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := d.http.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, response.Status, content)
	}
	return string(content), err
}

// Call is Do for tests: an error fails the test.
func (d *Daemon) Call(t testing.TB, method, path, body string) string {
	t.Helper()
	answer, err := d.Do(method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// Push makes the upstreams the endpoints of a cluster. policy is that of the ClusterLoadAssignment, or "".
func (d *Daemon) Push(t testing.TB, cluster, policy string, addresses ...string) {
	t.Helper()
	var endpoints []string
	for _, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		endpoints = append(endpoints, fmt.Sprintf(
			`{"endpoint":{"address":{"socket_address":{"address":%q,"port_value":%s}}}}`, host, port))
	}
	if policy == "" {
		policy = "{}"
	}
	d.Call(t, http.MethodPut, "/v1/clusters/"+url.PathEscape(cluster)+"/endpoints", fmt.Sprintf(
		`{"policy":%s,"endpoints":[{"lb_endpoints":[%s]}]}`, policy, strings.Join(endpoints, ",")))
}

// Limit sets the circuit breaker of a cluster.
func (d *Daemon) Limit(t testing.TB, cluster string, requests int) {
	t.Helper()
	d.Call(t, http.MethodPut, "/v1/clusters/"+cluster+"/config", fmt.Sprintf(
		`{"type":"EDS","eds_cluster_config":{"eds_config":{"ads":{}}},"circuit_breakers":{"thresholds":[{"max_requests":%d}]}}`, requests))
}

// Metric returns the value of a metric with its labels; 0 if it is not there.
func (d *Daemon) Metric(t testing.TB, series string) float64 {
	t.Helper()
	for line := range strings.Lines(d.Call(t, http.MethodGet, "/metrics", "")) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// InFlight returns the requests to the cluster orders that lbd counts as in flight.
func (d *Daemon) InFlight(t testing.TB) int {
	t.Helper()
	var state struct {
		Breaker struct {
			InFlight int `json:"in_flight"`
		} `json:"circuit_breaker"`
	}
	if err := json.Unmarshal([]byte(d.Call(t, http.MethodGet, "/v1/clusters/orders?endpoints=false", "")), &state); err != nil {
		t.Fatal(err)
	}
	return state.Breaker.InFlight
}

// Until waits until condition is true.
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(Deadline); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", Deadline, what)
		}
	}
}
