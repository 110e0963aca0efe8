package ccore_test

import (
	"bufio"
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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// side is either of the two that are compared.
type side interface {
	name() string
	// ask makes a call, or a pick, for each key. It returns which endpoint
	// answered it, or "!" and why none did.
	ask(keys []string) ([]string, error)
}

// bootstrap is both clients' bootstrap. With the feature fail_on_data_errors a resource
// that is deleted is no longer used (gRFC A88).
func bootstrap(management, node string, features ...string) string {
	quoted, err := json.Marshal(append([]string{"xds_v3"}, features...))
	if err != nil {
		panic(err) // strings are JSON
	}
	return fmt.Sprintf(`{"xds_servers":[{"server_uri":%q,"channel_creds":[{"type":"insecure"}],"server_features":%s}],"node":{"id":%q}}`,
		management, quoted, node)
}

// run starts a program that ends with the test.
func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		killer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		defer killer.Stop()
		_ = cmd.Wait()
	})
}

// cCore is a Python program with a channel.
type cCore struct {
	in  io.Writer
	out *bufio.Scanner
}

func newCCore(t *testing.T, python, bootstrap, target string) *cCore {
	t.Helper()
	cmd := exec.Command(python, "client.py", "xds:///"+target)
	cmd.Env = append(os.Environ(), "GRPC_XDS_BOOTSTRAP_CONFIG="+bootstrap, "GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING=true")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	run(t, cmd)
	return &cCore{in: in, out: bufio.NewScanner(out)}
}

func (c *cCore) name() string { return "C-core" }

func (c *cCore) ask(keys []string) ([]string, error) {
	if err := json.NewEncoder(c.in).Encode(keys); err != nil {
		return nil, fmt.Errorf("ask C-core: %w", err)
	}
	if !c.out.Scan() {
		return nil, fmt.Errorf("C-core's client ended: %w", c.out.Err())
	}
	var answers []string
	if err := json.Unmarshal(c.out.Bytes(), &answers); err != nil {
		return nil, fmt.Errorf("C-core answered %q: %w", c.out.Text(), err)
	}
	return answers, nil
}

// daemon is an lbd that runs, on a socket.
type daemon struct {
	target string
	client *http.Client
}

// built is where lbd is built.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "lbd-ccore")
	if err != nil {
		panic(err)
	}
	built = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// buildDaemon returns where lbd is: LBD_TEST_DAEMON, or a file that it builds once.
var buildDaemon = sync.OnceValues(func() (string, error) {
	if lbd := os.Getenv("LBD_TEST_DAEMON"); lbd != "" {
		return lbd, nil
	}
	lbd := filepath.Join(built, "lbd")
	if out, err := exec.Command("go", "build", "-C", "../..", "-o", lbd, "./cmd/lbd").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build lbd: %w\n%s", err, out)
	}
	return lbd, nil
})

func newDaemon(t *testing.T, bootstrap, target string) *daemon {
	t.Helper()
	lbd, err := buildDaemon()
	must(t, err)
	dir, err := os.MkdirTemp("", "lbd") //nolint:usetesting // a socket's path has to be short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config, socket := filepath.Join(dir, "bootstrap.json"), filepath.Join(dir, "s")
	must(t, os.WriteFile(config, []byte(bootstrap), 0o600))
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	cmd := exec.Command(lbd, "--listen", "unix:"+socket, "--data=", "--bootstrap", config, "--target", target, "--connect", "tcp_hold")
	cmd.Stderr = log
	run(t, cmd)
	t.Cleanup(func() {
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("lbd's log:\n%s", text)
		}
	})
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &daemon{target: target, client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: dial}}}
}

func (d *daemon) name() string { return "lbd" }

// get reads what the API answers.
func (d *daemon) get(path string, query url.Values, answer any) (refusal string, err error) {
	resp, err := d.client.Get("http://lbd" + path + "?" + query.Encode())
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		var problem struct{ Code, Detail string }
		if err := json.Unmarshal(body, &problem); err != nil {
			return "", fmt.Errorf("%s: %s", resp.Status, body)
		}
		return problem.Code + ": " + problem.Detail, nil
	}
	return "", json.Unmarshal(body, answer)
}

func (d *daemon) ask(keys []string) ([]string, error) {
	var answers []string
	for _, key := range keys {
		var pick struct{ Address string }
		refusal, err := d.get("/pick", url.Values{"target": {d.target}, "header." + keyHeader: {key}, "wait": {"5s"}}, &pick)
		switch {
		case err != nil:
			return nil, fmt.Errorf("ask lbd: %w", err)
		case refusal != "":
			answers = append(answers, "!"+refusal)
		default:
			answers = append(answers, pick.Address)
		}
	}
	return answers, nil
}

// leaves tells which leaf lbd says is in use, and which are skipped.
func (d *daemon) leaves(cluster string) (inUse string, skipped []string, err error) {
	var state struct {
		Leaves []struct {
			Name    string
			InUse   bool `json:"in_use"`
			Skipped string
		}
	}
	refusal, err := d.get("/v1/clusters/"+cluster, url.Values{"target": {d.target}, "endpoints": {"false"}}, &state)
	if err != nil || refusal != "" {
		return "", nil, fmt.Errorf("the state of %s: %w %s", cluster, err, refusal)
	}
	var used []string
	for _, l := range state.Leaves {
		if l.InUse {
			used = append(used, l.Name)
		}
		if l.Skipped != "" {
			skipped = append(skipped, l.Name)
		}
	}
	return strings.Join(used, " "), skipped, nil
}

// must ends the test if err is not nil.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
