package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/clients/conformance/stand"
)

// lbd is the daemon of all tests but those that stop it.
var lbd *stand.Daemon

func TestMain(m *testing.M) {
	daemon, stop, err := startDaemon()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lbd = daemon
	code := m.Run()
	stop()
	if code == 0 {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections() //nolint:errcheck,forcetypeassert // it is one
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// startDaemon starts a real lbd.
func startDaemon() (*stand.Daemon, func(), error) {
	dir, err := os.MkdirTemp("", "lbd")
	if err != nil {
		return nil, nil, err
	}
	binary := os.Getenv("LBD_BIN")
	if binary == "" {
		binary = "../../bin/lbd"
	}
	if _, err := stand.WriteCredentials(dir); err != nil {
		return nil, nil, err
	}
	d := stand.NewDaemon(binary, dir)
	stop := func() {
		d.Stop(syscall.SIGKILL)
		_ = os.RemoveAll(dir)
	}
	return d, stop, d.Start()
}

// push makes upstreams the endpoints of a cluster of the test, and returns its name.
func push(t testing.TB, addresses ...string) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-", " ", "-").Replace(t.Name()))
	if err := lbd.Push(name, addresses...); err != nil {
		t.Fatal(err)
	}
	return name
}

// upstream starts an HTTP server, with HTTP/2 without TLS as well.
func upstream(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.Listener.Addr().String()
}

// refused returns an address that refuses connections, and that no other test gets.
func refused(t testing.TB) string {
	t.Helper()
	u, err := stand.NewUpstream(new(stand.Meter), "refuse")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u.Address
}

// running is a proxy in this process.
type running struct {
	*proxy

	forward, mapped, admin string // addresses
	end                    func()
	ended                  chan error
	log                    *testLog
}

// start starts a proxy until the end of the test. Its forward proxy and its first --map have addresses.
func start(t testing.TB, args ...string) *running {
	t.Helper()
	args = append([]string{"--lbd=unix:" + lbd.Socket, "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--connect-timeout=1s"}, args...)
	var o options
	if err := o.parse(args, io.Discard); err != nil {
		t.Fatal(err)
	}
	log := &testLog{t: t}
	p, err := newProxy(o, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err == nil {
		err = p.open()
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // it ends before the servers of the test
	r := &running{proxy: p, log: log, end: cancel, ended: make(chan error, 1), admin: p.administrator.listener.Addr().String()}
	for i, o := range p.callers {
		if i == 0 {
			r.forward = o.listener.Addr().String()
		} else if r.mapped == "" {
			r.mapped = o.listener.Addr().String()
		}
	}
	var once sync.WaitGroup
	once.Go(func() { r.ended <- p.serve(ctx) })
	t.Cleanup(func() {
		cancel()
		once.Wait()
	})
	return r
}

// testLog writes the log of a proxy to that of the test, and keeps it.
type testLog struct {
	t testing.TB

	mu   sync.Mutex
	text strings.Builder
}

// Write gets a line.
func (l *testLog) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// has reports whether a line has been logged that contains a text.
func (l *testLog) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// browser returns a client that uses the forward proxy.
func (r *running) browser(t testing.TB) *http.Client {
	t.Helper()
	transport := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: r.forward})}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// metric returns a value of /metrics.
func (r *running) metric(t testing.TB, series string) string {
	t.Helper()
	_, text := get(t, http.DefaultClient, "http://"+r.admin+"/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "lbd_proxy_"+series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// reply is a response whose body was read.
type reply struct {
	StatusCode int
	Header     http.Header
	TLS        *tls.ConnectionState
}

func get(t testing.TB, client *http.Client, target string) (reply, string) {
	t.Helper()
	response, err := client.Get(target)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{response.StatusCode, response.Header, response.TLS}, string(body)
}

// curl runs the real one, and returns what it prints.
func curl(t testing.TB, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	command := exec.CommandContext(t.Context(), "curl", append([]string{"-sS", "--max-time", "60"}, args...)...)
	command.Stdout, command.Stderr = &out, &errs
	if err := command.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return out.String() + errs.String()
}

// raw sends bytes on a connection of its own, and returns what comes back until its end.
func raw(t testing.TB, address, request string) (string, error) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, request); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// until waits until a condition is true.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 15 s: " + what)
		}
	}
}

func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lbd") //nolint:usetesting // t.TempDir is too long for unix sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "p.sock")
}
