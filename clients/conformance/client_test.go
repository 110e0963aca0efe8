package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/lbd-dev/lbd/clients/conformance/stand"
)

// adapters are all that a client may have: it has those that its runner opens.
var adapters = []string{
	"core", "core-async", "requests", "httpx", "httpx-async", "guzzle", "psr18", "undici", "fetch", "faraday", "okhttp", "tower", "grpc",
}

// binary returns the path of lbd.
func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("LBD_TEST_DAEMON")
	if path == "" {
		path = "../../bin/lbd"
	}
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("lbd is not built (make build), or LBD_TEST_DAEMON is wrong: %v", err)
	}
	return path
}

// clients lists those of CLIENTS, by default all folders with a runner.
func clients(t *testing.T) (names []string) {
	t.Helper()
	if only := strings.Fields(os.Getenv("CLIENTS")); len(only) > 0 {
		return only
	}
	runners, err := filepath.Glob("../*/conformance/run")
	if err != nil || len(runners) == 0 {
		t.Fatal("no client has a runner", err)
	}
	for _, path := range runners {
		names = append(names, filepath.Base(filepath.Dir(filepath.Dir(path))))
	}
	slices.Sort(names)
	return names
}

// client is one under test, with a daemon of its own.
type client struct {
	name, adapter string

	dir         string
	daemon      *stand.Daemon
	credentials stand.Credentials
	runner      *stand.Runner // nil if it is not started
	plays       int
	rotations   int // of the token
}

func newClient(t *testing.T, name, adapter string) *client {
	t.Helper()
	dir, err := os.MkdirTemp("", "lbd") //nolint:usetesting // t.TempDir is too long for unix sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &client{name: name, adapter: adapter, dir: dir, daemon: stand.NewDaemon(binary(t), dir)}
	if c.credentials, err = stand.WriteCredentials(dir, rotated(0)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.daemon.Stop(syscall.SIGKILL)
		if c.runner != nil {
			c.runner.Kill()
		}
	})
	if err := c.daemon.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// start starts the runner, if it does not run.
func (c *client) start() error {
	if c.runner != nil {
		return nil
	}
	// No call to lbd may use the proxy.
	r, err := stand.StartRunner(filepath.Join("..", c.name),
		"LBD_CA="+c.credentials.CA, "https_proxy=http://127.0.0.1:1", "HTTPS_PROXY=http://127.0.0.1:1")
	if err != nil {
		return fmt.Errorf("the runner does not start, is the client built (make -C clients/%s build)? %w", c.name, err)
	}
	c.runner = r
	return nil
}

// discard ends a runner that did not do what it should.
func (c *client) discard() {
	if c.runner != nil {
		c.runner.Kill()
		c.runner = nil
	}
}

// unsupportedError has the reason of a runner.
type unsupportedError struct{ reason string }

func (e unsupportedError) Error() string { return "unsupported: " + e.reason }

// do sends a command to the runner, and waits for the answer.
func (c *client) do(command stand.Command) (stand.Answer, error) {
	if err := c.start(); err != nil {
		return stand.Answer{}, err
	}
	a, err := c.runner.Do(command, stand.Patience)
	if err == nil && a.Unsupported != "" {
		err = unsupportedError{a.Unsupported}
	}
	return a, err
}

// close closes the client, but not the runner: opening another one does that.
func (c *client) close(mode string) error {
	if c.runner == nil {
		return nil
	}
	a, err := c.do(stand.Command{Do: "open", LBD: "unix:" + c.daemon.Socket, Cluster: "none", Mode: mode, Adapter: c.adapter})
	if err == nil && !a.OK {
		err = fmt.Errorf("open: the answer is %+v", a)
	}
	return err
}

// adaptersOf are the adapters of clients whose runner was asked.
var (
	adaptersMu sync.Mutex
	adaptersBy = make(map[string][]string)
)

// adaptersOf asks the runner of a client once which adapters it has.
func adaptersOf(t *testing.T, name string) []string {
	t.Helper()
	adaptersMu.Lock()
	defer adaptersMu.Unlock()
	if has := adaptersBy[name]; has != nil {
		return has
	}
	c := &client{name: name}
	defer c.discard()
	for _, adapter := range adapters {
		opens, err := c.opens(adapter)
		if err != nil {
			t.Fatalf("open of adapter %s: %v", adapter, err)
		}
		if opens {
			adaptersBy[name] = append(adaptersBy[name], adapter)
		}
	}
	if adaptersBy[name] == nil {
		t.Fatal("the runner opens no adapter")
	}
	return adaptersBy[name]
}

// opens reports whether the client has an adapter, in one of the modes.
func (c *client) opens(adapter string) (bool, error) {
	for _, mode := range allModes {
		_, err := c.do(stand.Command{Do: "open", LBD: "unix:/nowhere/lbd.sock", Cluster: "none", Mode: mode, Adapter: adapter})
		var not unsupportedError
		if err == nil || !errors.As(err, &not) {
			return err == nil, err
		}
	}
	return false, nil
}
