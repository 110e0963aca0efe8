package fleet

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

// A daemon is one process of lbd with a store in etcd.
type daemon struct {
	*process

	data string
	log  logFile
}

type logFile struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logFile) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newDaemon returns a daemon that does not run yet.
func newDaemon(t *testing.T, binary, store string, flags ...string) *daemon {
	t.Helper()
	d := &daemon{data: filepath.Join(t.TempDir(), "data")}
	listen := freePort(t)
	d.process = &process{name: "lbd", url: "http://" + listen, command: func() *exec.Cmd {
		c := exec.CommandContext(t.Context(), binary, append([]string{
			"--listen", listen, "--data", d.data, "--connect", "none", "--store", store,
		}, flags...)...)
		c.Stderr = &d.log
		return c
	}}
	t.Cleanup(d.kill)
	return d
}

func startDaemon(t *testing.T, store string, flags ...string) *daemon {
	t.Helper()
	d := newDaemon(t, buildDaemon(t, ""), store, flags...)
	d.start(t)
	return d
}

// request returns the status of a response, and its body.
func (d *daemon) request(method, path, body string) (status int, text string) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(b)
}

func (d *daemon) push(cluster string, value int) (status int, text string) {
	return d.request(http.MethodPut, "/v1/clusters/"+cluster+"/endpoints", body(value))
}

func (d *daemon) mustPush(t *testing.T, cluster string, value int) {
	t.Helper()
	if status, text := d.push(cluster, value); status != http.StatusOK && status != http.StatusCreated {
		t.Fatalf("push: %d %s", status, text)
	}
}

// picks reports the address of a pick, or its status.
func (d *daemon) pick(cluster string) string {
	status, text := d.request(http.MethodGet, "/pick?cluster="+cluster, "")
	if status != http.StatusOK {
		return http.StatusText(status)
	}
	_, rest, _ := strings.Cut(text, `"address":"`)
	address, _, _ := strings.Cut(rest, `"`)
	return address
}

// untilReady waits for a status of /readyz whose answer has all texts.
func (d *daemon) untilReady(t *testing.T, want int, texts ...string) {
	t.Helper()
	var status int
	var text string
	end := time.Now().Add(40 * time.Second)
	for {
		status, text = d.request(http.MethodGet, "/readyz?verbose", "")
		has := status == want
		for _, part := range texts {
			has = has && strings.Contains(text, part)
		}
		if has {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("/readyz is not %d with %q: %d %s\n%s", want, texts, status, text, d.log.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// exit waits until the process has ended, and returns its exit code.
func (d *daemon) exit(t *testing.T) int {
	t.Helper()
	timer := time.AfterFunc(20*time.Second, func() { _ = d.running.Process.Kill() })
	defer timer.Stop()
	_ = d.running.Wait()
	code := d.running.ProcessState.ExitCode()
	d.running = nil
	return code
}

func write(t *testing.T, path string, content []byte) string {
	t.Helper()
	noError(t, os.WriteFile(path, content, 0o600))
	return path
}
