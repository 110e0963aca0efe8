package attack_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
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

// lbd is the binary of the daemon: LBD_TEST_DAEMON, or a file that TestMain builds.
var lbd = os.Getenv("LBD_TEST_DAEMON")

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if daemons := os.Getenv(bystanderVariable); daemons != "" {
		return runBystander(strings.Fields(daemons))
	}
	if lbd != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "lbd-attack")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	lbd = filepath.Join(dir, "lbd")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", lbd, "./cmd/lbd").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build lbd: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// noError ends a test on an error.
func noError(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// daemon is a running lbd.
type daemon struct {
	t       testing.TB
	address string
	process *os.Process
	group   *cgroup
	exited  chan struct{} // closed when the process has ended
	log     *lines
}

// options are how a daemon runs.
type options struct {
	listen string // instead of a port of 127.0.0.1 that is free
	args   []string
	env    []string
	limit  int64 // of memory, in bytes; 0 for none
	files  int   // limit on open files; 0 for that of this process
}

// start runs lbd with connect mode none, so that endpoints need no upstream, and
// ends it with the test.
func start(t testing.TB, o options) *daemon {
	t.Helper()
	d := &daemon{t: t, exited: make(chan struct{}), log: new(lines)}
	args := append([]string{"serve", "--listen=" + cmp.Or(o.listen, "127.0.0.1:0"), "--data=", "--connect=none", "--log-format=json"}, o.args...)
	cmd := exec.Command(lbd, args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "LBD_") }), o.env...)
	out, err := cmd.StderrPipe()
	noError(t, err)
	if o.files > 0 {
		cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, o.files), cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
	}
	if o.limit > 0 {
		d.group = newCgroup(t, o.limit)
		d.group.attach(t, cmd)
	}
	noError(t, cmd.Start())
	d.process = cmd.Process
	serving := make(chan string, 1)
	go func() {
		defer close(d.exited)
		for s := bufio.NewScanner(out); s.Scan(); {
			d.log.add(s.Text())
			var line struct {
				Msg       string   `json:"msg"`
				Addresses []string `json:"addresses"`
			}
			if json.Unmarshal(s.Bytes(), &line) == nil && line.Msg == "serving" {
				serving <- line.Addresses[0]
			}
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = d.process.Kill()
		<-d.exited
		d.group.remove()
		if t.Failed() {
			t.Logf("last lines of the log:\n%s", d.log.last(15))
		}
	})
	select {
	case d.address = <-serving:
	case <-d.exited:
		t.Fatalf("lbd ended:\n%s", d.log.last(15))
	}
	return d
}

// alive fails the test if lbd has ended, or was near it: if the kernel killed one of
// its processes.
func (d *daemon) alive() {
	d.t.Helper()
	select {
	case <-d.exited:
		d.t.Fatalf("lbd has ended:\n%s", d.log.last(15))
	default:
	}
	if d.group != nil {
		d.t.Logf("memory: at most %d of %d MiB", d.group.peak()>>20, d.group.limit>>20)
	}
}

func (d *daemon) url(path string) string { return "http://" + d.address + path }

// do calls lbd and returns the status and the body.
func (d *daemon) do(client *http.Client, method, path, body string, header ...string) (int, string) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.url(path), strings.NewReader(body))
	noError(d.t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	a, err := client.Do(r)
	noError(d.t, err)
	defer func() { _ = a.Body.Close() }()
	text, err := io.ReadAll(a.Body)
	noError(d.t, err)
	return a.StatusCode, string(text)
}

// push pushes clusters of n endpoints each.
func (d *daemon) push(clusters, n int) {
	d.t.Helper()
	for c := range clusters {
		name := "orders"
		if c > 0 {
			name = fmt.Sprintf("cluster-%d", c)
		}
		if status, answer := d.do(client("127.0.0.1"), http.MethodPut, "/v1/clusters/"+name+"/endpoints", assignment(name, n)); status >= 300 {
			d.t.Fatalf("push %s: %d %s", name, status, answer)
		}
	}
}

// assignment returns a ClusterLoadAssignment in JSON.
func assignment(name string, n int) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"cluster_name":%q,"endpoints":[{"locality":{"zone":"a"},"load_balancing_weight":1,"lb_endpoints":[`, name)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"endpoint":{"address":{"socket_address":{"address":"127.1.%d.%d","port_value":8080}}}}`, i/250, i%250+1)
	}
	b.WriteString(`]}]}`)
	return b.String()
}

// client returns an HTTP client that calls from an address of this machine, so that
// lbd can distinguish the attacker from others.
func client(from string) *http.Client {
	return &http.Client{
		Timeout: time.Minute,
		Transport: &http.Transport{
			DialContext:         dialerFrom(from).DialContext,
			MaxIdleConnsPerHost: 100,
		},
	}
}

// dialerFrom returns a dialer whose connections have an address of this machine. The port is chosen
// when the connection is made: ports of connections to other daemons are no longer in the way.
func dialerFrom(address string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Control: func(_, _ string, c syscall.RawConn) error {
		const bindAddressNoPort = 24 // IP_BIND_ADDRESS_NO_PORT
		var failed error
		err := c.Control(func(fd uintptr) { failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, bindAddressNoPort, 1) })
		return errors.Join(err, failed)
	}}
}

// attacker is the address of the client that attacks; the one that is measured has another.
const (
	attacker  = "127.0.0.66"
	bystander = "127.0.0.1"
)

// connect opens a connection to lbd as the attacker, and closes it with the test.
func (d *daemon) connect() net.Conn {
	d.t.Helper()
	dialer := dialerFrom(attacker)
	dialer.Timeout = 10 * time.Second
	c, err := dialer.DialContext(d.t.Context(), "tcp", d.address)
	noError(d.t, err)
	d.t.Cleanup(func() { _ = c.Close() })
	return c
}

// lines are the last lines of a log.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all = append(l.all, line); len(l.all) > 1000 {
		l.all = slices.Delete(l.all, 0, 500)
	}
}

func (l *lines) last(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all[max(0, len(l.all)-n):], "\n")
}

// eachOf runs f n times, in at most limit goroutines.
func eachOf(n, limit int, f func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, limit)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}

// needsDescriptors skips a test if this process may not open n files.
func needsDescriptors(t *testing.T, n uint64) {
	t.Helper()
	var l syscall.Rlimit
	noError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l))
	if l.Cur < n {
		t.Skipf("the limit on open files is %d; the attack needs %d", l.Cur, n)
	}
}
