package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

// patience is the maximum time that a test waits, on a busy machine.
const patience = 2 * time.Minute

// withInput is the value of LBD_TEST_MAIN for a command that reads its standard input.
const withInput = "input"

// TestMain runs the command line of lbd instead of the tests if LBD_TEST_MAIN is set. The process ends
// with its standard input, which is a pipe from the test: no daemon outlives the tests, not even if
// they are killed.
func TestMain(m *testing.M) {
	mode := os.Getenv("LBD_TEST_MAIN")
	for _, v := range os.Environ() { // commands would use them, or warn of them
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "LBD_") && (mode != "") == strings.HasPrefix(name, "LBD_TEST_") {
			_ = os.Unsetenv(name)
		}
	}
	if mode != "" {
		if mode != withInput {
			go func() {
				_, _ = io.Copy(io.Discard, os.Stdin)
				os.Exit(3)
			}()
		}
		main()
	}
	// What daemons and commands in this process would use, and what each daemon would read for nothing: the
	// certificates of the system.
	_ = os.Unsetenv("GRPC_XDS_BOOTSTRAP")
	for name, value := range map[string]string{"XDG_CONFIG_HOME": "/nonexistent", "SSL_CERT_FILE": os.DevNull, "SSL_CERT_DIR": os.DevNull} {
		_ = os.Setenv(name, value)
	}
	os.Stdin, _ = os.Open(os.DevNull) // no terminal, which would be asked
	os.Exit(m.Run())
}

// process is a running lbd process.
type process struct {
	cmd *exec.Cmd
	url string

	mu  sync.Mutex
	log bytes.Buffer

	exited chan struct{} // closed when the process has ended, with its result in err
	err    error
}

func command(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), "LBD_TEST_MAIN=1")
	if _, err := cmd.StdinPipe(); err != nil {
		panic(err)
	}
	return cmd
}

// inShell makes cmd the successor of a shell that runs a command before it, in the same process.
func inShell(cmd *exec.Cmd, before string) *exec.Cmd {
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", before + ` exec "$0" "$@"`}, cmd.Args...)
	return cmd
}

// startProcess starts lbd on a free port and returns once it serves.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	return start(t, command(append([]string{"serve", "--listen=127.0.0.1:0", "--log-format=json"}, args...)...))
}

// start starts an lbd that logs as JSON, and returns once it serves.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, exited: make(chan struct{})}
	stderr, err := p.cmd.StderrPipe()
	noError(t, err)
	noError(t, p.cmd.Start())
	serving := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			p.mu.Lock()
			p.log.WriteString(lines.Text() + "\n")
			p.mu.Unlock()
			var record struct {
				Message   string   `json:"msg"`
				Addresses []string `json:"addresses"`
			}
			if json.Unmarshal(lines.Bytes(), &record) == nil && record.Message == "serving" {
				select {
				case serving <- "http://" + record.Addresses[0]:
				default: // another daemon of the process
				}
			}
		}
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
	})
	select {
	case p.url = <-serving:
	case <-p.exited:
		t.Fatalf("lbd ended: %v\n%s", p.err, p.output())
	case <-time.After(patience):
		t.Fatalf("lbd does not serve\n%s", p.output())
	}
	return p
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// end sends a signal and returns how the process ended.
func (p *process) end(t *testing.T, s syscall.Signal) error {
	t.Helper()
	noError(t, p.cmd.Process.Signal(s))
	select {
	case <-p.exited:
	case <-time.After(patience):
		t.Fatalf("lbd does not end on %v\n%s", s, p.output())
	}
	return p.err
}

// kill ends the process with SIGKILL.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if p.end(t, syscall.SIGKILL) == nil {
		t.Fatal("a killed process ended without an error")
	}
}

// stop ends the process with SIGTERM.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.end(t, syscall.SIGTERM); err != nil {
		t.Errorf("%v\n%s", err, p.output())
	}
}

// answer is an HTTP response.
type answer struct {
	status int
	header http.Header
	body   string
}

func do(t *testing.T, method, url, body string) answer {
	t.Helper()
	a, err := try(t.Context(), http.DefaultClient, method, url, body)
	noError(t, err)
	return a
}

// expect makes a request whose answer must have a status, and texts in its body.
func expect(t *testing.T, status int, method, url, body string, texts ...string) {
	t.Helper()
	a := do(t, method, url, body)
	lacks := func(text string) bool { return !strings.Contains(a.body, text) }
	if a.status != status || slices.ContainsFunc(texts, lacks) {
		t.Errorf("%s %s: %+v, want status %d and %q", method, url, a, status, texts)
	}
}

// get decodes the JSON body of a GET.
func get[T any](t *testing.T, url string) (v T) {
	t.Helper()
	noError(t, json.Unmarshal([]byte(do(t, "GET", url, "").body), &v))
	return v
}

// pickLater makes a pick that waits, and returns its answer when it has one.
func pickLater(t *testing.T, url, query string) <-chan answer {
	answered := make(chan answer, 1)
	go func() {
		a, err := try(t.Context(), http.DefaultClient, "GET", url+"/pick?"+query, "")
		if err != nil {
			a.body = err.Error()
		}
		answered <- a
	}()
	return answered
}

// expectPick makes a pick that must return an address, or fail with a code.
func expectPick(t *testing.T, url, query, want string) {
	t.Helper()
	if got := picked(t, url, query); got != want {
		t.Errorf("pick %s: got %s, want %s", query, got, want)
	}
}

// expectFailure runs a command that must fail, with texts in its output.
func expectFailure(t *testing.T, cmd *exec.Cmd, texts ...string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); !failed {
		t.Errorf("%v: %v", cmd.Args[1:], err)
	}
	for _, text := range texts {
		if !strings.Contains(string(out), text) {
			t.Errorf("%v: no %q in %s", cmd.Args[1:], text, out)
		}
	}
}

func try(ctx context.Context, client *http.Client, method, url, body string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	response, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(b)}, err
}

// address returns the address of a pick, or the code of its error.
func (a answer) address() string {
	var v struct{ Address, Code string }
	_ = json.Unmarshal([]byte(a.body), &v)
	return v.Address + v.Code
}

// lastingAddress returns an address for a server that stops and starts again. The port is below
// those that systems give to connections and to listeners on port 0: in the meantime, neither takes
// it, and a dial cannot connect to itself. A socket for packets claims it from other tests, also
// those of other processes.
func lastingAddress(t testing.TB) string {
	t.Helper()
	const lowest, highest = 15_000, 32_000
	for {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(highest-lowest))
		claim, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp", address); err == nil {
			t.Cleanup(func() { _ = claim.Close() })
			noError(t, l.Close())
			return address
		}
		_ = claim.Close()
	}
}

// upstream starts an HTTP server.
func upstream(t *testing.T) (address string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	s := &http.Server{Handler: http.NotFoundHandler()}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	stop = func() { _ = s.Close(); <-done }
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// envoyFile returns a file for Envoy's file-based EDS, without localities and weights.
func envoyFile(cluster string, addresses ...string) string {
	var b strings.Builder
	b.WriteString("version_info: \"1\"\nresources:\n- \"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment\n" +
		"  cluster_name: " + cluster + "\n  endpoints:\n  - lb_endpoints:\n")
	for _, a := range addresses {
		host, port, _ := net.SplitHostPort(a)
		b.WriteString(fmt.Sprintf("    - endpoint:\n        address:\n          socket_address:\n            address: %s\n            port_value: %s\n", host, port))
	}
	return b.String()
}

// pushEndpoints pushes the endpoints of a new cluster.
func pushEndpoints(t *testing.T, url, cluster string, addresses ...string) {
	t.Helper()
	expect(t, http.StatusCreated, "PUT", url+"/v1/clusters/"+cluster+"/endpoints", envoyFile(cluster, addresses...))
}

func writeFile(t testing.TB, file string, body []byte) {
	t.Helper()
	noError(t, os.WriteFile(file, body, 0o600))
}

func TestPushSurvivesKill(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	address, _ := upstream(t)
	p := startProcess(t, "--data="+data)
	pushEndpoints(t, p.url, "orders", address)
	p.kill(t)
	p = startProcess(t, "--data="+data)
	expectPick(t, p.url, "cluster=orders", address)
	p.stop(t)
}

func TestSecondDaemonOnTheSameData(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	startProcess(t, "--data="+data)
	expectFailure(t, command("serve", "--listen=127.0.0.1:0", "--data="+data), "in use by another lbd", data)
}

func TestDamagedStoreIsMoved(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	address, _ := upstream(t)
	p := startProcess(t, "--data="+data)
	do(t, "PUT", p.url+"/v1/clusters/orders/endpoints", envoyFile("orders", address))
	p.stop(t)
	file := filepath.Join(data, "lbd.db")
	b, err := os.ReadFile(file)
	noError(t, err)
	writeFile(t, file, b[:len(b)/2])
	for range 3 {
		expectFailure(t, command("serve", "--listen=127.0.0.1:0", "--data="+data), "damaged", "restore a backup")
	}
	kept, err := filepath.Glob(file + ".damaged-*")
	if err != nil || len(kept) != 1 {
		t.Fatalf("set aside: %v, %v", kept, err)
	}
	noError(t, os.Rename(kept[0], filepath.Join(t.TempDir(), "away")))
	startProcess(t, "--data="+data)
}
