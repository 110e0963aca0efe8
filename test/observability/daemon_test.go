package observability_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// anywhere is a free port.
const anywhere = "127.0.0.1:0"

// patience is the maximum time that the test waits, on a busy machine.
const patience = time.Minute

// client has a connection for each load, and a timeout.
var client = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 32}}

// eventually waits until check returns nil, for results of real connections and scrapes.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// run starts a program, and stops it at the end of the test.
func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		killer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer killer.Stop()
		_ = cmd.Wait()
	})
}

// daemon is a running lbd.
type daemon struct{ address string }

// buildDaemon returns the binary of lbd: LBD_TEST_DAEMON, or a file that it builds.
func buildDaemon(t *testing.T) string {
	t.Helper()
	if lbd := os.Getenv("LBD_TEST_DAEMON"); lbd != "" {
		return lbd
	}
	lbd := filepath.Join(t.TempDir(), "lbd")
	runIn(t, root, "go", "build", "-o", lbd, "./cmd/lbd")
	return lbd
}

// runIn runs a command in a directory until it ends.
func runIn(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", cmd, err, out)
	}
}

// startDaemon starts lbd, perhaps through another command, with a free port and a new data directory.
func startDaemon(t *testing.T, command ...string) daemon {
	t.Helper()
	command = append(command, "--listen="+anywhere, "--data="+filepath.Join(t.TempDir(), "data"), "--connect=tcp_hold",
		"--log-format=json", "--drain-timeout=1s")
	cmd := exec.Command(command[0], command[1:]...)
	stderr, err := cmd.StderrPipe()
	must(t, err)
	run(t, cmd)
	serving := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			var record struct {
				Message   string   `json:"msg"`
				Addresses []string `json:"addresses"`
			}
			if json.Unmarshal(lines.Bytes(), &record) == nil && record.Message == "serving" {
				serving <- record.Addresses[0]
			}
		}
	}()
	select {
	case address := <-serving:
		return daemon{address}
	case <-time.After(patience):
		t.Fatal("lbd does not serve")
		return daemon{}
	}
}

// startEtcd starts LBD_TEST_ETCD, or a tools/lbd-etcd that it builds, with an empty store.
func startEtcd(t *testing.T) endpoint {
	t.Helper()
	file := os.Getenv("LBD_TEST_ETCD")
	if file == "" {
		file = filepath.Join(t.TempDir(), "lbd-etcd")
		runIn(t, filepath.Join(root, "tools/lbd-etcd"), "go", "build", "-o", file, ".")
	}
	cmd := exec.Command(file)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	stop := sync.OnceFunc(func() { // it removes its store when its input ends
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	address, err := bufio.NewReader(stdout).ReadString('\n')
	must(t, err)
	return endpoint{strings.TrimSpace(address), stop}
}

// call sends a request, and returns the status and the body.
func (d daemon) call(ctx context.Context, method, path, body string) (status int, answer string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+d.address+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	response, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	return response.StatusCode, string(b), err
}

// must is call for expected statuses.
func (d daemon) must(t *testing.T, method, path, body string, statuses ...int) string {
	t.Helper()
	got, answer, err := d.call(t.Context(), method, path, body)
	if err != nil || !slices.Contains(statuses, got) {
		t.Fatalf("%s %s: %d, %v: %s", method, path, got, err, answer)
	}
	return answer
}

func (d daemon) push(t *testing.T, cluster, endpoints string) {
	t.Helper()
	d.must(t, "PUT", "/v1/clusters/"+cluster+"/endpoints", endpoints, http.StatusOK, http.StatusCreated)
}

// load calls ask every 100 ms until it is stopped or the test ends. The results are in the metrics.
func (d daemon) load(t *testing.T, ask func(ctx context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				ask(ctx)
			}
		}
	}()
	return stop
}

// picks is a load of picks without leases.
func (d daemon) picks(t *testing.T, cluster string, n int, more string) (stop func()) {
	t.Helper()
	return d.load(t, func(ctx context.Context) {
		_, _, _ = d.call(ctx, "GET", fmt.Sprintf("/pick?cluster=%s&n=%d%s", cluster, n, more), "")
	})
}

// lease picks with a lease and returns its id.
func (d daemon) lease(ctx context.Context, cluster, ttl string) string {
	_, answer, err := d.call(ctx, "POST", "/pick?cluster="+cluster+"&ttl="+ttl, "")
	var v struct{ Lease struct{ ID string } }
	if err != nil || json.Unmarshal([]byte(answer), &v) != nil {
		return ""
	}
	return v.Lease.ID
}

// endpoint accepts connections until it is closed.
type endpoint struct {
	address string
	close   func()
}

func listen(t *testing.T, address string) endpoint {
	t.Helper()
	l, err := net.Listen("tcp", address)
	must(t, err)
	s := &http.Server{Handler: http.NotFoundHandler()}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	stop := func() { _ = s.Close(); <-done }
	t.Cleanup(stop)
	return endpoint{l.Addr().String(), stop}
}

// locality is a locality of an assignment.
type locality struct {
	zone             string
	priority, weight int
	address, health  string
}

// assignment returns a ClusterLoadAssignment with pairs of a drop category and its percentage.
func assignment(localities []locality, drops ...any) string {
	var b strings.Builder
	b.WriteString("endpoints:\n")
	for _, l := range localities {
		host, port, _ := net.SplitHostPort(l.address)
		fmt.Fprintf(&b, "- {locality: {region: us, zone: %s}, priority: %d, load_balancing_weight: %d, lb_endpoints: [{health_status: %s, "+
			"endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}]}\n", l.zone, l.priority, max(l.weight, 1), cmp.Or(l.health, "HEALTHY"), host, port)
	}
	if len(drops) > 0 {
		b.WriteString("policy:\n  drop_overloads:\n")
	}
	for i := 0; i < len(drops); i += 2 {
		fmt.Fprintf(&b, "  - {category: %s, drop_percentage: {numerator: %d, denominator: HUNDRED}}\n", drops[i], drops[i+1])
	}
	return b.String()
}

// aggregate returns the config of an aggregate cluster.
func aggregate(leaves ...string) string {
	return fmt.Sprintf(`cluster_type: {name: envoy.clusters.aggregate, typed_config: {"@type": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig, clusters: [%s]}}`,
		strings.Join(leaves, ", "))
}

// listener returns a snapshot with the Listener of a target that routes all requests to a cluster.
func listener(target, cluster string) string {
	return fmt.Sprintf(`resources:
- "@type": type.googleapis.com/envoy.config.listener.v3.Listener
  name: %s
  api_listener: {api_listener: {
    "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager,
    route_config: {name: inline, virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: %s}}]}]},
    http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]}}
`, target, cluster)
}

func writeFile(t *testing.T, file, text string) {
	t.Helper()
	must(t, os.WriteFile(file, []byte(text), 0o600))
}
